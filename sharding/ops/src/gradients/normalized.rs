//! Gradients of ops that normalise along dims: softmax and norms.
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
use super::builder::{GradientBuilder, Variable};
use super::pointwise::Alike;
use super::through::body;
use crate::Error;

pub(super) fn formulas() -> Vec<Alike> {
    vec![
        (&["softmax"], Formula::new(|b| softmax(b, false))),
        (
            &["gumbel_softmax"],
            Formula::new(|b| {
                let dx = softmax(b, false)?[0];
                let tau = b.real("tau")?;
                dx.map(|dx| b.scaled(dx, 1.0 / tau)).transpose().map(|dx| vec![dx])
            }),
        ),
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
        (
            &["normalize"],
            body(|b| {
                let (dim, p, eps) = b.argument(|r| Ok((r.dim("dim")?, r.real("p")?, r.real("eps")?)))?;
                Ok(format!(
                    "x -> y: n = linalg_vector_norm(x,p={p},dims=[{dim}],keepdim=true); c = clamp_min(n,min={eps}); y = div(x,c)"
                ))
            }),
        ),
        (&["layer_norm"], Formula::new(|b| last(b, true))),
        (&["rms_norm"], Formula::new(|b| last(b, false))),
        (
            &["group_norm"],
            Formula::new(|b| {
                let groups = b.argument(|r| r.size("groups"))?;
                of_channels(b, groups, |d| d > 1)
            }),
        ),
        (&["instance_norm"], Formula::new(|b| of_channels(b, 1, |d| d > 2))),
        (&["batch_norm"], Formula::new(batch_norm)),
    ]
}

/// Reduces along the dim of the call, which stays with size 1.
fn along(b: &mut GradientBuilder<'_>, by: &str, value: Variable) -> Result<Variable, Error> {
    let dim = b.argument(|r| r.dim("dim"))?;
    b.folded(by, value, &[dim])
}

fn softmax(b: &mut GradientBuilder<'_>, negative: bool) -> Result<Vec<Option<Variable>>, Error> {
    let product = b.op("mul", &[b.dy(0), b.y(0)])?;
    let sum = along(b, "sum", product)?;
    let part = b.op("mul", &[b.y(0), sum])?;
    let pair = if negative { [part, product] } else { [product, part] };
    Ok(vec![Some(b.op("sub", &pair)?)])
}

/// The operands of a normalisation: `x` and `dy` in a shape in which means are over `dims`.
struct Normalised {
    x: Variable,
    dy: Variable,
    dims: Vec<usize>,
    eps: Option<f64>,
    centred: bool,
    /// The shape in which a weight and a bias broadcast with `x`.
    weights: Vec<usize>,
}

/// Returns the gradients of the input, and of weight and bias if given.
fn slopes(b: &mut GradientBuilder<'_>, n: &Normalised) -> Result<Vec<Option<Variable>>, Error> {
    let inputs = b.forward().inputs().to_vec();
    let mut about = n.x;
    if n.centred {
        let mean = b.folded("mean", n.x, &n.dims)?;
        about = b.op("sub", &[n.x, mean])?;
    }
    let square = b.op("square", &[about])?;
    let mut variance = b.folded("mean", square, &n.dims)?;
    if let Some(eps) = n.eps {
        variance = b.with_number("add_scalar", "value", eps, variance)?;
    }
    let rate = b.op("rsqrt", &[variance])?;
    let normal = b.op("mul", &[about, rate])?;
    let mut g = n.dy;
    if inputs.len() > 1 {
        let weight = b.reshaped(b.x(1), &n.weights)?;
        g = b.op("mul", &[n.dy, weight])?;
    }
    let products = b.op("mul", &[g, normal])?;
    let mean = b.folded("mean", products, &n.dims)?;
    let part = b.op("mul", &[normal, mean])?;
    let mut rest = b.op("sub", &[g, part])?;
    if n.centred {
        let mean = b.folded("mean", g, &n.dims)?;
        rest = b.op("sub", &[rest, mean])?;
    }
    let dx = b.op("mul", &[rate, rest])?;
    let mut out = vec![Some(b.reshaped(dx, &inputs[0])?)];
    let mut of_weights = vec![];
    if inputs.len() > 1 {
        of_weights.push(b.op("mul", &[n.dy, normal])?);
    }
    if inputs.len() > 2 {
        of_weights.push(n.dy);
    }
    for (value, shape) in of_weights.into_iter().zip(&inputs[1..]) {
        let sum = b.fitted(value, &n.weights)?;
        out.push(Some(b.reshaped(sum, shape)?));
    }
    Ok(out)
}

