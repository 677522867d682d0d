//! Ranges of a dim: every output element is an input element.
//!
//! Let the ranges of a dim, which are split off it or joined to it, begin at multiples of `b` and have
//! lengths that are multiples of `b`. Then the dim is `c` blocks of `b`, a range is `d` of them, and each
//! block may be split equally:
//!
//! ```text
//! chunk of 6 blocks    a(cb)->ab,ab,ab,ab,ab,ab        S(b): the dim as SS(1,6), every chunk as S(1)
//! sizes 4 b, b, b      a(cb)->a(db),ab,ab              queries, keys and values of one product, with c = 6 and d = 4
//! ```
//!
//! so that a rank holds its part of every range. `b` is the greatest common divisor; if it is 1, the dim
//! stays whole.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::strategy::{OperandPlacement, Strategy};
use crate::rules::terms::{ALL, affine, increasing, selecting};
use crate::rules::ties::gcd;
use reshard_sharding::Placement;

/// Returns a selecting rule with the given numbers of inputs and outputs, and their dims.
fn selected(inputs: (usize, Vec<Dim>), outputs: (usize, Vec<Dim>)) -> RuleBuilder {
    RuleBuilder::new().inputs(inputs.0, inputs.1).outputs(outputs.0, outputs.1).passing(selecting(ALL))
}

/// Returns the dims of tensors that differ only in `dim`, and the rule of these inputs and outputs.
///
/// `inputs` and `outputs` are their sizes in that dim, which is split into ranges or joined from them;
/// `starts` are further indices at which ranges begin.
fn in_blocks(
    r: &BoundCall<'_>,
    rank: usize,
    dim: usize,
    starts: &[usize],
    (inputs, outputs): (&[usize], &[usize]),
) -> Result<RuleBuilder, Error> {
    let lengths = || inputs.iter().chain(outputs).copied();
    let block = starts.iter().copied().chain(lengths()).fold(0, gcd);
    let mut counts: Vec<usize> = lengths().map(|n| n / block.max(1)).filter(|&n| n > 1).collect();
    counts.sort_unstable();
    counts.dedup();
    let lists = |of: &dyn Fn(usize) -> Vec<Dim>| {
        let rule = inputs.iter().fold(RuleBuilder::new(), |rule, &n| rule.input(of(n)));
        outputs.iter().fold(rule, |rule, &n| rule.output(of(n))).passing(selecting(ALL))
    };
    let letters = r.letters(rank + counts.len());
    let (true, Ok(letters)) = (block > 1 && lengths().all(|n| n > 0), letters) else {
        let dims = r.dims_whole(rank, &[dim])?;
        return Ok(lists(&|_| dims.clone()));
    };
    let (own, of_counts) = letters.split_at(rank);
    let rule = lists(&|n| {
        let mut dims: Vec<Dim> = own.iter().map(|&c| c.into()).collect();
        if let Ok(at) = counts.binary_search(&(n / block)) {
            dims[dim] = Dim::compound([of_counts[at], own[dim]]);
        }
        dims
    });
    let sized = of_counts.iter().zip(&counts).fold(rule, |rule, (&c, &n)| rule.size(c, n));
    Ok(sized.roles(of_counts.iter().copied(), FactorKind::NeedReplication))
}

/// `a(cb),a(cb)->a(db)`, or `i*,i*->i*`.
pub(super) fn cat(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=usize::MAX)?;
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
    // Ranges are contiguous, so that they begin where whole blocks end.
    let lengths: Vec<usize> = r.inputs.iter().map(|s| s[dim]).collect();
    let rule = in_blocks(r, rank, dim, &[], (&lengths, &[shape[dim]]))?;
    r.op_to(&rule.build()?, &[&shape])
}

/// `ij,ij->i*j`.
pub(super) fn stack(r: &BoundCall<'_>) -> Result<Op, Error> {
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

/// Splits a dim into contiguous ranges of these sizes, from a start.
pub(super) fn cut(r: &BoundCall<'_>, dim: usize, start: usize, sizes: &[usize]) -> Result<Op, Error> {
    let shape = r.inputs[0];
    let rule = in_blocks(r, shape.len(), dim, &[start], (&[shape[dim]], sizes))?;
    out_of(r, dim, sizes, rule)
}

fn out_of(r: &BoundCall<'_>, dim: usize, sizes: &[usize], rule: RuleBuilder) -> Result<Op, Error> {
    let shape = r.inputs[0];
    let shapes: Vec<Vec<usize>> = sizes
        .iter()
        .map(|&n| {
            let mut s = shape.to_vec();
            s[dim] = n;
            s
        })
        .collect();
    let outputs: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    r.op_to(&rule.build()?, &outputs)
}

/// Splits a dim into ranges of one size, the last one smaller, or of given sizes.
pub(super) fn split(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim];
    if r.has("sizes")? {
        let sizes = r.sizes("sizes")?;
        let sum = sizes.iter().try_fold(0usize, |a, &b| a.checked_add(b));
        if sum != Some(n) || sizes.is_empty() {
            return Err(r.error(format!("the sizes do not add up to the {n} of dim {dim}")));
        }
        return cut(r, dim, 0, &sizes);
    }
    if !r.has("size")? {
        return Err(r.error("needs size or sizes: write split(size=2)"));
    }
    let size = r.size("size")?;
    equal(r, dim, size)
}

