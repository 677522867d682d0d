//! Random numbers: a function of the key of the call and the row-major index in the whole tensor, the same on every rank.

use std::f64::consts::PI;

use super::Body::By;
use super::Ops;
use crate::Error;
use crate::arrays::{A, at, make, truth, with, zip};
use crate::ask::{Ask, Made};

/// Nearly normal, of mean 0.
fn bell(u: f64) -> f64 {
    (u / (1.0 - u)).ln() / 1.7
}

/// The number of random numbers, of `n`, that are less than a probability.
fn count_below(noise: &dyn Fn(usize) -> f64, element: usize, n: usize, p: f64) -> f64 {
    (0..n).filter(|i| noise(element * 16 + i) < p).count() as f64
}

fn like(r: &Ask<'_>, f: &dyn Fn(f64) -> f64) -> Made {
    let noise = r.noise()?;
    Ok(vec![r.numbered(0, &|e| f(noise(e)))?])
}

/// Makes one output from every element and its random number.
fn mixed(r: &Ask<'_>, f: &dyn Fn(f64, f64) -> f64) -> Made {
    Ok(vec![r.fit(zip(r.x(0)?, &r.numbered(0, &r.noise()?)?, f))?])
}

/// Returns the bounds of an integer: from `low` up to, but not including, `high`.
fn range(r: &Ask<'_>, low: &str, high: &str) -> Result<(f64, f64), Error> {
    r.ensure(r.has(high)?, &format!("needs the argument `{high}`"))?;
    Ok((r.number(low)? as f64, r.number(high)? as f64))
}

/// The probability of being dropped.
fn probability(r: &Ask<'_>) -> Result<f64, Error> {
    let p = r.real("p")?;
    r.ensure(p <= 1.0, "p is a probability, of at most 1")?;
    Ok(p)
}

/// Scales an element that is not dropped so that the mean stays.
fn left(x: f64, p: f64, keep: bool) -> f64 {
    if keep { x / (1.0 - p) } else { 0.0 }
}

/// Replaces a dropped element by the minimum of `selu`, and rescales so that mean and deviation stay.
fn left_alpha(x: f64, p: f64, keep: bool) -> f64 {
    let least = -1.758_099_340_847_376_6;
    let by = 1.0 / ((1.0 - p) * (1.0 + p * least * least)).sqrt();
    let moved = -by * least * p;
    if p >= 1.0 { 0.0 } else { by * if keep { x } else { least } + moved }
}

fn by_element(r: &Ask<'_>, f: fn(f64, f64, bool) -> f64) -> Made {
    let p = probability(r)?;
    mixed(r, &|x, u| f(x, p, u >= p))
}

/// Drops all of a channel or none.
fn by_channel(r: &Ask<'_>, f: fn(f64, f64, bool) -> f64) -> Made {
    let (a, p, noise) = (r.x(0)?, probability(r)?, r.noise()?);
    let (b, c, channels) = (r.held(0, 0)?, r.held(0, 1)?, r.places[0].whole[1]);
    Ok(vec![make(a.shape(), &|i| f(at(a, i), p, noise(b[i[0]] * channels + c[i[1]]) >= p))])
}

/// Indices along the last dim, each with a probability proportional to its weight.
fn multinomial(r: &Ask<'_>) -> Made {
    let (a, samples, noise) = (r.x(0)?, r.size("samples")?, r.noise()?);
    let last = a.ndim() - 1;
    let (held, elements) = (r.held(0, last)?, r.numbered(0, &|e| e as f64)?);
    r.ensure(!held.is_empty(), "has no weights")?;
    Ok(vec![make(&with(a.shape(), last, samples), &|i| {
        let weights: Vec<f64> = (0..held.len()).map(|j| at(a, &with(i, last, j))).collect();
        let row = at(&elements, &with(i, last, 0)) as usize / r.places[0].whole[last];
        let below = noise(samples * row + i[last]) * weights.iter().sum::<f64>();
        let sums = weights.iter().scan(0.0, |sum, w| {
            *sum += w;
            Some(*sum)
        });
        held[sums.take_while(|sum| *sum <= below).count().min(held.len() - 1)] as f64
    })])
}