/// A norm over the last dims.
fn last(b: &mut GradientBuilder<'_>, centred: bool) -> Result<Vec<Option<Variable>>, Error> {
    let shape = b.forward().inputs()[0].clone();
    let given = b.argument(|r| if r.has("dims")? { Ok(r.dims("dims")?.len()) } else { r.size("last") })?;
    // The default is the machine epsilon of the dtype: it is below rounding, and left out.
    let eps = b.argument(|r| if r.has("eps")? { r.real("eps").map(Some) } else { Ok(None) })?;
    let first = shape.len().saturating_sub(given);
    let of = Normalised {
        x: b.x(0),
        dy: b.dy(0),
        dims: (first..shape.len()).collect(),
        eps,
        centred,
        weights: shape[first..].to_vec(),
    };
    slopes(b, &of)
}

/// A norm over these dims of `n g c ..`, that is batch, `g` groups of `c` channels each, and space.
fn of_channels(
    b: &mut GradientBuilder<'_>,
    groups: usize,
    dims: impl Fn(usize) -> bool,
) -> Result<Vec<Option<Variable>>, Error> {
    let shape = b.forward().inputs()[0].clone();
    let channels = shape[1].checked_div(groups).unwrap_or(0);
    let apart = [&[shape[0], groups, channels], &shape[2..]].concat();
    let eps = b.real("eps")?;
    let of = Normalised {
        x: b.reshaped(b.x(0), &apart)?,
        dy: b.reshaped(b.dy(0), &apart)?,
        dims: (0..apart.len()).filter(|&d| dims(d)).collect(),
        eps: Some(eps),
        centred: true,
        weights: [&[1, groups, channels][..], &vec![1; shape.len() - 2]].concat(),
    };
    slopes(b, &of)
}

/// Normalises over the batch, or by the given means and variances.
fn batch_norm(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    if b.argument(|r| r.flag("training"))? {
        return of_channels(b, 1, |d| d != 1 && d != 2);
    }
    let shape = b.forward().inputs()[0].clone();
    let kept = [&[1, shape[1]][..], &vec![1; shape.len() - 2]].concat();
    let eps = b.real("eps")?;
    let mean = b.reshaped(b.x(3), &kept)?;
    let variance = b.reshaped(b.x(4), &kept)?;
    let weight = b.reshaped(b.x(1), &kept)?;
    let more = b.with_number("add_scalar", "value", eps, variance)?;
    let rate = b.op("rsqrt", &[more])?;
    let about = b.op("sub", &[b.x(0), mean])?;
    let normal = b.op("mul", &[about, rate])?;
    let slope = b.op("mul", &[weight, rate])?;
    let dx = b.op("mul", &[b.dy(0), slope])?;
    let by_weight = b.op("mul", &[b.dy(0), normal])?;
    // y = (x - m) r w + b with r = 1 / sqrt(v + eps), whose derivative is -r^3 / 2.
    let less = b.op("neg", &[dx])?;
    let by_rate = b.op("mul", &[dx, normal])?;
    let by_variance = b.op("mul", &[by_rate, rate])?;
    let by_variance = b.scaled(by_variance, -0.5)?;
    let mut out = vec![Some(dx)];
    for value in [by_weight, b.dy(0), less, by_variance] {
        let sum = b.fitted(value, &kept)?;
        out.push(Some(b.reshaped(sum, &[shape[1]])?));
    }
    Ok(out)
}
