//! Ops along a dim in which everything depends on everything.

use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// `ij->ij {j: replicate}`.
pub(super) fn along(r: &Request<'_>, terms: &str) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim", rank, -1)?;
    let letters = r.letters(rank)?;
    let all: String = letters.iter().collect();
    let terms = if terms.is_empty() { "none" } else { terms };
    r.op(&format!("{all}->{all} {{{}: replicate, {terms}}}", letters[dim]))
}
