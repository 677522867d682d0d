//! Splits a dim into an outer and an inner one: index `q * inner + r` becomes the indices `q` and `r`.
//!
//! A nest whose axes do not align with `inner` carries from `r` to `q` between its steps. It is split until every
//! axis is either a multiple of `inner`, or stays within one block of `inner` indices.

use crate::error::Error;
use crate::piece::{Axis, Piece};
use crate::value::check_pieces;

/// Appends a nest whose target has two dims for `dim`, the inner one of extent `inner`.
pub(crate) fn split(piece: &Piece, dim: usize, inner: usize, out: &mut Vec<Piece>) -> Result<(), Error> {
    let mut aligned = Vec::new();
    align(piece, dim, inner, out.len(), &mut aligned)?;
    for mut piece in aligned {
        let offset = piece.target_offset[dim];
        piece.target_offset[dim] = offset / inner;
        piece.target_offset.insert(dim + 1, offset % inner);
        for axis in &mut piece.axes {
            if axis.target_dim > dim || (axis.target_dim == dim && !axis.target_step.is_multiple_of(inner)) {
                axis.target_dim += 1;
            } else if axis.target_dim == dim {
                axis.target_step /= inner;
            }
        }
        piece.normalise();
        out.push(piece);
    }
    Ok(())
}

/// Appends nests whose steps never carry.
fn align(piece: &Piece, dim: usize, inner: usize, others: usize, out: &mut Vec<Piece>) -> Result<(), Error> {
    let carries = |axis: &Axis| axis.target_dim == dim && !axis.target_step.is_multiple_of(inner);
    let start = piece.target_offset[dim] % inner;
    let carried = piece.axes.iter().filter(|axis| carries(axis));
    let span: usize = carried.map(|axis| axis.target_step * (axis.extent - 1)).sum();
    let largest = piece.axes.iter().position(carries);
    let Some(k) = largest.filter(|_| start + span >= inner) else {
        out.push(piece.clone());
        return check_pieces(out.len() + others);
    };
    let Axis { extent, target_step: step, .. } = piece.axes[k];
    // The span of the smaller axes.
    let below = span - step * (extent - 1);

    // Up to the first carry, so that whole periods begin at a block.
    let head = (inner - start).div_ceil(step);
    if start >= step && head < extent {
        align(&piece.narrowed(k, 0, head), dim, inner, others, out)?;
        return align(&piece.narrowed(k, head, extent), dim, inner, others, out);
    }
    // After `period` steps the inner index is the same again: those are an axis of the outer dim.
    let period = inner / gcd(step, inner);
    if period < extent {
        let whole = extent - extent % period;
        align(&piece.narrowed(k, 0, whole).with_blocks(k, period), dim, inner, others, out)?;
        if whole < extent {
            align(&piece.narrowed(k, whole, extent), dim, inner, others, out)?;
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
        align(&piece.narrowed(k, at, at + length), dim, inner, others, out)?;
        at += length;
    }
    Ok(())
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