/// The most outputs that an op has.
const MOST: usize = 65_536;

/// Splits a dim into ranges of one size, the last one smaller.
fn equal(r: &BoundCall<'_>, dim: usize, size: usize) -> Result<Op, Error> {
    let n = r.inputs[0][dim];
    let pieces = n.div_ceil(size).max(1);
    if pieces > MOST {
        return Err(r.error(format!("would have {pieces} outputs, more than the limit of {MOST}")));
    }
    cut(r, dim, 0, &(0..pieces).map(|i| size.min(n - i * size)).collect::<Vec<_>>())
}

/// Splits a dim into at most `chunks` ranges of equal size, the last one smaller.
pub(super) fn chunk(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim];
    equal(r, dim, n.div_ceil(r.size("chunks")?).max(1))
}

/// Splits a dim into its indices.
pub(super) fn unbind(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let dim = r.dim("dim")?;
    let n = shape[dim];
    if n == 0 || n > MOST {
        return Err(r.error(format!("would have {n} outputs")));
    }
    without(r, dim, n, selecting(ALL))
}

/// One index of a dim.
pub(super) fn select(r: &BoundCall<'_>) -> Result<Op, Error> {
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

/// `i*->i`, with `outputs` outputs.
pub(super) fn without(
    r: &BoundCall<'_>,
    dim: usize,
    outputs: usize,
    terms: PartialRule,
) -> Result<Op, Error> {
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
pub(super) fn slice(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim] as i64;
    let clamp = |i: i64| (if i < 0 { i.saturating_add(n) } else { i }).clamp(0, n);
    let start = clamp(r.number("start")?);
    let end = clamp(if r.has("end")? { r.number("end")? } else { n });
    let step = r.size("step")?;
    let taken = ((end - start).max(0) as usize).div_ceil(step);
    if step == 1 {
        return cut(r, dim, start as usize, &[taken]);
    }
    let dims = r.dims_whole(r.inputs[0].len(), &[dim])?;
    out_of(r, dim, &[taken], selected((1, dims.clone()), (1, dims)))
}

/// `length` indices of a dim from `start`.
pub(super) fn narrow(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim];
    let (start, length) = (r.size("start")?, r.size("length")?);
    if start.checked_add(length).is_none_or(|end| end > n) {
        return Err(r.error(format!("{length} indices from {start} are more than dim {dim} has: {n}")));
    }
    cut(r, dim, start, &[length])
}

/// Pads before and after each of the last dims, the last dim first, as in PyTorch.
pub(super) fn pad(r: &BoundCall<'_>) -> Result<Op, Error> {
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
            _ => return Err(r.error(format!("the size of dim {d} would be negative, or would not fit"))),
        };
        if pair != [0, 0] {
            whole.push(d);
        }
    }
    let terms = match (r.word("mode")?.as_str(), r.real("value")?) {
        ("constant", n) if n != 0.0 => vec![affine(ALL), increasing(ALL)],
        // Zeros are partial values of zero for every op.
        _ => vec![selecting(ALL)],
    };
    let dims = r.dims_whole(shape.len(), &whole)?;
    r.op_to(&RuleBuilder::new().input(dims.clone()).output(dims).passings(terms).build()?, &[&out])
}

/// Rotates elements along one dim or several.
///
/// With one index of a single rotated dim per rank, rolling and unrolling permute shards only.
pub(super) fn rolled(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let (dims, shifts) = (r.dims("dims")?, r.numbers("shifts")?);
    let whole = r.dims_whole(shape.len(), &dims)?;
    let rule = selected((1, whole.clone()), (1, whole));
    let ([dim], [shift]) = (&dims[..], &shifts[..]) else { return r.op_to(&rule.build()?, &[shape]) };
    let size = i64::try_from(shape[*dim]).unwrap_or(i64::MAX);
    let by = shift.checked_rem_euclid(size).unwrap_or(0) as usize;
    if by == 0 {
        return r.op_to(&rule.build()?, &[shape]);
    }
    let row = |from: Placement, to: Placement| {
        PartialRule::Row(Strategy {
            inputs: vec![OperandPlacement::Fixed(from)],
            outputs: vec![OperandPlacement::Fixed(to)],
        })
    };
    let (plain, back) = (Placement::Shard(*dim), shape[*dim] - by);
    let rule = rule
        .passing(row(Placement::rolled(*dim, by), plain.clone()))
        .passing(row(plain, Placement::rolled(*dim, back)));
    r.op_to(&rule.build()?, &[shape])
}

/// Permutes elements along some dims.
pub(super) fn whole_dims(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let dims = r.dims_whole(shape.len(), &r.dims("dims")?)?;
    r.op_to(&selected((1, dims.clone()), (1, dims)).build()?, &[shape])
}
