//! Gradients of products over dims and of scans along a dim, read off a pairwise definition.
//!
//! It combines two elements at a time. Nothing is divided, so that zeros have gradients too, at any order.
//!
//! ```text
//! prod        halves of a dim times each other until one element is left: log n products
//! cumprod     y[i] = y[i] * y[i - step] for i >= step and the steps 1, 2, 4, ..
//! ```

use super::Formula;
use super::builder::{GradientBuilder, Variable};
use super::pointwise::Alike;
use super::through::defined;
use crate::Error;

type Combine = fn(&mut GradientBuilder<'_>, Variable, Variable) -> Result<Variable, Error>;

pub(super) fn formulas() -> Vec<Alike> {
    let scans: &[(&[&str], Combine)] = &[
        (&["cumprod"], |b, late, early| b.op("mul", &[late, early])),
        (&["logcumsumexp"], |b, late, early| b.op("logaddexp", &[late, early])),
        // Of equal elements the last one wins.
        (&["cummax"], |b, late, early| {
            let earlier = b.op("gt", &[early, late])?;
            b.op("where", &[earlier, early, late])
        }),
        (&["cummin"], |b, late, early| {
            let earlier = b.op("lt", &[early, late])?;
            b.op("where", &[earlier, early, late])
        }),
    ];
    let scans = scans.iter().map(|&(names, combine)| -> Alike {
        (names, Formula::new(move |b| defined(b, &|b| Ok(vec![scan(b, combine)?]))))
    });
    scans
        .chain([(
            &["prod"][..],
            Formula::new(|b| {
                if b.forward().inputs()[0].contains(&0) {
                    return Ok(vec![Some(b.x(0))]);
                }
                defined(b, &|b| Ok(vec![product(b)?]))
            }),
        )])
        .collect()
}

fn scan(b: &mut GradientBuilder<'_>, combine: Combine) -> Result<Variable, Error> {
    let dim = b.argument(|r| r.dim("dim"))?;
    let mut y = b.x(0);
    let n = b.shape(y)[dim];
    let mut step = 1;
    while step < n {
        let (early, late) = (b.narrowed(y, dim, 0, n - step)?, b.narrowed(y, dim, step, n - step)?);
        let combined = combine(b, late, early)?;
        let first = b.narrowed(y, dim, 0, step)?;
        y = b.along("cat", dim, &[first, combined])?;
        step *= 2;
    }
    Ok(y)
}

fn product(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let mut y = b.x(0);
    for dim in b.argument(|r| r.dims("dims"))? {
        while b.shape(y)[dim] > 1 {
            let n = b.shape(y)[dim];
            let (first, second) = (b.narrowed(y, dim, 0, n / 2)?, b.narrowed(y, dim, n - n / 2, n / 2)?);
            let both = b.op("mul", &[first, second])?;
            y = if n.is_multiple_of(2) {
                both
            } else {
                let middle = b.narrowed(y, dim, n / 2, 1)?;
                b.along("cat", dim, &[both, middle])?
            };
        }
    }
    let shape = b.forward().outputs()[0].clone();
    b.reshaped(y, &shape)
}
