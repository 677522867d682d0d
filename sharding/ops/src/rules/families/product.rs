//! Products of matrices with more to them.

use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// NumPy's product: vectors, matrices, and batches of them broadcast.
pub(super) fn matmul(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    match (r.inputs[0].len(), r.inputs[1].len()) {
        (0, _) | (_, 0) => Err(r.error("has no product with a scalar: use mul")),
        (1, 1) => r.op("k,k->"),
        (1, _) => r.op("k,...kn->...n"),
        (_, 1) => r.op("...mk,k->...m"),
        (2, 2) => r.op("mk,kn->mn"),
        _ => r.op("...mk,...kn->...mn"),
    }
}

/// What is said of a product with something added: each rank adds a term of it where the product is in terms.
const ADDED_FIRST: &str = "k: replicate, (P,S(k),S(k) -> P), linear(0,1), linear(0,2), affine, increasing(0)";

/// `x w^T + b`.
pub(super) fn linear(r: &Request<'_>) -> Result<Op, Error> {
    if r.inputs_of(2..=3)? == 2 {
        return r.op("...k,nk->...n");
    }
    r.op(
        "...k,nk,n->...n {k: replicate, (S(k),S(k),P -> P), linear(0,2), linear(1,2), affine, increasing(2)}",
    )
}

/// Something, broadcast, and a product.
pub(super) fn added(r: &Request<'_>, batch: &str, a: &str, b: &str, out: &str) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let out = format!("{batch}{out}");
    let shape = r.inputs[0];
    if shape.len() > out.len() {
        return Err(r.error(format!(
            "the first input has {} dims, and the product {}",
            shape.len(),
            out.len()
        )));
    }
    let size = |letter: char| {
        [(1, format!("{batch}{a}")), (2, format!("{batch}{b}"))]
            .into_iter()
            .find_map(|(i, dims)| Some(*r.inputs[i].get(dims.find(letter)?)?))
    };
    let added: String = out[out.len() - shape.len()..]
        .chars()
        .zip(shape)
        .map(|(c, &n)| if n == 1 && size(c) != Some(1) { '1' } else { c })
        .collect();
    let added = super::reduce::operand(&added);
    r.op(&format!("{added},{batch}{a},{batch}{b}->{out} {{{ADDED_FIRST}}}"))
}
