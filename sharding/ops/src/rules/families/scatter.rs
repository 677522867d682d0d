//! Parts of tensors written over, filled and reduced into, and elements picked by a mask or by their number.

use super::Family;
use super::index::{added, copied, letters_but_k, looked_up, raised, scatter};
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::terms::{
    ALL, MAX, MIN, PROD, R, affine, increasing, linear, multilinear, row, s, selecting,
};

const REDUCED: &str = "reduce: sum|prod|mean|amax|amin, dim: dim = 0";

families! {
    "slice_scatter" ("dim: dim = 0, start: number = 0, end: number = none, step: number >= 1 = 1") => slice_scatter;
    "select_scatter" ("dim: dim = 0, index: number = 0") => select_scatter;
    "index_fill" ("dim: dim = 0, value: any = none") => index_fill;
    "index_reduce" (REDUCED) => |r| scatter(r, true, reduced(r)?);
    "scatter_reduce" (REDUCED) => |r| scatter(r, false, reduced(r)?);
    "take" ("") => take;
    "put" ("accumulate: flag = false") => put;
    "masked_scatter" ("") => masked_scatter;
    "masked_select" ("count: number >= 0") => masked_select;
    "nonzero" ("count: number >= 0") => nonzero;
}

/// The passings of a tensor that is overwritten: its partial values, and those of the written tensor.
fn written() -> [PartialRule; 3] {
    [selecting(ALL), affine(ALL), increasing(ALL)]
}

/// A dim is written along the range of a slice.
fn slice_scatter(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim] as i64;
    let clamp = |i: i64| (if i < 0 { i.saturating_add(n) } else { i }).clamp(0, n);
    let start = clamp(r.number("start")?);
    let end = clamp(if r.has("end")? { r.number("end")? } else { n });
    let taken = ((end - start).max(0) as usize).div_ceil(r.size("step")?);
    if r.inputs[1].get(dim) != Some(&taken) {
        return Err(r.error(format!("the slice has {taken} along dim {dim}, but the source does not")));
    }
    let dims = r.dims_whole(r.inputs[0].len(), &[dim])?;
    r.op_to(
        &RuleBuilder::new().inputs(2, dims.clone()).output(dims).passings(written()).build()?,
        &[r.inputs[0]],
    )
}

/// Writes one index of a dim.
fn select_scatter(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let (dim, index) = (r.dim("dim")?, r.number("index")?);
    let n = r.inputs[0][dim] as i64;
    if !(-n..n).contains(&index) {
        return Err(r.error(format!("index is {index}, and dim {dim} has {n}")));
    }
    let dims = r.dims_whole(r.inputs[0].len(), &[dim])?;
    let mut left = dims.clone();
    left.remove(dim);
    let rule = RuleBuilder::new().input(dims.clone()).input(left).output(dims);
    r.op_to(&rule.passings(written()).build()?, &[r.inputs[0]])
}

/// `ij,k->ij`: each rank fills the elements that it holds.
fn index_fill(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let letters = letters_but_k(r, r.inputs[0].len())?;
    let value = if r.has("value")? { r.word("value")? } else { String::new() };
    let its_own = match value.as_str() {
        "0" => Some(selecting([0])),
        "1" => Some(row([PROD, R], [PROD])),
        _ => None,
    };
    let rule = RuleBuilder::new().regions([letters[r.dim("dim")?]]).input(letters.clone()).input(['k']);
    let rule = rule.output(letters).role('k', FactorKind::NeedReplication);
    r.op(&rule.passings(its_own).passings([affine([0]), increasing([0])]).build()?)
}

/// The passings of a tensor that is reduced into, including its existing elements.
fn reduced(r: &BoundCall<'_>) -> Result<Vec<PartialRule>, Error> {
    let k = || s('k');
    Ok(match r.word("reduce")?.as_str() {
        "sum" => added(),
        "amax" => raised(),
        "amin" => vec![
            row([MIN, k(), k()], [MIN]),
            row([MIN, R, MIN], [MIN]),
            row([MIN, R, R], [MIN]),
            row([R, R, MIN], [MIN]),
            row([MAX, R, R], [MAX]),
        ],
        "prod" => vec![row([PROD, k(), k()], [PROD]), row([PROD, R, PROD], [PROD]), multilinear([0])],
        _ => vec![linear([0, 2]), affine([0, 2]), increasing([0])],
    })
}

/// `ab,k->k {a: sum, b: sum}`: elements by their row-major index; a rank finds those that it holds.
fn take(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let rank = r.inputs[0].len();
    let letters = r.letters(rank + r.inputs[1].len())?;
    let (x, index) = letters.split_at(rank);
    let rule = RuleBuilder::new()
        .regions(x.iter().copied())
        .input(x.iter().copied())
        .input(index.iter().copied())
        .output(index.iter().copied());
    r.op(&rule.passings(looked_up()).build()?)
}

/// `ab,k,k->ab`: writes elements by their row-major index.
fn put(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let x = letters_but_k(r, r.inputs[0].len())?;
    let rule = RuleBuilder::new().regions(x.clone()).input(x.clone()).inputs(2, ['k']).output(x);
    let rule = rule.role('k', FactorKind::NeedReplication);
    r.op(&rule.passings(if r.flag("accumulate")? { added() } else { copied() }).build()?)
}

/// Writes the elements of the third input, in sequence, where a mask is true.
fn masked_scatter(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let whole = |i: usize| vec![Dim::Whole; r.inputs[i].len()];
    let rule = RuleBuilder::new().input(whole(0)).input(whole(1)).input(whole(2)).output(whole(0));
    r.op_to(&rule.passings(copied()).build()?, &[r.inputs[0]])
}

/// The elements where a mask is true; the caller knows their number.
fn masked_select(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let whole = |i: usize| vec![Dim::Whole; r.inputs[i].len()];
    let rule = RuleBuilder::new().input(whole(0)).input(whole(1)).output([Dim::Whole]);
    r.op_to(&rule.passing(selecting([0])).build()?, &[&[r.size("count")?]])
}

/// The indices of nonzero elements; the caller knows their number.
fn nonzero(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let rule = RuleBuilder::new().input(vec![Dim::Whole; rank]).output([Dim::Whole, Dim::Whole]);
    r.op_to(&rule.passings([]).build()?, &[&[r.size("count")?, rank]])
}
