//! A sharding as a layout: from the row-major index of the tensor to a mesh coordinate and a local offset.
//!
//! Where every split divides, the rank and local offset of an element are one layout, with one mode per dim,
//! the last dim first, so that its flat list *is* the row-major index. Strides are steps along axes of the
//! mesh, `step@axis`, or plain numbers, which are those of the dense local buffer:
//!
//! ```text
//! dp=2, tp=4, dim of 1024      as a layout                  slowest first
//! S(0),S(0)                    (128,4,2):(1,1@tp,1@dp)      [dp 2][tp 4][local 128]
//! SS(0,4),S(0)                 (128,2,4):(1,1@dp,1@tp)      [tp 4][dp 2][local 128]
//! SS(0,4),R                    (128,2,4):(1,1@dp,128)       [local 4][dp 2][local 128]
//! ```
//!
//! Coalesced by mode the layout is unique, so equal layouts are the same ownership, whatever they were
//! written as; a replicated axis has no mode. Queries are layout algebra: placements are read off by slicing
//! earlier axes away, regions and ownership are the inverse, a view is the flat list split at other dims.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod inverse;

use reshard_layout::Boundary;
use reshard_layout::algebra::split_into;
use reshard_layout::{AxisStride, Layout, Mode, Modes};
use smallvec::SmallVec;

/// Gives the local modes the strides of the dense local buffer.
pub(crate) fn make_dense(modes: &mut [Mode<AxisStride>]) {
    let mut step = 1;
    for m in modes {
        if m.stride.is_local() {
            m.stride = AxisStride::local(step);
            step *= m.extent;
        }
    }
}

/// Returns the layout of a tensor of this shape with these modes of its row-major index.
///
/// The modes are fastest first; the layout is coalesced by dim.
///
/// Requires that the extents multiply to the number of elements, and no dim of 0; local strides need not be
/// right.
///
/// # Errors
///
/// The boundary of a dim that ends inside a mode and does not divide it.
pub(crate) fn of_modes(
    shape: &[usize],
    mut modes: Modes<AxisStride>,
) -> Result<Layout<AxisStride>, Boundary> {
    make_dense(&mut modes);
    let (mut dims, mut ends) = (Modes::new(), SmallVec::<[usize; 8]>::new());
    split_into(&modes, shape.iter().rev().map(|&n| n as i64), &mut dims, |end| ends.push(end))?;
    Ok(nested(&dims, &ends))
}

/// Returns the layout of these modes of dims, coalesced and dense, each dim up to the next end.
pub(crate) fn nested(dims: &[Mode<AxisStride>], ends: &[usize]) -> Layout<AxisStride> {
    Layout::nested(dims, ends).expect("steps below the size of the mesh and of the tensor, which fit")
}

/// Returns the modes of a dim, fastest first; one of extent 1 for a dim of 1.
pub fn dim_of(layout: &Layout<AxisStride>, dims: usize, dim: usize) -> &[Mode<AxisStride>] {
    layout.flat_modes().nth(dims - 1 - dim).unwrap_or_default()
}

/// Returns the number of local indices of some modes.
pub fn local_len(modes: &[Mode<AxisStride>]) -> i64 {
    modes.iter().filter(|m| m.stride.is_local()).map(|m| m.extent).product()
}
