//! The inverse: from a rank and a local index to the indices of the tensor.
//!
//! A layout whose modes are independent is inverted by taking the weights of its modes in the index, the
//! products of the faster extents, as strides, and its strides as the order. Sorted by axis and step, the
//! modes of an axis make the axis, and the missing modes between them are replicated. Slicing at the
//! coordinates of a rank leaves the local modes.

use reshard_layout::{AxisStride, Layout, Mode, Modes};
use smallvec::SmallVec;

use crate::mesh::digit;
use crate::partition::MAX_PIECES;
use crate::region::{Interval, Intervals, push};
use crate::{Error, Mesh};

/// Modes side by side with their weights in the index: `zip` with the index itself.
fn weighted(modes: &[Mode<AxisStride>]) -> Modes<(AxisStride, i64)> {
    let mut weight = 1;
    let mut out = Modes::new();
    for &m in modes {
        out.push(m.map(|at| (at, weight)));
        weight *= m.extent;
    }
    out
}

/// Returns the indices of a dim with these modes that the rank at a coordinate holds.
pub(crate) fn intervals(modes: &[Mode<AxisStride>], dim: usize, c: &[usize]) -> Result<Intervals, Error> {
    let mut start = 0;
    let mut local = Modes::new();
    for m in &weighted(modes) {
        let (at, weight) = m.stride;
        if at.is_local() {
            local.push(m.map(|_| weight));
        } else {
            start += digit(c, m.map(|_| at)) * weight;
        }
    }
    // A fastest local mode is a contiguous run.
    let run = match local.first() {
        Some(m) if m.stride == 1 => m.extent,
        Some(_) | None => 1,
    };
    let starts = if run > 1 { &local[1..] } else { &local };
    let pieces: i64 = starts.iter().map(|m| m.extent).product();
    if pieces as usize > MAX_PIECES {
        return Err(Error::TooFragmented { dim, pieces: pieces as usize, limit: MAX_PIECES });
    }
    let mut list = Intervals::with_capacity(pieces as usize);
    for i in 0..pieces {
        let (mut left, mut at) = (i, start);
        for m in starts {
            at += left % m.extent * m.stride;
            left /= m.extent;
        }
        push(&mut list, Interval { start: at as usize, len: run as usize });
    }
    Ok(list)
}

/// Returns the inverse of a sharding's layout as one layout `(mesh modes, local modes) -> row-major index`.
///
/// `None` where it has more modes than a layout may have.
pub(crate) fn ownership(mesh: &Mesh, layout: &Layout<AxisStride>) -> Option<Layout> {
    let weighted = weighted(layout.flat());
    let along = |axis: usize, n: usize| -> Option<Layout> {
        let mine = weighted.iter().filter(|m| m.extent > 1 && m.stride.0.axis() == Some(axis as u32));
        let mut mine: Modes<(AxisStride, i64)> = mine.copied().collect();
        mine.sort_by_key(|m| m.stride.0.step());
        let (mut modes, mut span) = (Modes::new(), 1);
        for m in &mine {
            let (at, weight) = m.stride;
            modes.push(Mode::new(at.step() / span, 0));
            modes.push(m.map(|_| weight));
            span = at.step() * m.extent;
        }
        modes.push(Mode::new(n as i64 / span, 0));
        Layout::coalesced(&modes).ok()
    };
    let axes = mesh.axes().iter().enumerate().rev();
    let axes = axes.map(|(i, a)| along(i, a.size())).collect::<Option<SmallVec<[Layout; 4]>>>()?;
    let mut rest = weighted.iter();
    let mut local: SmallVec<[Layout; 4]> = SmallVec::new();
    for dim in layout.flat_modes() {
        let of_dim = rest.by_ref().take(dim.len()).filter(|m| m.stride.0.is_local());
        let of_dim: Modes = of_dim.map(|m| m.map(|(_, weight)| weight)).collect();
        local.push(Layout::coalesced(&of_dim).ok()?);
    }
    if layout.is_scalar() {
        local.clear();
    }
    Layout::concat(&[Layout::concat(&axes).ok()?, Layout::concat(&local).ok()?]).ok()
}
