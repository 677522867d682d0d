//! Gradients of linear ops: the map transposed.
//!
//! Views are reverted, repeated elements are summed, and selected elements are written back to their
//! positions.

use super::Formula;
use super::builder::{GradientBuilder, Variable, along, numbers, whole};
use super::pointwise::Alike;
use crate::Error;
use crate::rules::{Argument, OpCall};

type One = fn(&mut GradientBuilder<'_>) -> Result<Variable, Error>;
type Many = fn(&mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error>;

/// The parameters of windows.
const WINDOWS: [&str; 4] = ["kernel", "stride", "padding", "dilation"];

pub(super) fn formulas() -> Vec<Alike> {
    let ones: &[(&[&str], One)] = &[
        (&["reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze"], viewed),
        (&["permute"], permuted),
        (&["t", "matrix_transpose", "transpose", "tril", "triu", "flip", "conj"], |b| b.again(b.dy(0))),
        (&["expand"], |b| {
            let shape = b.forward().inputs()[0].clone();
            b.fitted(b.dy(0), &shape)
        }),
        (&["sum"], |b| spread(b, b.dy(0))),
        (&["mean"], |b| {
            let (all, kept) = (numel(b, b.x(0)), numel(b, b.dy(0)));
            let share = b.scaled(b.dy(0), kept as f64 / all as f64)?;
            spread(b, share)
        }),
        (&["cumsum"], |b| {
            let dim = b.argument(|r| r.dim("dim"))?;
            let flip = OpCall::new("flip").with("dims", numbers(&[dim]));
            let back = b.call(&flip, &[b.dy(0)])?;
            let sums = b.again(back)?;
            b.call(&flip, &[sums])
        }),
        (&["roll"], |b| {
            let shifts: Vec<i64> = b.argument(|r| r.numbers("shifts"))?.iter().map(|n| -n).collect();
            b.again_with("shifts", Argument::Numbers(shifts), b.dy(0))
        }),
        (&["select"], |b| scattered(b, "select_scatter", &["dim", "index"])),
        (&["slice"], |b| scattered(b, "slice_scatter", &["dim", "start", "end", "step"])),
        (&["narrow"], |b| {
            let (dim, start, length) =
                b.argument(|r| Ok((r.dim("dim")?, r.size("start")?, r.size("length")?)))?;
            put_back(b, b.dy(0), dim, start, length)
        }),
        (&["diagonal"], |b| b.op("diag_embed", &[b.dy(0)])),
        (&["diag_embed"], |b| b.op("diagonal", &[b.dy(0)])),
        (&["movedim"], |b| {
            let keys = ["source", "destination"].map(|key| b.given(key));
            let [Some(source), Some(destination)] = keys else { return Err(super::refused("movedim")) };
            b.call(
                &OpCall::new("movedim").with("source", destination).with("destination", source),
                &[b.dy(0)],
            )
        }),
        (&["split_shards"], |b| reassigned(b, "join_shards", &[])),
        (&["join_shards"], |b| {
            let (dim, at) = b.argument(|r| Ok((r.size("dim")?, r.dim("at")?)))?;
            let mut slice = b.forward().inputs()[0].clone();
            let parts = slice.remove(at);
            let room = b.given("counts").map(|_| ("room", slice[dim]));
            let more: Vec<(&str, usize)> = [("parts", parts)].into_iter().chain(room).collect();
            reassigned(b, "split_shards", &more)
        }),
        (&["repeat_interleave"], |b| {
            // The repetitions of an element are a separate dim after its own.
            let (dim, shape) = (b.argument(|r| r.dim("dim"))?, b.forward().inputs()[0].clone());
            let times = b.argument(|r| r.size("times"))?;
            let apart = [&shape[..=dim], &[times], &shape[dim + 1..]].concat();
            let each = b.reshaped(b.dy(0), &apart)?;
            b.summed(each, &[dim + 1], false)
        }),
        (&["repeat", "tile"], repeated),
        (&["pad"], unpadded),
        // The conjugate of a transform is its inverse times the divisor of that inverse.
        (&["fft"], |b| transformed(b, "ifft", |n| n)),
        (&["ifft"], |b| transformed(b, "fft", |n| 1.0 / n)),
        (&["im2col"], |b| {
            let space = b.forward().inputs()[0][2..].to_vec();
            let call = b.with_arguments("col2im", &WINDOWS).with("size", numbers(&space));
            b.call(&call, &[b.dy(0)])
        }),
        (&["col2im"], |b| {
            let call = b.with_arguments("im2col", &WINDOWS);
            b.call(&call, &[b.dy(0)])
        }),
    ];
    let many: &[(&[&str], Many)] = &[
        (&["cat"], |b| {
            let dim = b.argument(|r| r.dim("dim"))?;
            let mut start = 0;
            let sizes: Vec<usize> = b.forward().inputs().iter().map(|s| s[dim]).collect();
            sizes
                .into_iter()
                .map(|size| {
                    let piece = b.narrowed(b.dy(0), dim, start, size)?;
                    start += size;
                    Ok(Some(piece))
                })
                .collect()
        }),
        (&["stack"], |b| {
            let dim = b.argument(|r| r.dim("dim"))?;
            (0..b.forward().inputs().len())
                .map(|i| {
                    let call = along("select", dim).with("index", whole(i));
                    b.call(&call, &[b.dy(0)]).map(Some)
                })
                .collect()
        }),
        (&["select_scatter"], |b| written(b, "select_scatter", "select", &["dim", "index"])),
        (&["slice_scatter"], |b| written(b, "slice_scatter", "slice", &["dim", "start", "end", "step"])),
        (&["split", "chunk", "tensor_split"], |b| {
            let dim = b.argument(|r| r.dim("dim"))?;
            reassembled(b, "cat", dim)
        }),
        (&["unbind"], |b| {
            let dim = b.argument(|r| r.dim("dim"))?;
            reassembled(b, "stack", dim)
        }),
    ];
    let ones =
        ones.iter().map(|&(names, f)| -> Alike { (names, Formula::new(move |b| Ok(vec![Some(f(b)?)]))) });
    let many = many.iter().map(|&(names, f)| -> Alike { (names, Formula::new(f)) });
    ones.chain(many).collect()
}

/// Converts between shards and slices, with the same arguments plus `more`.
fn reassigned(b: &mut GradientBuilder<'_>, name: &str, more: &[(&str, usize)]) -> Result<Variable, Error> {
    let kept = ["dim", "at", "cut", "tiles", "counts"].map(|key| (key, b.given(key)));
    let call = kept.into_iter().filter_map(|(key, given)| Some((key, given?)));
    let call = call.fold(OpCall::new(name), |call, (key, given)| call.with(key, given));
    let call = more.iter().fold(call, |call, &(key, n)| call.with(key, whole(n)));
    b.call(&call, &[b.dy(0)])
}

fn numel(b: &GradientBuilder<'_>, value: Variable) -> usize {
    b.shape(value).iter().product()
}

/// The gradient in the shape of the input.
fn viewed(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let shape = b.forward().inputs()[0].clone();
    b.reshaped(b.dy(0), &shape)
}

fn permuted(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let dims = b.argument(|r| r.dims("dims"))?;
    let mut back = vec![0; dims.len()];
    for (to, &from) in dims.iter().enumerate() {
        back[from] = to;
    }
    b.permuted(b.dy(0), &back)
}

/// Repeats a value along the input dims that it lacks.
pub(super) fn spread(b: &mut GradientBuilder<'_>, value: Variable) -> Result<Variable, Error> {
    let shape = b.forward().inputs()[0].clone();
    let kept = kept(b)?;
    let value = b.reshaped(value, &kept)?;
    b.expanded(value, &shape)
}

/// The shape of the output of a reduction that keeps its dims.
pub(super) fn kept(b: &GradientBuilder<'_>) -> Result<Vec<usize>, Error> {
    let mut shape = b.forward().inputs()[0].clone();
    b.argument(|r| r.dims("dims"))?.into_iter().for_each(|d| shape[d] = 1);
    Ok(shape)
}

/// Applies the inverse transform, scaled by a function of the number of transformed elements.
fn transformed(b: &mut GradientBuilder<'_>, by: &str, scale: fn(f64) -> f64) -> Result<Variable, Error> {
    let dims = b.argument(|r| r.dims("dims"))?;
    let n: usize = dims.iter().map(|&d| b.forward().inputs()[0][d]).product();
    let dx = b.call(&OpCall::new(by).with("dims", numbers(&dims)), &[b.dy(0)])?;
    b.scaled(dx, scale(n.max(1) as f64))
}

/// Zeros in the input's shape, with a value in a range of a dim.
fn put_back(
    b: &mut GradientBuilder<'_>,
    value: Variable,
    dim: usize,
    start: usize,
    length: usize,
) -> Result<Variable, Error> {
    let zeros = b.op("zeros_like", &[b.x(0)])?;
    let call = along("slice_scatter", dim).with("start", whole(start)).with("end", whole(start + length));
    b.call(&call, &[zeros, value])
}

/// Scatters the gradient to the source positions of its elements, by the same arguments.
fn scattered(b: &mut GradientBuilder<'_>, into: &str, keys: &[&str]) -> Result<Variable, Error> {
    let zeros = b.op("zeros_like", &[b.x(0)])?;
    let call = b.with_arguments(into, keys);
    b.call(&call, &[zeros, b.dy(0)])
}

/// The gradients of an overwrite.
///
/// The overwritten tensor gets zeros at the written positions; the written tensor gets the gradients read
/// there.
fn written(
    b: &mut GradientBuilder<'_>,
    write: &str,
    read: &str,
    keys: &[&str],
) -> Result<Vec<Option<Variable>>, Error> {
    let zeros = b.op("zeros_like", &[b.x(1)])?;
    let (write, read) = (b.with_arguments(write, keys), b.with_arguments(read, keys));
    let rest = b.call(&write, &[b.dy(0), zeros])?;
    let own = b.call(&read, &[b.dy(0)])?;
    Ok(vec![Some(rest), Some(own)])
}

/// Joins the gradients of all outputs, in sequence along a dim.
fn reassembled(b: &mut GradientBuilder<'_>, by: &str, dim: usize) -> Result<Vec<Option<Variable>>, Error> {
    let pieces: Vec<Variable> = (0..b.forward().outputs().len()).map(|o| b.dy(o)).collect();
    b.along(by, dim, &pieces).map(|dx| vec![Some(dx)])
}

/// Makes each repetition a separate dim, and sums over it.
fn repeated(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let (shape, out) = (b.forward().inputs()[0].clone(), b.forward().outputs()[0].clone());
    let more = out.len() - shape.len();
    let (mut split, mut dims) = (Vec::new(), Vec::new());
    for (d, &size) in out.iter().enumerate() {
        let own = if d < more { 1 } else { shape[d - more] };
        dims.push(split.len());
        split.extend([size.checked_div(own).unwrap_or(1), own]);
    }
    let apart = b.reshaped(b.dy(0), &split)?;
    let sum = b.summed(apart, &dims, false)?;
    b.reshaped(sum, &shape)
}

/// Removes the padding; cropped elements get zeros.
fn unpadded(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let (mode, pads) = b.argument(|r| Ok((r.word("mode")?, r.numbers("pads")?)))?;
    if mode != "constant" {
        let moved = super::moved::gradient(b)?.and_then(|mut dx| dx.swap_remove(0));
        return moved.ok_or_else(|| super::refused(&format!("pad(mode={mode})")));
    }
    b.call(&OpCall::new("pad").with("pads", Argument::Numbers(pads.iter().map(|n| -n).collect())), &[b.dy(0)])
}
