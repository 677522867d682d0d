//! Pieces of tensors: the dim that is cut or joined stays whole, and every element is one that was.

use crate::Error;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim;
use crate::rules::op::Op;
use crate::rules::passing::Passing;
use crate::rules::request::Request;
use crate::rules::terms::{ALL, affine, increasing, selecting};

/// As many inputs and outputs with these dims as said, of which every element is one that was.
fn selected(inputs: (usize, Vec<Dim>), outputs: (usize, Vec<Dim>)) -> RuleBuilder {
    RuleBuilder::new().inputs(inputs.0, inputs.1).outputs(outputs.0, outputs.1).passing(selecting(ALL))
}

/// `i*,i*->i*`.
pub(super) fn cat(r: &Request<'_>) -> Result<Op, Error> {
    let n = r.inputs_of(1..=usize::MAX)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim")?;
    let mut shape = r.inputs[0].to_vec();
    shape[dim] = 0;
    for s in r.inputs {
        let Some(&size) = s.get(dim) else {
            return Err(r.error(format!("an input has {} dims, and the first {rank}", s.len())));
        };
        shape[dim] =
            shape[dim].checked_add(size).ok_or_else(|| Error::overflow(format!("dim {dim} of a cat")))?;
    }
    let dims = r.dims_whole(rank, &[dim])?;
    r.op_to(&selected((n, dims.clone()), (1, dims)).build()?, &[&shape])
}

/// `ij,ij->i*j`.
pub(super) fn stack(r: &Request<'_>) -> Result<Op, Error> {
    let n = r.inputs_of(1..=usize::MAX)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim")?;
    let mut shape = r.inputs[0].to_vec();
    shape.insert(dim, n);
    let input = r.dims_whole(rank, &[])?;
    let mut output = input.clone();
    output.insert(dim, Dim::Whole);
    r.op_to(&selected((n, input), (1, output)).build()?, &[&shape])
}

/// Pieces of these sizes.
pub(super) fn cut(r: &Request<'_>, dim: usize, sizes: &[usize]) -> Result<Op, Error> {
    let shape = r.inputs[0];
    let dims = r.dims_whole(shape.len(), &[dim])?;
    let shapes: Vec<Vec<usize>> = sizes
        .iter()
        .map(|&n| {
            let mut s = shape.to_vec();
            s[dim] = n;
            s
        })
        .collect();
    let outputs: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    r.op_to(&selected((1, dims.clone()), (sizes.len(), dims)).build()?, &outputs)
}

/// Pieces of one size, the last one less, or of given sizes.
pub(super) fn split(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim];
    if r.has("sizes")? {
        let sizes = r.sizes("sizes")?;
        let sum = sizes.iter().try_fold(0usize, |a, &b| a.checked_add(b));
        if sum != Some(n) || sizes.is_empty() {
            return Err(r.error(format!("the sizes do not add up to the {n} of dim {dim}")));
        }
        return cut(r, dim, &sizes);
    }
    if !r.has("size")? {
        return Err(r.error("needs size or sizes: write split(size=2)"));
    }
    let size = r.size("size")?;
    let pieces = n.div_ceil(size).max(1);
    if pieces > 65_536 {
        return Err(r.error(format!("would have {pieces} pieces")));
    }
    cut(r, dim, &(0..pieces).map(|i| size.min(n - i * size)).collect::<Vec<_>>())
}

/// At most so many pieces of equal size, the last one less.
pub(super) fn chunk(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim];
    let chunks = r.size("chunks")?;
    let size = n.div_ceil(chunks).max(1);
    cut(r, dim, &(0..n.div_ceil(size).max(1)).map(|i| size.min(n - i * size)).collect::<Vec<_>>())
}

/// Each index of a dim for itself.
pub(super) fn unbind(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let dim = r.dim("dim")?;
    let n = shape[dim];
    if n == 0 || n > 65_536 {
        return Err(r.error(format!("would have {n} outputs")));
    }
    without(r, dim, n, selecting(ALL))
}

/// One index of a dim.
pub(super) fn select(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let dim = r.dim("dim")?;
    let n = shape[dim] as i64;
    let index = r.number("index")?;
    if !(-n..n).contains(&index) {
        return Err(r.error(format!("index is {index}, and dim {dim} has {n}")));
    }
    without(r, dim, 1, selecting(ALL))
}

/// `i*->i`, so many times.
pub(super) fn without(r: &Request<'_>, dim: usize, outputs: usize, terms: Passing) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let dims = r.dims_whole(shape.len(), &[dim])?;
    let (mut output, mut left) = (dims.clone(), shape.to_vec());
    output.remove(dim);
    left.remove(dim);
    let rule = RuleBuilder::new().input(dims).outputs(outputs, output).passing(terms);
    r.op_to(&rule.build()?, &vec![left.as_slice(); outputs])
}

/// The indices of a dim from `start` up to `end`, each `step`-th.
pub(super) fn slice(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim] as i64;
    let clamp = |i: i64| (if i < 0 { i.saturating_add(n) } else { i }).clamp(0, n);
    let start = clamp(r.number("start")?);
    let end = clamp(if r.has("end")? { r.number("end")? } else { n });
    let step = r.size("step")?;
    cut(r, dim, &[((end - start).max(0) as usize).div_ceil(step)])
}

/// `length` indices of a dim from `start`.
pub(super) fn narrow(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim];
    let (start, length) = (r.size("start")?, r.size("length")?);
    if start.checked_add(length).is_none_or(|end| end > n) {
        return Err(r.error(format!("{length} indices from {start} are more than dim {dim} has: {n}")));
    }
    cut(r, dim, &[length])
}

/// Before and after each of the last dims, the last dim first, as PyTorch counts.
pub(super) fn pad(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let pads = r.numbers("pads")?;
    if pads.len() % 2 != 0 || pads.len() / 2 > shape.len() {
        return Err(r.error(format!("pads has {} numbers, and needs two for each padded dim", pads.len())));
    }
    let mut out = shape.to_vec();
    let mut whole = Vec::new();
    for (i, pair) in pads.chunks(2).enumerate() {
        let d = shape.len() - 1 - i;
        let size = (shape[d] as i64).checked_add(pair[0]).and_then(|n| n.checked_add(pair[1]));
        out[d] = match size {
            Some(n) if n >= 0 => n as usize,
            _ => return Err(r.error(format!("dim {d} would have less than nothing, or more than fits"))),
        };
        if pair != [0, 0] {
            whole.push(d);
        }
    }
    let terms = match (r.word("mode")?.as_str(), r.number("value")?) {
        ("constant", n) if n != 0 => vec![affine(ALL), increasing(ALL)],
        // Zeros are terms of zero for every op.
        _ => vec![selecting(ALL)],
    };
    let dims = r.dims_whole(shape.len(), &whole)?;
    r.op_to(&RuleBuilder::new().input(dims.clone()).output(dims).passings(terms).build()?, &[&out])
}

/// Elements move along some dims.
pub(super) fn whole_dims(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let dims = r.dims_whole(shape.len(), &r.dims("dims")?)?;
    r.op_to(&selected((1, dims.clone()), (1, dims)).build()?, &[shape])
}
