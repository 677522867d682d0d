//! Ops along a dim in which every element depends on all others.

use super::Body::By;
use super::Ops;
use super::pointwise::{logaddexp, sigmoid};
use super::reductions::norm_of;
use crate::Error;
use crate::arrays::{A, cut, fold, lines, numbers, of, zip};
use crate::ask::{Ask, Made};

fn along(r: &Ask<'_>, f: &dyn Fn(&[f64]) -> Vec<f64>) -> Made {
    Ok(vec![lines(r.x(0)?, r.dim("dim")?, f)])
}

pub(crate) fn softmax(v: &[f64]) -> Vec<f64> {
    log_softmax(v).into_iter().map(f64::exp).collect()
}

pub(crate) fn log_softmax(v: &[f64]) -> Vec<f64> {
    let m = super::reductions::max(v);
    let sum = v.iter().map(|x| (x - m).exp()).sum::<f64>().ln();
    v.iter().map(|x| x - m - sum).collect()
}

fn scan(v: &[f64], start: f64, f: fn(f64, f64) -> f64) -> Vec<f64> {
    v.iter()
        .scan(start, |s, &x| {
            *s = f(*s, x);
            Some(*s)
        })
        .collect()
}

fn normalize(r: &Ask<'_>) -> Made {
    let (p, eps) = (r.real("p")?, r.real("eps")?);
    along(r, &|v| {
        let n = norm_of(p, v).max(eps);
        v.iter().map(|x| x / n).collect()
    })
}

/// Returns the indices of a line in sorted order; equal elements keep their order.
pub(crate) fn order(v: &[f64], descending: bool) -> Vec<usize> {
    let mut all: Vec<usize> = (0..v.len()).collect();
    all.sort_by(|&a, &b| if descending { v[b].total_cmp(&v[a]) } else { v[a].total_cmp(&v[b]) });
    all
}

/// The first `k` of each line in its order, as values and as indices.
fn sorted(r: &Ask<'_>, descending: bool, k: usize) -> Result<[A; 2], Error> {
    let (a, dim) = (r.x(0)?, r.dim("dim")?);
    let held = r.held(0, dim)?;
    let first = |v: &[f64]| order(v, descending).into_iter().take(k).collect::<Vec<_>>();
    Ok([
        lines(a, dim, &|v| first(v).into_iter().map(|i| v[i]).collect()),
        lines(a, dim, &|v| first(v).into_iter().map(|i| held[i] as f64).collect()),
    ])
}

/// The distinct values, sorted or in order of appearance.
fn unique(r: &Ask<'_>, in_order: bool) -> Made {
    let mut v = numbers(r.x(0)?);
    if in_order {
        v.sort_by(f64::total_cmp);
    }
    v.dedup();
    Ok(vec![r.fit(of(&[v.len()], v))?])
}

fn clip_by_norm(r: &Ask<'_>) -> Made {
    let (most, eps) = (r.given("max_norm")?, r.real("eps")?);
    let n = norm_of(2.0, &numbers(r.x(0)?));
    r.map(&|x| x * (most / (n + eps)).min(1.0))
}

/// One half times the logistic function of the other.
fn glu(r: &Ask<'_>) -> Made {
    let (a, dim) = (r.x(0)?, r.dim("dim")?);
    let n = a.shape()[dim] / 2;
    let halves = (r.fit(cut(a, dim, 0, n))?, r.fit(cut(a, dim, n, 2 * n))?);
    Ok(vec![r.fit(zip(&halves.0, &halves.1, &|a, b| a * sigmoid(b)))?])
}

fn gumbel_softmax(r: &Ask<'_>) -> Made {
    let tau = r.real("tau")?;
    let noise = r.noise()?;
    let drawn = r.numbered(0, &|e| -(-noise(e).ln()).ln())?;
    let moved = r.fit(zip(r.x(0)?, &drawn, &|a, g| (a + g) / tau))?;
    Ok(vec![lines(&moved, r.dim("dim")?, &softmax)])
}

/// Differences of neighbours, applied `order` times.
fn diff(r: &Ask<'_>) -> Made {
    let times = r.size("order")?;
    along(r, &|v| {
        let once = |v: Vec<f64>| v.windows(2).map(|w| w[1] - w[0]).collect();
        (0..times.min(v.len())).fold(v.to_vec(), |v, _| once(v))
    })
}

fn cumulative_trapezoid(v: &[f64]) -> Vec<f64> {
    scan(&v.windows(2).map(|w| f64::midpoint(w[0], w[1])).collect::<Vec<_>>(), 0.0, |a, b| a + b)
}

fn gradient(v: &[f64]) -> Vec<f64> {
    let near = |i: usize| (i.saturating_sub(1), (i + 1).min(v.len() - 1));
    (0..v.len()).map(|i| (v[near(i).1] - v[near(i).0]) / (near(i).1 - near(i).0) as f64).collect()
}

fn trapezoid(r: &Ask<'_>) -> Made {
    let area = |v: &[f64]| v.windows(2).map(|w| f64::midpoint(w[0], w[1])).sum();
    Ok(vec![fold(r.x(0)?, r.dim("dim")?, &area)])
}

pub(super) const OPS: Ops = &[
    ("softmax", By(|r| along(r, &softmax))),
    ("softmin", By(|r| along(r, &|v| softmax(&v.iter().map(|x| -x).collect::<Vec<_>>())))),
    ("log_softmax", By(|r| along(r, &log_softmax))),
    ("gumbel_softmax", By(gumbel_softmax)),
    ("cumsum", By(|r| along(r, &|v| scan(v, 0.0, |a, b| a + b)))),
    ("cumprod", By(|r| along(r, &|v| scan(v, 1.0, |a, b| a * b)))),
    ("cummax", By(|r| along(r, &|v| scan(v, f64::NEG_INFINITY, f64::max)))),
    ("cummin", By(|r| along(r, &|v| scan(v, f64::INFINITY, f64::min)))),
    ("logcumsumexp", By(|r| along(r, &|v| scan(v, f64::NEG_INFINITY, logaddexp)))),
    ("normalize", By(normalize)),
    ("sort", By(|r| Ok(sorted(r, r.flag("descending")?, usize::MAX)?.to_vec()))),
    ("argsort", By(|r| Ok(sorted(r, r.flag("descending")?, usize::MAX)?[1..].to_vec()))),
    ("topk", By(|r| Ok(sorted(r, r.flag("largest")?, r.size("k")?)?.to_vec()))),
    ("unique", By(|r| unique(r, true))),
    ("unique_consecutive", By(|r| unique(r, false))),
    ("clip_by_norm", By(clip_by_norm)),
    ("glu", By(glu)),
    ("diff", By(diff)),
    ("cumulative_trapezoid", By(|r| along(r, &cumulative_trapezoid))),
    ("gradient", By(|r| along(r, &gradient))),
    ("trapezoid", By(trapezoid)),
];
