//! Gradients of reductions that select or mix: the greatest, products, norms, sums of exponentials.

use super::Formula;
use super::builder::{GradientBuilder, Variable};
use super::linear::{kept, spread};
use super::pointwise::Alike;
use crate::Error;

type One = fn(&mut GradientBuilder<'_>) -> Result<Variable, Error>;

pub(super) fn formulas() -> Vec<Alike> {
    let list: &[(&[&str], One)] = &[
        (&["amax", "amin"], |b| shared(b, &kept(b)?)),
        (&["max", "min", "kthvalue", "mode"], selected),
        (&["logsumexp"], |b| {
            let sums = spread(b, b.y(0))?;
            let less = b.op("sub", &[b.x(0), sums])?;
            let parts = b.op("exp", &[less])?;
            let dy = spread(b, b.dy(0))?;
            b.op("mul", &[dy, parts])
        }),
        (&["var"], |b| {
            let about = about_mean(b)?;
            let dy = spread(b, b.dy(0))?;
            let product = b.op("mul", &[dy, about])?;
            let freedom = freedom(b)?;
            b.scaled(product, 2.0 / freedom)
        }),
        (&["std"], |b| {
            let about = about_mean(b)?;
            let share = b.op("div", &[b.dy(0), b.y(0)])?;
            let share = without_zeros(b, share, b.y(0))?;
            let share = spread(b, share)?;
            let product = b.op("mul", &[share, about])?;
            let freedom = freedom(b)?;
            b.scaled(product, 1.0 / freedom)
        }),
        (&["norm", "linalg_vector_norm"], norm),
        (&["sort", "topk"], |b| {
            let dim = b.argument(|r| r.dim("dim"))?;
            b.written("scatter_add", dim, b.y(1), b.dy(0))
        }),
        (&["gather", "take_along_dim"], |b| {
            let dim = b.argument(|r| r.dim("dim"))?;
            b.written("scatter_add", dim, b.x(1), b.dy(0))
        }),
    ];
    let median = Formula::new(|b| {
        if b.argument(|r| r.has("dim"))? {
            return super::definitions::median(b);
        }
        // Over all elements, evenly among ties.
        let ones = vec![1; b.forward().inputs()[0].len()];
        shared(b, &ones).map(|dx| vec![Some(dx)])
    });
    let mut all: Vec<Alike> = vec![(&["median", "nanmedian"], median)];
    for &(names, f) in list {
        all.push((
            names,
            Formula::new(move |b| {
                let dx = f(b)?;
                // Indices have no gradient.
                let rest = b.forward().inputs().len() - 1;
                Ok([vec![Some(dx)], vec![None; rest]].concat())
            }),
        ));
    }
    all
}

/// Splits the gradient evenly among the elements that equal the extremum.
fn shared(b: &mut GradientBuilder<'_>, kept: &[usize]) -> Result<Variable, Error> {
    let dims: Vec<usize> = (0..kept.len()).filter(|&d| kept[d] == 1).collect();
    let best = b.reshaped(b.y(0), kept)?;
    let is_best = b.op("eq", &[b.x(0), best])?;
    let ties = b.summed(is_best, &dims, true)?;
    let dy = b.reshaped(b.dy(0), kept)?;
    let share = b.op("div", &[dy, ties])?;
    b.op("mul", &[is_best, share])
}

/// Scatters the gradient to the saved position; over all elements, splits it evenly among ties.
fn selected(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    if !b.argument(|r| r.has("dim"))? {
        let ones = vec![1; b.forward().inputs()[0].len()];
        return shared(b, &ones);
    }
    let dim = b.argument(|r| r.dim("dim"))?;
    let mut kept = b.forward().inputs()[0].clone();
    kept[dim] = 1;
    let (index, dy) = (b.reshaped(b.y(1), &kept)?, b.reshaped(b.dy(0), &kept)?);
    b.written("scatter_add", dim, index, dy)
}

/// `sign(x) |x|^(p-1) / y^(p-1)`, of p = 2 `x / y`; of infinity the greatest elements share it.
fn norm(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let p = b.argument(|r| r.word("p"))?;
    let slope = match p.as_str() {
        "1" => b.op("sign", &[b.x(0)])?,
        "inf" | "-inf" => {
            let (magnitudes, signs) = (b.op("abs", &[b.x(0)])?, b.op("sign", &[b.x(0)])?);
            let kept = kept(b)?;
            let best = b.reshaped(b.y(0), &kept)?;
            let is_best = b.op("eq", &[magnitudes, best])?;
            let dims = b.argument(|r| r.dims("dims"))?;
            let ties = b.summed(is_best, &dims, true)?;
            let share = b.op("div", &[is_best, ties])?;
            b.op("mul", &[share, signs])?
        }
        number => {
            let p: f64 = number.parse().map_err(|_| super::refused(&format!("norm(p={number})")))?;
            if p == 0.0 {
                // The number of nonzero elements is a step function.
                return b.op("zeros_like", &[b.x(0)]);
            }
            let y = spread(b, b.y(0))?;
            let ratio = b.op("div", &[b.x(0), y])?;
            // If all elements are zero, the gradient is zero.
            let ratio = without_zeros(b, ratio, if p < 1.0 { b.x(0) } else { b.y(0) })?;
            if number == "2" {
                ratio
            } else {
                let (magnitude, sign) = (b.op("abs", &[ratio])?, b.op("sign", &[ratio])?);
                let power = b.with_number("pow_scalar", "exponent", p - 1.0, magnitude)?;
                let power = if p < 1.0 { without_zeros(b, power, b.x(0))? } else { power };
                b.op("mul", &[sign, power])?
            }
        }
    };
    let dy = spread(b, b.dy(0))?;
    b.op("mul", &[dy, slope])
}

/// Returns a value, with zeros where `of` is zero; `of` has all dims or only the unreduced ones.
fn without_zeros(b: &mut GradientBuilder<'_>, value: Variable, of: Variable) -> Result<Variable, Error> {
    let mut zero = b.op("logical_not", &[of])?;
    if of == b.y(0) && b.shape(value) != b.shape(of) {
        zero = spread(b, zero)?;
    }
    b.op("masked_fill(value=0)", &[value, zero])
}

/// Returns the divisor of a sum of squares.
fn freedom(b: &GradientBuilder<'_>) -> Result<f64, Error> {
    let numel = |value: Variable| b.shape(value).iter().product::<usize>().max(1);
    let correction = b.argument(|r| r.size("correction"))?;
    Ok((numel(b.x(0)) / numel(b.y(0))) as f64 - correction as f64)
}

/// The input less its mean.
fn about_mean(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let dims = b.argument(|r| r.dims("dims"))?;
    let mean = b.folded("mean", b.x(0), &dims)?;
    b.op("sub", &[b.x(0), mean])
}
