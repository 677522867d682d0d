//! The gradient of space sampled at points, by its definition: the weighted corners around a point.
//!
//! ```text
//! p = ((g + 1) n - 1) / 2,  f = floor p,  t = p - f                     for each dim of space, of n
//! y = sum over corners c of prod (c ? t : 1 - t) x[f + c]               zeros outside
//! ```
//!
//! Nearest sampling only permutes elements, and its gradient is derived.

use super::Formula;
use super::builder::{GradientBuilder, Variable, number, numbers, whole};
use super::pointwise::Alike;
use super::through::defined;
use crate::Error;
use crate::rules::OpCall;

pub(super) fn formulas() -> Vec<Alike> {
    let formula = Formula::new(|b| match b.argument(|r| r.word("mode"))?.as_str() {
        "nearest" => {
            let moved = super::moved::gradient(b)?;
            moved.ok_or_else(|| super::refused("grid_sample(mode=nearest)"))
        }
        "linear" => defined(b, &|b| Ok(vec![sampled(b)?])),
        mode => Err(super::refused(&format!("grid_sample(mode={mode})"))),
    });
    vec![(&["grid_sample"], formula)]
}

/// The two neighbours along one spatial dim, each with its weight (zero outside) and clamped index.
fn neighbours(
    b: &mut GradientBuilder<'_>,
    last: usize,
    index: usize,
    size: usize,
) -> Result<[(Variable, Variable); 2], Error> {
    let n = size as f64;
    let select = OpCall::new("select").with("dim", whole(last)).with("index", whole(index));
    let at = b.call(&select, &[b.x(1)])?;
    let scaled = b.scaled(at, n / 2.0)?;
    let place = b.with_number("add_scalar", "value", (n - 1.0) / 2.0, scaled)?;
    let first = b.op("floor", &[place])?;
    let right = b.op("sub", &[place, first])?;
    let left = b.with_number("rsub_scalar", "value", 1.0, right)?;
    let second = b.with_number("add_scalar", "value", 1.0, first)?;
    let mut one = |part: Variable, index: Variable| -> Result<(Variable, Variable), Error> {
        let within = OpCall::new("clamp").with("min", number(0.0)).with("max", number(n - 1.0));
        let within = b.call(&within, &[index])?;
        let inside = b.op("eq", &[index, within])?;
        Ok((b.op("mul", &[part, inside])?, within))
    };
    Ok([one(left, first)?, one(right, second)?])
}

fn sampled(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let (shape, points, out) =
        (b.forward().inputs()[0].clone(), b.forward().inputs()[1].clone(), b.forward().outputs()[0].clone());
    let (space, last) = (&shape[2..], points.len() - 1);
    let (all, many) = (space.iter().product::<usize>(), out[2..].iter().product::<usize>());
    let flat = b.reshaped(b.x(0), &[shape[0], shape[1], all])?;
    // The first coordinate of a point is that of the last dim.
    let mut by_dim = Vec::new();
    for (d, &size) in space.iter().enumerate() {
        by_dim.push(neighbours(b, last, space.len() - 1 - d, size)?);
    }
    let mut sum = None;
    for corner in 0..1usize << space.len() {
        let (mut part, mut place): (Option<Variable>, Option<Variable>) = (None, None);
        for (d, both) in by_dim.iter().enumerate() {
            let (own, index) = both[corner >> d & 1];
            part = Some(part.map_or(Ok(own), |part| b.op("mul", &[part, own]))?);
            place = Some(match place {
                None => index,
                Some(place) => {
                    let rows = b.scaled(place, space[d] as f64)?;
                    b.op("add", &[rows, index])?
                }
            });
        }
        let (Some(part), Some(place)) = (part, place) else {
            return Err(super::refused("grid_sample of no space"));
        };
        let place = b.reshaped(place, &[shape[0], 1, many])?;
        let place =
            b.call(&OpCall::new("expand").with("shape", numbers(&[shape[0], shape[1], many])), &[place])?;
        let place = b.op("cast(dtype=i64)", &[place])?;
        let values = b.op("gather(dim=2)", &[flat, place])?;
        let part = b.reshaped(part, &[shape[0], 1, many])?;
        let product = b.op("mul", &[values, part])?;
        sum = Some(sum.map_or(Ok(product), |sum| b.op("add", &[sum, product]))?);
    }
    let sum = sum.ok_or_else(|| super::refused("grid_sample of no space"))?;
    b.reshaped(sum, &out)
}
