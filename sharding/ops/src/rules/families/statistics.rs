//! Moments, ranks, counts and differences.

use super::reduce::{NONE, fold, one_dim, over};
use super::{ARG, FOLD, Family, SPREAD};
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::terms::{ALL, MAX, MIN, P, R, linear, row, s};
use reshard_sharding::ReduceOp;

const QUANTILE: &str = "dim: dim = all, keepdim: flag = false, q: real >= 0 = none";
const RANKED: &str = "k: number >= 1, dim: dim = -1, keepdim: flag = false";

families! {
    "var_mean" (SPREAD) => |r| over(r, &r.dims("dims")?, 2, FactorKind::NeedReplication, NONE);
    "std_mean" (SPREAD) => |r| over(r, &r.dims("dims")?, 2, FactorKind::NeedReplication, NONE);
    "aminmax" (ARG) => aminmax;
    // NaNs are left out: partial values do not show which elements are NaN.
    "nansum" (FOLD) => |r| fold(r, FactorKind::Reduction(ReduceOp::Sum), NONE);
    "nanmean" (FOLD) => |r| fold(r, FactorKind::NeedReplication, NONE);
    "nanmedian" (ARG) => |r| one_dim(r, 1);
    "quantile" (QUANTILE) => |r| one_dim(r, 1);
    "nanquantile" (QUANTILE) => |r| one_dim(r, 1);
    "kthvalue" (RANKED) => |r| over(r, &[r.dim("dim")?], 2, FactorKind::NeedReplication, NONE);
    "mode" ("dim: dim = -1, keepdim: flag = false") => |r| over(r, &[r.dim("dim")?], 2, FactorKind::NeedReplication, NONE);
    "histc" ("bins: number >= 1 = 100") => |r| counted(r, false);
    "histogram" ("bins: number >= 1") => |r| counted(r, true);
    // Indices along the last dim, by random numbers.
    "multinomial" ("samples: number >= 1, key: numbers >= 0 = none") => multinomial;
    "unique_consecutive" ("count: number >= 0") => super::normalize::unique;
    // Neighbours along a dim, at equal distances.
    "diff" ("order: number >= 0 = 1, dim: dim = -1") => |r| shortened(r, r.size("order")?);
    "cumulative_trapezoid" ("dim: dim = -1") => |r| shortened(r, 1);
    "gradient" ("dim: dim = -1") => |r| shortened(r, 0);
    "trapezoid" ("dim: dim = -1") => |r| super::pieces::without(r, r.dim("dim")?, 1, linear(ALL));
}

/// The least and the greatest.
fn aminmax(r: &BoundCall<'_>) -> Result<Op, Error> {
    let (dims, letters) = (r.dims("dim")?, r.letters(r.input(0)?.len())?);
    let terms = dims.iter().map(|&d| row([s(letters[d])], [MIN, MAX])).collect();
    over(r, &dims, 2, FactorKind::NeedReplication, Some(terms))
}

/// `ab->c`: the number of elements in each of `bins` bins between known bounds; with `edges`, also the edges.
fn counted(r: &BoundCall<'_>, edges: bool) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let bins = r.size("bins")?;
    let letters: Vec<char> = r.letters(r.inputs[0].len() + 1)?.into_iter().filter(|&c| c != 'c').collect();
    let letters = &letters[..r.inputs[0].len()];
    let rule = RuleBuilder::new().input(letters.iter().copied());
    if edges {
        let edge = bins.checked_add(1).ok_or_else(|| Error::overflow("the edges of bins".to_owned()))?;
        let counts = letters.iter().map(|&c| row([s(c)], [P, R]));
        let rule = rule.outputs(2, [Dim::Whole]).roles(letters.iter().copied(), FactorKind::NeedReplication);
        return r.op_to(&rule.passings(counts).build()?, &[&[bins], &[edge]]);
    }
    r.op(&rule.output(['c']).size('c', bins).regions(['c']).passings([]).build()?)
}

/// `b*->b*`.
fn multinomial(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let Some((_, batch)) = r.inputs[0].split_last() else { return Err(r.error("needs a dim of chances")) };
    let shape = [batch, &[r.size("samples")?]].concat();
    let dims = r.dims_whole(shape.len(), &[shape.len() - 1])?;
    let rule = RuleBuilder::new().regions(dims.clone()).input(dims.clone()).output(dims);
    r.op_to(&rule.passings([]).build()?, &[&shape])
}

/// Shortens a dim by `by`.
fn shortened(r: &BoundCall<'_>, by: usize) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let mut shape = r.inputs[0].to_vec();
    shape[dim] = shape[dim].saturating_sub(by);
    let dims = r.dims_whole(shape.len(), &[dim])?;
    r.op_to(&RuleBuilder::new().input(dims.clone()).output(dims).passing(linear(ALL)).build()?, &[&shape])
}
