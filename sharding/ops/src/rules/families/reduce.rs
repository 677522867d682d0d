//! Reductions over given dims.

use crate::Error;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, Role};
use crate::rules::op::Op;
use crate::rules::passing::Passing;
use crate::rules::request::Request;
use reshard_sharding::ReduceOp;

/// How terms pass; `None` where that follows from the equation.
pub(super) type Terms = Option<Vec<Passing>>;

/// Terms that pass in no way.
pub(super) const NONE: Terms = Some(Vec::new());

/// `abc->ac {b: op}`: each of the dims is combined as its role says, with what is said of terms.
pub(super) fn fold(r: &Request<'_>, role: Role, terms: Terms) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    over(r, &r.dims("dims")?, 1, role, terms)
}

/// The norms of which terms can be put together, and those of which they cannot.
pub(super) fn norm(r: &Request<'_>) -> Result<Op, Error> {
    match r.word("p")?.as_str() {
        "inf" => fold(r, Role::Reduce(ReduceOp::Max), NONE),
        "2" => fold(r, Role::Replicate, NONE),
        _ => fold(r, Role::Reduce(ReduceOp::Sum), NONE),
    }
}

/// One dim, which is needed whole, or all of them where none is given.
pub(super) fn one_dim(r: &Request<'_>, outputs: usize) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    over(r, &r.dims("dim")?, outputs, Role::Replicate, NONE)
}

/// These dims, as many outputs, a role for each dim.
pub(super) fn over(
    r: &Request<'_>,
    dims: &[usize],
    outputs: usize,
    role: Role,
    terms: Terms,
) -> Result<Op, Error> {
    let rank = r.inputs[0].len();
    let keep = r.flag("keepdim")?;
    let letters = r.letters(rank)?;
    let output = (0..rank)
        .filter(|d| keep || !dims.contains(d))
        .map(|d| if dims.contains(&d) { Dim::ONE } else { letters[d].into() });
    let mut rule = RuleBuilder::new()
        .outputs(outputs, output)
        .input(letters.iter().copied())
        .roles(dims.iter().map(|&d| letters[d]), role);
    if let Some(terms) = terms {
        rule = rule.passings(terms);
    }
    r.op(&rule.build()?)
}
