//! Reductions over given dims.

use super::Body::By;
use super::Ops;
use super::along::order;
use crate::Error;
use crate::arrays::{A, groups, make, over, place, truth};
use crate::ask::{Ask, Made};

pub(crate) fn sum(v: &[f64]) -> f64 {
    v.iter().sum()
}

pub(crate) fn mean(v: &[f64]) -> f64 {
    sum(v) / v.len() as f64
}

pub(crate) fn max(v: &[f64]) -> f64 {
    v.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

pub(crate) fn min(v: &[f64]) -> f64 {
    v.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The sum of squares about the mean, divided by the number of elements minus `correction`.
pub(crate) fn var(v: &[f64], correction: f64) -> f64 {
    let m = mean(v);
    v.iter().map(|x| (x - m).powi(2)).sum::<f64>() / (v.len() as f64 - correction).max(0.0)
}

/// Returns the median, the lower of two.
pub(crate) fn middle(v: &[f64]) -> f64 {
    let mut v = v.to_vec();
    v.sort_by(f64::total_cmp);
    v.get(v.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the elements that are not NaN.
fn present(v: &[f64]) -> Vec<f64> {
    v.iter().copied().filter(|x| !x.is_nan()).collect()
}

fn logsumexp(v: &[f64]) -> f64 {
    let m = max(v);
    if m.is_infinite() { m } else { m + v.iter().map(|x| (x - m).exp()).sum::<f64>().ln() }
}

/// `(sum |x|^p)^(1/p)`, or its limit.
pub(crate) fn norm_of(p: f64, v: &[f64]) -> f64 {
    let v = v.iter().copied().map(f64::abs);
    match p {
        f64::INFINITY => v.fold(0.0, f64::max),
        f64::NEG_INFINITY => v.fold(f64::INFINITY, f64::min),
        0.0 => v.filter(|x| *x != 0.0).count() as f64,
        1.0 => v.sum(),
        2.0 => v.map(|x| x * x).sum::<f64>().sqrt(),
        p => v.map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p),
    }
}

fn norm(r: &Ask<'_>) -> Made {
    let p = r.word("p")?.parse::<f64>().map_err(|_| r.wrong("`p` is not a number"))?;
    folded(r, &|v| norm_of(p, v))
}

/// The quantile of a list, interpolated between its two neighbours in order.
fn quantile(v: &[f64], q: f64) -> f64 {
    let mut v = v.to_vec();
    v.sort_by(f64::total_cmp);
    let at = q * (v.len() as f64 - 1.0);
    let get = |i: f64| v.get(i as usize).copied().unwrap_or(f64::NAN);
    let between = if at.fract() > 0.0 { (get(at.ceil()) - get(at.floor())) * at.fract() } else { 0.0 };
    get(at.floor()) + between
}

fn quantiles(r: &Ask<'_>, without_nan: bool) -> Made {
    let q = r.given("q")?;
    r.ensure(q <= 1.0, "q is at most 1")?;
    one(r, &|v| if without_nan { quantile(&present(v), q) } else { quantile(v, q) })
}

/// Reduces over the given dims.
fn folded(r: &Ask<'_>, f: &dyn Fn(&[f64]) -> f64) -> Made {
    Ok(vec![over(r.x(0)?, &r.dims("dims")?, r.flag("keepdim")?, f)])
}

/// Reduces over one dim, or all.
fn one(r: &Ask<'_>, f: &dyn Fn(&[f64]) -> f64) -> Made {
    Ok(vec![over(r.x(0)?, &r.dims("dim")?, r.flag("keepdim")?, f)])
}

/// Reduces over one dim with the index in it of every element; or over all, with the row-major index.
pub(crate) fn placed(r: &Ask<'_>, f: &dyn Fn(&[f64], &[f64]) -> f64) -> Result<A, Error> {
    let (a, dims, keep) = (r.x(0)?, r.dims("dim")?, r.flag("keepdim")?);
    let indices = if r.has("dim")? {
        let held = r.held(0, dims[0])?;
        make(a.shape(), &|i| held[i[dims[0]]] as f64)
    } else {
        r.numbered(0, &|e| e as f64)?
    };
    let ((shape, values), (_, indices)) = (groups(a, &dims, keep), groups(&indices, &dims, keep));
    Ok(make(&shape, &|i| {
        let row = place(&shape, i.iter().copied());
        f(&values[row], &indices[row])
    }))
}

/// The index of the first greatest, or least, element; -1 for an empty list.
fn best(v: &[f64], of: &[f64], sign: f64) -> f64 {
    let better = |b: Option<usize>, i: usize| match b {
        Some(b) if sign * v[i] <= sign * v[b] || v[b].is_nan() => Some(b),
        Some(_) | None => Some(i),
    };
    (0..v.len()).fold(None, better).map_or(-1.0, |i| of[i])
}

fn greatest(r: &Ask<'_>, sign: f64) -> Made {
    let values = one(r, &|v| if sign > 0.0 { max(v) } else { min(v) })?;
    Ok([values, vec![placed(r, &|v, of| best(v, of, sign))?]].concat())
}

/// Moments: the mean square about the mean, or its root, and the mean.
fn moments(r: &Ask<'_>, root: bool, and_mean: bool) -> Made {
    let correction = r.number("correction")? as f64;
    let mut made = folded(r, &|v| if root { var(v, correction).sqrt() } else { var(v, correction) })?;
    if and_mean {
        made.extend(folded(r, &mean)?);
    }
    Ok(made)
}

/// The `k`-th least value and its index.
fn kth(r: &Ask<'_>) -> Made {
    let k = r.size("k")?;
    let kth = |v: &[f64]| order(v, false).get(k.wrapping_sub(1)).copied();
    let n = r.inputs[0].shape().get(r.dim("dim")?).copied().unwrap_or(0);
    r.ensure(k <= n, "`k` exceeds the size of the dim")?;
    Ok(vec![
        placed(r, &|v, _| kth(v).map_or(f64::NAN, |i| v[i]))?,
        placed(r, &|v, of| kth(v).map_or(-1.0, |i| of[i]))?,
    ])
}

/// The most frequent value, the least of several, and the index of its last occurrence.
fn mode(r: &Ask<'_>) -> Made {
    let most = |v: &[f64]| {
        let count = |x: f64| v.iter().filter(|&&y| y == x).count();
        let better = |x: f64, b: f64| b.is_nan() || count(x) > count(b) || (count(x) == count(b) && x < b);
        v.iter().copied().fold(f64::NAN, |b, x| if better(x, b) { x } else { b })
    };
    Ok(vec![
        placed(r, &|v, _| most(v))?,
        placed(r, &|v, of| v.iter().rposition(|&x| x == most(v)).map_or(-1.0, |i| of[i]))?,
    ])
}

pub(super) const OPS: Ops = &[
    ("sum", By(|r| folded(r, &sum))),
    ("mean", By(|r| folded(r, &mean))),
    ("prod", By(|r| folded(r, &|v| v.iter().product()))),
    ("amax", By(|r| folded(r, &max))),
    ("amin", By(|r| folded(r, &min))),
    ("any", By(|r| folded(r, &|v| truth(v.iter().any(|x| *x != 0.0))))),
    ("all", By(|r| folded(r, &|v| truth(v.iter().all(|x| *x != 0.0))))),
    ("count_nonzero", By(|r| folded(r, &|v| v.iter().filter(|x| **x != 0.0).count() as f64))),
    ("logsumexp", By(|r| folded(r, &logsumexp))),
    ("norm", By(norm)),
    ("linalg_vector_norm", By(norm)),
    ("var", By(|r| moments(r, false, false))),
    ("std", By(|r| moments(r, true, false))),
    ("var_mean", By(|r| moments(r, false, true))),
    ("std_mean", By(|r| moments(r, true, true))),
    ("nansum", By(|r| folded(r, &|v| sum(&present(v))))),
    ("nanmean", By(|r| folded(r, &|v| mean(&present(v))))),
    ("argmax", By(|r| Ok(vec![placed(r, &|v, of| best(v, of, 1.0))?]))),
    ("argmin", By(|r| Ok(vec![placed(r, &|v, of| best(v, of, -1.0))?]))),
    ("max", By(|r| greatest(r, 1.0))),
    ("min", By(|r| greatest(r, -1.0))),
    ("aminmax", By(|r| Ok([one(r, &min)?, one(r, &max)?].concat()))),
    ("median", By(|r| one(r, &middle))),
    ("nanmedian", By(|r| one(r, &|v| middle(&present(v))))),
    ("quantile", By(|r| quantiles(r, false))),
    ("nanquantile", By(|r| quantiles(r, true))),
    ("kthvalue", By(kth)),
    ("mode", By(mode)),
];
