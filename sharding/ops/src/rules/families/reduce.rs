//! Reductions over given dims.

use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// `abc->ac {b: op}`: each of the dims is combined by `role`, with what is said of terms.
pub(super) fn fold(r: &Request<'_>, role: &str, terms: &str) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    over(r, &r.dims("dims", rank)?, 1, role, terms)
}

/// The norms of which terms can be put together, and those of which they cannot.
pub(super) fn norm(r: &Request<'_>) -> Result<Op, Error> {
    match r.word("p", &["2", "1", "0", "inf"])? {
        "inf" => fold(r, "max", "none"),
        "2" => fold(r, "replicate", "none"),
        _ => fold(r, "sum", "none"),
    }
}

/// One dim, which is needed whole, or all of them where none is given.
pub(super) fn one_dim(r: &Request<'_>, outputs: usize) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dims = match r.number("dim")? {
        Some(dim) => vec![r.resolve("dim", dim, rank)?],
        None => (0..rank).collect(),
    };
    over(r, &dims, outputs, "replicate", "none")
}

fn over(r: &Request<'_>, dims: &[usize], outputs: usize, role: &str, terms: &str) -> Result<Op, Error> {
    let rank = r.inputs[0].len();
    let keep = r.flag("keepdim", false)?;
    let letters = r.letters(rank)?;
    let output: String = (0..rank)
        .filter(|d| keep || !dims.contains(d))
        .map(|d| if dims.contains(&d) { '1' } else { letters[d] })
        .collect();
    let mut items: Vec<String> = dims.iter().map(|&d| format!("{}: {role}", letters[d])).collect();
    if !terms.is_empty() {
        items.push(terms.to_owned());
    }
    let output = vec![operand(&output); outputs].join(",");
    r.op(&format!("{}->{output} {{{}}}", operand(&letters.iter().collect::<String>()), items.join(", ")))
}

/// The dims of an operand, which may be none.
pub(super) fn operand(dims: &str) -> &str {
    if dims.is_empty() { "()" } else { dims }
}
