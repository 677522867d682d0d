//! Tensors made of nothing: each rank makes what it is to hold. Random numbers are a function of the global index.

use crate::Error;
use crate::rules::builder::RuleBuilder;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// `->ab` of these sizes.
pub(super) fn made(r: &Request<'_>, shape: &[usize]) -> Result<Op, Error> {
    r.inputs_of(0..=0)?;
    let letters = r.letters(shape.len())?;
    let rule = RuleBuilder::new().output(letters.iter().copied());
    let sized = letters.iter().zip(shape).fold(rule, |rule, (&factor, &n)| rule.size(factor, n));
    r.op(&sized.build()?)
}

/// A shape.
pub(super) fn filled(r: &Request<'_>) -> Result<Op, Error> {
    made(r, &r.sizes("shape")?)
}

/// The numbers from 0.
pub(super) fn arange(r: &Request<'_>) -> Result<Op, Error> {
    let n = r.size("size")?;
    made(r, &[n])
}

/// Ones on the diagonal of a square.
pub(super) fn eye(r: &Request<'_>) -> Result<Op, Error> {
    let n = r.size("size")?;
    made(r, &[n, n])
}
