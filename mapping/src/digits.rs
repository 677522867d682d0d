//! Splits a dim of the target or the source: index `q * inner + r` becomes the indices `q` and `r` of two dims.
//!
//! A nest whose axes do not align with `inner` carries from `r` to `q` between its steps. It is split until every
//! axis is either a multiple of `inner`, or stays within one block of `inner` indices.

use crate::error::Error;
use crate::piece::{Axis, Piece, Side};
use crate::value::check_pieces;

/// Appends a nest with two dims for the dim `dim` of one side, the inner one of extent `inner`.
pub fn split(piece: &Piece, side: Side, dim: usize, inner: usize, out: &mut Vec<Piece>) -> Result<(), Error> {
    let mut aligned = Vec::new();
    align(piece, side, dim, inner, out.len(), &mut aligned)?;
    for mut piece in aligned {
        let offsets = piece.offsets_mut(side);
        let offset = offsets[dim];
        offsets[dim] = offset / inner;
        offsets.insert(dim + 1, offset % inner);
        for axis in &mut piece.axes {
            let Some(of_axis) = axis.dim(side) else { continue };
            let step = axis.step(side);
            if of_axis > dim || (of_axis == dim && !step.is_multiple_of(inner)) {
                axis.set(side, of_axis + 1, step);
            } else if of_axis == dim {
                axis.set(side, dim, step / inner);
            }
        }
        piece.normalise();
        out.push(piece);
    }
    Ok(())
}

/// Appends nests whose steps never carry.
fn align(
    piece: &Piece,
    side: Side,
    dim: usize,
    inner: usize,
    others: usize,
    out: &mut Vec<Piece>,
) -> Result<(), Error> {
    let carries = |axis: &Axis| axis.dim(side) == Some(dim) && !axis.step(side).is_multiple_of(inner);
    let start = piece.offsets(side)[dim] % inner;
    let carried = piece.axes.iter().filter(|axis| carries(axis));
    let span: usize = carried.clone().map(|axis| axis.step(side) * (axis.extent - 1)).sum();
    // The axes of the source are not in the order of its steps.
    let largest = carried.map(|axis| axis.step(side)).max();
    let largest = piece.axes.iter().position(|axis| carries(axis) && Some(axis.step(side)) == largest);
    let Some(k) = largest.filter(|_| start + span >= inner) else {
        out.push(piece.clone());
        return check_pieces(out.len() + others);
    };
    let (extent, step) = (piece.axes[k].extent, piece.axes[k].step(side));
    // The span of the smaller axes.
    let below = span - step * (extent - 1);

    // Up to the first carry, so that whole periods begin at a block.
    let head = (inner - start).div_ceil(step);
    if start >= step && head < extent {
        align(&piece.narrowed(k, 0, head), side, dim, inner, others, out)?;
        return align(&piece.narrowed(k, head, extent), side, dim, inner, others, out);
    }
    // After `period` steps the inner index is the same again: those are an axis of the outer dim.
    let period = inner / gcd(step, inner);
    if period < extent {
        let whole = extent - extent % period;
        align(&piece.narrowed(k, 0, whole).with_blocks(k, period), side, dim, inner, others, out)?;
        if whole < extent {
            align(&piece.narrowed(k, whole, extent), side, dim, inner, others, out)?;
        }
        return Ok(());
    }
    // Otherwise the longest runs of steps within one block; a step that itself carries is split further.
    let mut at = 0;
    while at < extent {
        let index = (start + step * at) % inner;
        let length = match (inner - 1).checked_sub(below + index) {
            Some(space) => (space / step + 1).min(extent - at),
            None => 1,
        };
        align(&piece.narrowed(k, at, at + length), side, dim, inner, others, out)?;
        at += length;
    }
    Ok(())
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
