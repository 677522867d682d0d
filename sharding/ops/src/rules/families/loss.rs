//! Losses: a pointwise op and a reduction of it.

use crate::Error;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Role;
use crate::rules::op::Op;
use crate::rules::passing::Passing;
use crate::rules::request::Request;
use crate::rules::standard::SCALAR;
use reshard_sharding::ReduceOp;

/// What is done with the losses: the role of a factor that is reduced, or none where it passes.
fn role(r: &Request<'_>) -> Result<Option<Role>, Error> {
    Ok(match r.word("reduction")?.as_str() {
        "mean" => Some(Role::Reduce(ReduceOp::Avg)),
        "sum" => Some(Role::Reduce(ReduceOp::Sum)),
        _ => None,
    })
}

/// `ab,ab-> {a: avg, b: avg}`.
pub(super) fn pointwise(r: &Request<'_>, terms: Vec<Passing>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let letters = r.letters(r.inputs[0].len())?;
    let rule = RuleBuilder::new().inputs(2, letters.iter().copied()).passings(terms);
    let rule = match role(r)? {
        None => rule.output(letters),
        Some(role) => rule.output(SCALAR).roles(letters, role),
    };
    r.op(&rule.build()?)
}

/// `bc,b->`: a class for each row.
pub(super) fn classes(r: &Request<'_>, of_classes: Role, terms: Vec<Passing>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let rule = RuleBuilder::new().input(['b', 'c']).input(['b']).role('c', of_classes).passings(terms);
    let rule = match role(r)? {
        None => rule.output(['b']),
        Some(role) => rule.output(SCALAR).role('b', role),
    };
    r.op(&rule.build()?)
}
