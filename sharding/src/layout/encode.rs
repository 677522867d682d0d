//! Encoding: the layout of a list of splits, where all of them divide.
//!
//! A split into `k` chunks over `n` ranks of the `l` remaining indices of a dim splits the local modes at
//! `l / (k n)` and at `l / k`, and the modes in between go to the axis:
//!
//! ```text
//! l:1   becomes   (l/(k n), n, k) : (1, 1@a, l/(k n))
//! ```
//!
//! Local modes that an earlier split has separated stay separate; if a split does not divide, there is no
//! layout.

use reshard_layout::{AxisStride, Layout, Mode, Modes};
use smallvec::SmallVec;

use super::nested;
use crate::partition::DimCut;
use crate::sharding::{AxisCut, Cuts};
use crate::{Mesh, SubAxis};

/// Returns the layout of a tensor with these splits, if every one divides.
///
/// The splits of a dim are in order of application.
pub(crate) fn layout_of(mesh: &Mesh, shape: &[usize], cuts: &[AxisCut]) -> Option<Layout<AxisStride>> {
    let (mut dims, mut ends, mut step) = (Modes::new(), SmallVec::<[usize; 8]>::new(), 1);
    for (dim, &len) in shape.iter().enumerate().rev() {
        push_dim(mesh, dim, len, cuts, &mut step, &mut dims)?;
        ends.push(dims.len());
    }
    Some(nested(&dims, &ends))
}

/// Returns the modes of one dim with its splits among these, coalesced, if every one of them divides.
pub(crate) fn dim_of_cuts(
    mesh: &Mesh,
    dim: usize,
    len: usize,
    cuts: &[AxisCut],
) -> Option<Modes<AxisStride>> {
    let mut modes = Modes::new();
    push_dim(mesh, dim, len, cuts, &mut 1, &mut modes)?;
    Some(modes)
}

/// Appends the modes of a dim, its local ones dense from `step` on.
fn push_dim(
    mesh: &Mesh,
    dim: usize,
    len: usize,
    cuts: &[AxisCut],
    step: &mut i64,
    out: &mut Modes<AxisStride>,
) -> Option<()> {
    if len == 0 {
        return None;
    }
    let start = out.len();
    let mut local = len as i64;
    // Modes of extent 1 are harmless until the end.
    let mut modes = Modes::new();
    modes.push(Mode::new(local, AxisStride::local(1)));
    for x in cuts.iter().filter(|x| x.dim == dim) {
        let pieces = x.cut.even_pieces(local as usize)?;
        local = share_out(&mut modes, local, pieces as i64, mesh.known_mode(x.sub))?;
    }
    for m in &modes {
        let mut m = *m;
        if m.stride.is_local() {
            m.stride = AxisStride::local(*step);
            *step *= m.extent;
        }
        if m.extent > 1 {
            out.push_coalesced(start, m);
        }
    }
    Some(())
}

/// Gives each rank of `to` an equal share of each of `pieces` equal chunks of the `local` indices.
///
/// Returns the number of remaining local indices.
///
/// `None`, and the modes are spoilt, where a share ends inside a mode that it does not divide.
pub fn share_out(
    modes: &mut Modes<AxisStride>,
    local: i64,
    pieces: i64,
    to: Mode<AxisStride>,
) -> Option<i64> {
    let high = local / pieces;
    let low = high / to.extent;
    if to.extent == 1 {
        return Some(local);
    }
    if low * to.extent * pieces != local {
        return None;
    }
    if modes.len() == 1 {
        // Nothing is split yet.
        modes[0].extent = low;
        modes.push(to);
        modes.push(Mode::new(pieces, AxisStride::local(1)));
        return Some(low * pieces);
    }
    let (mut below, mut at) = (1, 0);
    while below < high {
        let m = *modes.get(at)?;
        if !m.stride.is_local() {
            at += 1;
            continue;
        }
        let above = below * m.extent;
        let end = if below < low && low < above {
            low
        } else if high < above {
            high
        } else {
            above
        };
        if end < above {
            let (lower, upper) = if end % below == 0 { m.cut(end / below)? } else { return None };
            modes[at] = lower;
            modes.insert(at + 1, upper);
        }
        if below >= low {
            modes[at].stride = to.stride.with_step(below / low * to.stride.step());
        }
        (below, at) = (end, at + 1);
    }
    Some(low * pieces)
}

/// Returns the modes of a dim as splits, slowest first: each skips the local indices above it.
pub(crate) fn cuts_of(mesh: &Mesh, dim: usize, modes: &[Mode<AxisStride>]) -> Cuts {
    let mut skipped = 1;
    let mut cuts = Cuts::new();
    for &m in modes.iter().rev() {
        match mesh.sub_axis(m) {
            Some(sub) => cuts.push(AxisCut { dim, sub, cut: DimCut::chunks(skipped, sub.size) }),
            None => skipped *= m.extent as usize,
        }
    }
    cuts
}

/// Returns the modes of a dim with one mode per part, slowest first; the rest of `len` is local.
///
/// `None` is a local mode of that extent.
pub(crate) fn dim_of_parts(
    mesh: &Mesh,
    len: usize,
    parts: impl DoubleEndedIterator<Item = (Option<SubAxis>, usize)> + Clone,
) -> Modes<AxisStride> {
    let taken: usize = parts.clone().map(|p| p.1).product();
    let rest = Mode::new((len / taken) as i64, AxisStride::local(1));
    let mode = |(sub, extent): (Option<SubAxis>, usize)| match sub {
        Some(sub) => mesh.known_mode(sub),
        None => Mode::new(extent as i64, AxisStride::local(1)),
    };
    [rest].into_iter().chain(parts.rev().map(mode)).collect()
}
