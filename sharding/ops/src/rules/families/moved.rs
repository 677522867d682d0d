//! Permutations of dims and elements, and halves of a dim.

use super::Family;
use super::normalize::along;
use super::pieces::cut;
use super::reshape::{reorder, repeat_by};
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::FactorKind;
use crate::rules::op::Op;
use crate::rules::terms::{ALL, selecting};

families! {
    "movedim" ("source: dims, destination: dims") => movedim;
    "rot90" ("times: number = 1, dims: dims = [0,1]") => rot90;
    "tile" ("times: numbers >= 1") => tile;
    "tensor_split" ("sections: number >= 1 = none, indices: numbers = none, dim: dim = 0") => tensor_split;
    "unfold_dim" ("dim: dim = -1, size: number >= 1, step: number >= 1 = 1") => unfold_dim;
    "glu" ("dim: dim = -1") => glu;
    "softmin" ("dim: dim = -1") => |r| along(r, 1, None);
    "gumbel_softmax" ("dim: dim = -1, tau: real = 1, key: numbers >= 0 = none") => gumbel_softmax;
}

/// Reorders some dims; the others keep their order.
fn movedim(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let (from, to) = (r.dims("source")?, r.dims("destination")?);
    if from.len() != to.len() {
        return Err(r.error(format!("source names {} dims, and destination {}", from.len(), to.len())));
    }
    let rank = r.inputs[0].len();
    let mut others = (0..rank).filter(|d| !from.contains(d));
    let at = |d: usize| to.iter().position(|&t| t == d).map(|i| from[i]).or_else(|| others.next());
    let order: Vec<usize> = (0..rank).filter_map(at).collect();
    reorder(r, &order)
}

/// Quarter rotations: an odd number swaps the two dims and reverses one; a half rotation reverses both.
fn rot90(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let [a, b] = r.dims("dims")?[..] else { return Err(r.error("dims has to name two dims")) };
    let turns = r.number("times")?.rem_euclid(4);
    let mut shape = r.inputs[0].to_vec();
    let turned = match turns {
        0 => vec![],
        1 => vec![b],
        2 => vec![a, b],
        _ => vec![a],
    };
    let input = r.dims_whole(shape.len(), &turned)?;
    let mut output = input.clone();
    if turns % 2 == 1 {
        shape.swap(a, b);
        output.swap(a, b);
    }
    r.op_to(&RuleBuilder::new().input(input).output(output).passing(selecting(ALL)).build()?, &[&shape])
}

/// Like `repeat`, but once along the first dims where fewer numbers are given.
fn tile(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let times = r.sizes("times")?;
    let missing = r.inputs[0].len().saturating_sub(times.len());
    repeat_by(r, &[vec![1; missing], times].concat())
}

/// Splits a dim into `sections` nearly equal ranges, or at given indices.
fn tensor_split(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let n = r.inputs[0][dim];
    if r.has("indices")? {
        let end =
            |i: &i64| (if *i < 0 { i.saturating_add(n as i64) } else { *i }).clamp(0, n as i64) as usize;
        let ends: Vec<usize> = r.numbers("indices")?.iter().map(end).chain([n]).collect();
        let starts = [0].into_iter().chain(ends.iter().copied());
        let sizes: Vec<usize> =
            ends.iter().zip(starts).map(|(&end, start)| end.saturating_sub(start)).collect();
        return cut(r, dim, 0, &sizes);
    }
    if !r.has("sections")? {
        return Err(r.error("needs sections or indices: write tensor_split(sections=2)"));
    }
    let sections = r.size("sections")?;
    if sections > 65_536 {
        return Err(r.error(format!("would have {sections} outputs")));
    }
    cut(r, dim, 0, &(0..sections).map(|i| n / sections + usize::from(i < n % sections)).collect::<Vec<_>>())
}

/// All windows of a dim: `i*->i**`.
fn unfold_dim(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let (dim, size, step) = (r.dim("dim")?, r.size("size")?, r.size("step")?);
    let mut shape = r.inputs[0].to_vec();
    let Some(left) = shape[dim].checked_sub(size) else {
        return Err(r.error(format!("a window of {size} does not fit into the {} of dim {dim}", shape[dim])));
    };
    shape[dim] = left / step + 1;
    shape.push(size);
    let input = r.dims_whole(shape.len() - 1, &[dim])?;
    let output = [input.clone(), vec![crate::rules::factor::Dim::Whole]].concat();
    r.op_to(&RuleBuilder::new().input(input).output(output).passing(selecting(ALL)).build()?, &[&shape])
}

/// One half of a dim, gated by the other.
fn glu(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let mut shape = r.inputs[0].to_vec();
    if !shape[dim].is_multiple_of(2) {
        return Err(r.error(format!("dim {dim} has {}, which has no halves", shape[dim])));
    }
    shape[dim] /= 2;
    let dims = r.dims_whole(shape.len(), &[dim])?;
    r.op_to(&RuleBuilder::new().input(dims.clone()).output(dims).passings([]).build()?, &[&shape])
}

/// `ij->ij {j: replicate}` of random numbers, which depend on the position of a rank's part.
fn gumbel_softmax(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dim = r.dim("dim")?;
    let mut letters = r.letters(r.inputs[0].len())?;
    let rule = RuleBuilder::new().input(letters.iter().copied()).output(letters.iter().copied());
    let rule = rule.role(letters.remove(dim), FactorKind::NeedReplication);
    r.op(&rule.regions(letters).build()?)
}
