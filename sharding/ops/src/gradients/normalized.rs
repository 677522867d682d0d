//! Gradients of what is normalised along dims: softmax and norms.
//!
//! ```text
//! y = softmax x       dx = y dy - y sum(y dy)
//! y = log_softmax x   dx = dy - exp(y) sum(dy)
//! y = (x - m) r w + b, m and 1/r^2 the mean and the variance
//!                     n = (x - m) r,  g = dy w,  dx = r (g - mean(g) - n mean(g n)),  dw = sum(dy n),  db = sum(dy)
//! ```
//!
//! A norm that does not subtract the mean has no `mean(g)`.

use super::Formula;
use super::builder::{GradientBuilder, Variable, numbers};
use super::pointwise::Alike;
use crate::Error;
use crate::rules::{Call, Value};

pub(super) fn formulas() -> Vec<Alike> {
    vec![
        (&["softmax"], Formula::new(|b| softmax(b, false))),
        (&["softmin"], Formula::new(|b| softmax(b, true))),
        (
            &["log_softmax"],
            Formula::new(|b| {
                let sum = along(b, "sum", b.dy(0))?;
                let parts = b.op("exp", &[b.y(0)])?;
                let product = b.op("mul", &[parts, sum])?;
                Ok(vec![Some(b.op("sub", &[b.dy(0), product])?)])
            }),
        ),
        (&["layer_norm"], Formula::new(|b| last(b, true))),
        (&["rms_norm"], Formula::new(|b| last(b, false))),
    ]
}

/// A reduction along the dim of the call, which stays.
fn along(b: &mut GradientBuilder<'_>, by: &str, value: Variable) -> Result<Variable, Error> {
    let dim = b.argument(|r| r.dim("dim"))?;
    folded(b, by, value, &[dim])
}

fn folded(b: &mut GradientBuilder<'_>, by: &str, value: Variable, dims: &[usize]) -> Result<Variable, Error> {
    b.call(&Call::new(by).with("dims", numbers(dims)).with("keepdim", Value::Flag(true)), &[value])
}

fn softmax(b: &mut GradientBuilder<'_>, negative: bool) -> Result<Vec<Option<Variable>>, Error> {
    let product = b.op("mul", &[b.dy(0), b.y(0)])?;
    let sum = along(b, "sum", product)?;
    let part = b.op("mul", &[b.y(0), sum])?;
    let pair = if negative { [part, product] } else { [product, part] };
    Ok(vec![Some(b.op("sub", &pair)?)])
}

/// A norm over the last dims, with a weight and a bias or without.
fn last(b: &mut GradientBuilder<'_>, centred: bool) -> Result<Vec<Option<Variable>>, Error> {
    let shape = b.forward().inputs()[0].clone();
    let given = b.argument(|r| if r.has("dims")? { Ok(r.dims("dims")?.len()) } else { r.size("last") })?;
    // None is the smallest number of the dtype that 1 can be told from: no more than rounding, and left out.
    let eps = b.argument(|r| if r.has("eps")? { r.real("eps").map(Some) } else { Ok(None) })?;
    let (others, dims): (Vec<usize>, Vec<usize>) = (0..shape.len()).partition(|&d| d + given < shape.len());
    let mut about = b.x(0);
    if centred {
        let mean = folded(b, "mean", b.x(0), &dims)?;
        about = b.op("sub", &[b.x(0), mean])?;
    }
    let square = b.op("square", &[about])?;
    let variance = folded(b, "mean", square, &dims)?;
    let more = match eps {
        Some(eps) => b.with_number("add_scalar", "value", eps, variance)?,
        None => variance,
    };
    let rate = b.op("rsqrt", &[more])?;
    let normal = b.op("mul", &[about, rate])?;
    let n = b.forward().inputs().len();
    let g = if n > 1 { b.op("mul", &[b.dy(0), b.x(1)])? } else { b.dy(0) };
    let products = b.op("mul", &[g, normal])?;
    let mean = folded(b, "mean", products, &dims)?;
    let part = b.op("mul", &[normal, mean])?;
    let mut rest = b.op("sub", &[g, part])?;
    if centred {
        let mean = folded(b, "mean", g, &dims)?;
        rest = b.op("sub", &[rest, mean])?;
    }
    let mut out = vec![Some(b.op("mul", &[rate, rest])?)];
    if n > 1 {
        let products = b.op("mul", &[b.dy(0), normal])?;
        out.push(Some(b.summed(products, &others, false)?));
    }
    if n > 2 {
        out.push(Some(b.summed(b.dy(0), &others, false)?));
    }
    Ok(out)
}
