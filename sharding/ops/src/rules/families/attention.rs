//! Scaled dot-product attention, with grouped heads and a mask.

use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// `b(hg)qd,bhkd,bhke->b(hg)qe`: `g` queries share a head of keys and values.
///
/// A mask is added to the logits: `qk`, `hqk` or `bhqk`, each dim as large or 1.
pub(super) fn attention(r: &Request<'_>) -> Result<Op, Error> {
    let n = r.inputs_of(3..=4)?;
    r.flag("causal", false)?;
    let (q, k, v) = (r.inputs[0], r.inputs[1], r.inputs[2]);
    if q.len() != 4 || k.len() != 4 || v.len() != 4 {
        return Err(r.error("needs batch, heads, length and width of queries, keys and values"));
    }
    let (heads, shared) = (q[1], k[1]);
    if shared == 0 || !heads.is_multiple_of(shared) {
        return Err(r.error(format!("{heads} heads of queries do not share {shared} heads of keys")));
    }
    let grouped = if heads == shared { "h" } else { "(hg)" };
    let mask = if n == 4 {
        let m = r.inputs[3];
        let full = [(q[0], "b"), (heads, grouped), (q[2], "q"), (k[2], "k")];
        if m.len() > 4 {
            return Err(r.error(format!("the mask has {} dims, and at most 4 fit", m.len())));
        }
        let dims: String = full[4 - m.len()..]
            .iter()
            .zip(m)
            .map(|(&(n, dim), &has)| if has == 1 && n != 1 { "1" } else { dim })
            .collect();
        format!(",{}", super::reduce::operand(&dims))
    } else {
        String::new()
    };
    let group = if heads == shared { String::new() } else { format!("g: {}, ", heads / shared) };
    r.op(&format!(
        "b{grouped}qd,bhkd,bhke{mask}->b{grouped}qe {{{group}d: replicate, k: replicate, multilinear(2)}}"
    ))
}
