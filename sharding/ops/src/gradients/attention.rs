//! The gradient of attention.
//!
//! ```text
//! s = scale q k^T + mask,  p = softmax s,  y = p v
//! dv = p^T dy,  dp = dy v^T,  ds = p (dp - sum(p dp)),  dq = scale ds k,  dk = scale ds^T q
//! ```
//!
//! Queries that share a head of keys are one more letter, `g`.

use super::Formula;
use super::builder::{GradientBuilder, Variable};
use super::pointwise::Alike;
use crate::Error;
use crate::rules::OpCall;

pub(super) fn formulas() -> Vec<Alike> {
    vec![(&["scaled_dot_product_attention"], Formula::new(gradient))]
}

fn gradient(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let inputs = b.forward().inputs().to_vec();
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    let scale = b.argument(|r| if r.has("scale")? { r.real("scale").map(Some) } else { Ok(None) })?;
    let scale = scale.unwrap_or(1.0 / (q[3].max(1) as f64).sqrt());
    let shared = k[1].max(1);
    let grouped = [q[0], k[1], q[1] / shared, q[2], q[3]];
    let grouped_y = [q[0], k[1], q[1] / shared, q[2], v[3]];
    let queries = b.reshaped(b.x(0), &grouped)?;
    let dy = b.reshaped(b.dy(0), &grouped_y)?;
    let products = rule(b, "bhgqd,bhkd->bhgqk", &[queries, b.x(1)])?;
    let mut logits = b.scaled(products, scale)?;
    let full = [q[0], k[1], q[1] / shared, q[2], k[2]];
    if inputs.len() == 4 {
        let mask = masked(b, &inputs[3], &full)?;
        logits = b.op("add", &[logits, mask])?;
    }
    if b.argument(|r| r.flag("causal"))? {
        // A key after its query has probability 0 and no gradient.
        let ones = b.op("ones_like", &[logits])?;
        let seen = b.op("tril", &[ones])?;
        let none = b.op("logical_not", &[seen])?;
        let call = OpCall::new("masked_fill").with("value", crate::rules::Argument::Word("-inf".to_owned()));
        logits = b.call(&call, &[logits, none])?;
    }
    let chances = b.op("softmax(dim=-1)", &[logits])?;
    let dv = rule(b, "bhgqk,bhgqe->bhke", &[chances, dy])?;
    let dp = rule(b, "bhgqe,bhke->bhgqk", &[dy, b.x(2)])?;
    let products = b.op("mul", &[chances, dp])?;
    let sum = b.summed(products, &[4], true)?;
    let part = b.op("mul", &[chances, sum])?;
    let ds = b.op("sub", &[products, part])?;
    let scaled = b.scaled(ds, scale)?;
    let dq = rule(b, "bhgqk,bhkd->bhgqd", &[scaled, b.x(1)])?;
    let dq = b.reshaped(dq, q)?;
    let dk = rule(b, "bhgqk,bhgqd->bhkd", &[scaled, queries])?;
    let mut out = vec![Some(dq), Some(dk), Some(dv)];
    if let Some(mask) = inputs.get(3) {
        let all = b.reshaped(ds, &[q[0], q[1], q[2], k[2]])?;
        out.push(Some(b.fitted(all, mask)?));
    }
    Ok(out)
}

fn rule(b: &mut GradientBuilder<'_>, rule: &str, operands: &[Variable]) -> Result<Variable, Error> {
    b.call(&OpCall::Rule(rule.parse()?), operands)
}

/// Reshapes the mask to logits whose heads are two dims.
fn masked(b: &mut GradientBuilder<'_>, mask: &[usize], full: &[usize; 5]) -> Result<Variable, Error> {
    let mut shape = mask.to_vec();
    if let Some(heads) = mask.len().checked_sub(3) {
        let both = if mask[heads] == 1 { [1, 1] } else { [full[1], full[2]] };
        shape.splice(heads..=heads, both);
    }
    b.reshaped(b.x(3), &shape)
}
