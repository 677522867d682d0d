//! Tensors without inputs: each rank makes its own shard.
//!
//! Random numbers are a function of the global index, so that a rank has to know its region, unless all
//! elements are the same.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::op::Op;

/// `->ab` of these sizes; elements depend on their position.
pub(super) fn made(r: &BoundCall<'_>, shape: &[usize]) -> Result<Op, Error> {
    sized(r, shape, RuleBuilder::new().regions(r.letters(shape.len())?))
}

fn sized(r: &BoundCall<'_>, shape: &[usize], rule: RuleBuilder) -> Result<Op, Error> {
    r.inputs_of(0..=0)?;
    let letters = r.letters(shape.len())?;
    let rule = rule.output(letters.iter().copied());
    let sized = letters.iter().zip(shape).fold(rule, |rule, (&factor, &n)| rule.size(factor, n));
    r.op(&sized.build()?)
}

/// A shape filled with one number.
pub(super) fn filled(r: &BoundCall<'_>) -> Result<Op, Error> {
    sized(r, &r.sizes("shape")?, RuleBuilder::new())
}

/// A shape of random numbers.
pub(super) fn drawn(r: &BoundCall<'_>) -> Result<Op, Error> {
    made(r, &r.sizes("shape")?)
}

/// The numbers from 0.
pub(super) fn arange(r: &BoundCall<'_>) -> Result<Op, Error> {
    let n = r.size("size")?;
    made(r, &[n])
}

/// Ones on the diagonal of a square.
pub(super) fn eye(r: &BoundCall<'_>) -> Result<Op, Error> {
    let n = r.size("size")?;
    made(r, &[n, n])
}