fn poisson(r: &Ask<'_>) -> Made {
    let (elements, noise): (A, _) = (r.numbered(0, &|e| e as f64)?, r.noise()?);
    Ok(vec![r.fit(zip(r.x(0)?, &elements, &|rate, e| count_below(&noise, e as usize, 64, rate / 64.0)))?])
}

fn binomial(r: &Ask<'_>) -> Made {
    let (elements, noise) = (r.numbered(0, &|e| e as f64)?, r.noise()?);
    let both = [r.x(0)?, r.x(1)?, &elements];
    let count = |[n, p, e]: [f64; 3]| count_below(&noise, e as usize, n.clamp(0.0, 1e6) as usize, p);
    Ok(vec![r.fit(crate::arrays::together(both, &count))?])
}

fn normal(r: &Ask<'_>) -> Made {
    let noise = r.noise()?;
    let z = r.numbered(0, &|e| bell(noise(e)))?;
    Ok(vec![r.fit(crate::arrays::together([r.x(0)?, r.x(1)?, &z], &|[mean, std, z]| mean + std * z))?])
}

fn native_dropout(r: &Ask<'_>) -> Made {
    let p = probability(r)?;
    let noise = r.noise()?;
    let mut made = by_element(r, left)?;
    made.push(r.numbered(0, &|e| truth(noise(e) >= p))?);
    Ok(made)
}

pub(super) const OPS: Ops = &[
    ("rand_like", By(|r| like(r, &|u| u))),
    ("randn_like", By(|r| like(r, &bell))),
    (
        "randint_like",
        By(|r| {
            let (low, high) = range(r, "low", "high")?;
            like(r, &|u| (low + (high - low) * u).floor())
        }),
    ),
    (
        "uniform",
        By(|r| {
            let (a, b) = (r.real("from")?, r.real("to")?);
            like(r, &|u| a + (b - a) * u)
        }),
    ),
    (
        "exponential",
        By(|r| {
            let rate = r.real("lambd")?;
            like(r, &|u| -u.ln() / rate)
        }),
    ),
    (
        "geometric",
        By(|r| {
            let p = r.given("p")?;
            like(r, &|u| (u.ln() / (1.0 - p).ln()).ceil().max(1.0))
        }),
    ),
    (
        "log_normal",
        By(|r| {
            let (mean, std) = (r.real("mean")?, r.real("std")?);
            like(r, &|u| (mean + std * bell(u)).exp())
        }),
    ),
    (
        "cauchy",
        By(|r| {
            let (median, sigma) = (r.real("median")?, r.real("sigma")?);
            like(r, &|u| median + sigma * (PI * (u - 0.5)).tan())
        }),
    ),
    (
        "random",
        By(|r| {
            let (from, to) = range(r, "from", "to")?;
            like(r, &|u| (from + (to - from) * u).floor())
        }),
    ),
    ("rand", By(|r| r.counted(&r.noise()?))),
    (
        "randn",
        By(|r| {
            let noise = r.noise()?;
            r.counted(&|e| bell(noise(e)))
        }),
    ),
    (
        "randint",
        By(|r| {
            let ((low, high), noise) = (range(r, "low", "high")?, r.noise()?);
            r.counted(&|e| (low + (high - low) * noise(e)).floor())
        }),
    ),
    (
        "randperm",
        By(|r| {
            let noises: Vec<f64> = (0..r.size("size")?).map(r.noise()?).collect();
            let order = super::along::order(&noises, false);
            r.counted(&|e| order[e] as f64)
        }),
    ),
    ("bernoulli", By(|r| mixed(r, &|p, u| truth(u < p)))),
    ("dropout", By(|r| by_element(r, left))),
    ("native_dropout", By(native_dropout)),
    ("alpha_dropout", By(|r| by_element(r, left_alpha))),
    ("feature_dropout", By(|r| by_channel(r, left))),
    ("feature_alpha_dropout", By(|r| by_channel(r, left_alpha))),
    (
        "rrelu",
        By(|r| {
            let (lower, upper) = (r.real("lower")?, r.real("upper")?);
            mixed(r, &|x, u| if x > 0.0 { x } else { x * (lower + (upper - lower) * u) })
        }),
    ),
    ("poisson", By(poisson)),
    ("binomial", By(binomial)),
    ("normal", By(normal)),
    ("multinomial", By(multinomial)),
];
