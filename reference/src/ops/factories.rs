//! Tensors without inputs: each rank makes its own elements.

use std::f64::consts::PI;

use super::Body::By;
use super::Ops;
use crate::arrays::{make, truth};
use crate::ask::{Ask, Made};

/// `I0`, by its series.
fn bessel(x: f64) -> f64 {
    let step = |term: &mut f64, k: i32| {
        *term *= (x / 2.0 / f64::from(k)).powi(2);
        Some(*term)
    };
    1.0 + (1..60).scan(1.0, step).sum::<f64>()
}

/// From `start` to `end` in equal steps.
fn spaced(r: &Ask<'_>, f: &dyn Fn(f64) -> f64) -> Made {
    let (n, start, end) = (r.size("size")?, r.given("start")?, r.given("end")?);
    let step = (end - start) / (n.max(2) - 1) as f64;
    r.counted(&|e| f(start + step * e as f64))
}

/// A window as a function of an element's relative position, from 0 to 1.
fn window(r: &Ask<'_>, f: &dyn Fn(f64) -> f64) -> Made {
    let n = r.size("size")?;
    let length = if r.flag("periodic")? { n } else { n.saturating_sub(1) };
    r.counted(&|e| if n == 1 { 1.0 } else { f(e as f64 / length as f64) })
}

fn kaiser(r: &Ask<'_>) -> Made {
    let beta = r.real("beta")?;
    window(r, &|t| bessel(beta * (1.0 - (2.0 * t - 1.0).powi(2)).max(0.0).sqrt()) / bessel(beta))
}

fn frequencies(r: &Ask<'_>, half: bool) -> Made {
    let (n, d) = (r.size("size")?, r.real("d")?);
    let signed = |e: usize| if half || e < n.div_ceil(2) { e as f64 } else { e as f64 - n as f64 };
    r.counted(&|e| signed(e) / (n as f64 * d))
}

/// Rows and columns of the elements of a triangle, in order.
fn triangle(r: &Ask<'_>, keep: fn(usize, usize) -> bool) -> Made {
    let (rows, columns) = (r.size("rows")?, r.size("columns")?);
    // A row without an element of it is skipped.
    let rows = if columns == 0 {
        0
    } else if keep(1, 0) {
        rows
    } else {
        rows.min(columns)
    };
    let all = (0..rows).flat_map(|i| (0..columns).map(move |j| [i, j]));
    let list: Vec<[usize; 2]> = all.filter(|p| keep(p[0], p[1])).collect();
    let (of, at) = (r.wanted(0, 0)?, r.wanted(0, 1)?);
    Ok(vec![make(&[of.len(), at.len()], &|i| list[at[i[1]]][of[i[0]]] as f64)])
}

pub(super) const OPS: Ops = &[
    ("zeros", By(|r| r.counted(&|_| 0.0))),
    ("ones", By(|r| r.counted(&|_| 1.0))),
    (
        "full",
        By(|r| {
            let value = r.given("fill_value")?;
            r.counted(&|_| value)
        }),
    ),
    (
        "arange",
        By(|r| {
            let (start, step) = (r.real("start")?, r.real("step")?);
            r.counted(&|e| start + step * e as f64)
        }),
    ),
    (
        "eye",
        By(|r| {
            let n = r.size("size")?;
            r.counted(&|e| truth(e / n == e % n))
        }),
    ),
    ("linspace", By(|r| spaced(r, &|x| x))),
    (
        "logspace",
        By(|r| {
            let base = r.real("base")?;
            spaced(r, &|x| base.powf(x))
        }),
    ),
    ("bartlett_window", By(|r| window(r, &|t| 1.0 - (2.0 * t - 1.0).abs()))),
    ("hann_window", By(|r| window(r, &|t| 0.5 - 0.5 * (2.0 * PI * t).cos()))),
    (
        "hamming_window",
        By(|r| {
            let (alpha, beta) = (r.real("alpha")?, r.real("beta")?);
            window(r, &|t| alpha - beta * (2.0 * PI * t).cos())
        }),
    ),
    (
        "blackman_window",
        By(|r| window(r, &|t| 0.42 - 0.5 * (2.0 * PI * t).cos() + 0.08 * (4.0 * PI * t).cos())),
    ),
    ("kaiser_window", By(kaiser)),
    ("fftfreq", By(|r| frequencies(r, false))),
    ("rfftfreq", By(|r| frequencies(r, true))),
    ("tril_indices", By(|r| triangle(r, |i, j| i >= j))),
    ("triu_indices", By(|r| triangle(r, |i, j| i <= j))),
];
