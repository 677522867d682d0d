//! Reductions over given dims.

use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// `abc->ac {b: op}`: each of the dims is combined by `role`, with what is said of terms.
pub(super) fn fold(r: &Request<'_>, role: &str, terms: &str) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dims = r.dims("dims", rank)?;
    let keep = r.flag("keepdim", false)?;
    let letters = r.letters(rank)?;
    let input: String = letters.iter().collect();
    let output: String = (0..rank)
        .filter(|d| keep || !dims.contains(d))
        .map(|d| if dims.contains(&d) { '1' } else { letters[d] })
        .collect();
    let mut items: Vec<String> = dims.iter().map(|&d| format!("{}: {role}", letters[d])).collect();
    if !terms.is_empty() {
        items.push(terms.to_owned());
    }
    r.op(&format!("{}->{output} {{{}}}", if input.is_empty() { "()" } else { &input }, items.join(", ")))
}
