//! Losses: a pointwise op and a reduction of it.

use super::reduce::operand;
use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// What is done with the losses: the role of a factor that is reduced, or none where it passes.
fn role(r: &Request<'_>) -> Result<Option<&'static str>, Error> {
    Ok(match r.word("reduction", &["mean", "sum", "none"])? {
        "mean" => Some("avg"),
        "sum" => Some("sum"),
        _ => None,
    })
}

/// `ab,ab-> {a: avg, b: avg}`.
pub(super) fn pointwise(r: &Request<'_>, terms: &str) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let letters = r.letters(r.inputs[0].len())?;
    let all: String = letters.iter().collect();
    let all = operand(&all);
    match role(r)? {
        None => r.op(&format!("{all},{all}->{all} {{{terms}}}")),
        Some(role) => {
            let mut items: Vec<String> = letters.iter().map(|c| format!("{c}: {role}")).collect();
            items.push(terms.to_owned());
            r.op(&format!("{all},{all}-> {{{}}}", items.join(", ")))
        }
    }
}

/// `bc,b->`: a class for each row.
pub(super) fn classes(r: &Request<'_>, of_classes: &str, terms: &str) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    match role(r)? {
        None => r.op(&format!("bc,b->b {{c: {of_classes}, {terms}}}")),
        Some(role) => r.op(&format!("bc,b-> {{b: {role}, c: {of_classes}, {terms}}}")),
    }
}
