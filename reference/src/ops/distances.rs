//! Distances between rows, and rescaled rows.

use super::Body::By;
use super::Ops;
use super::reductions::norm_of;
use crate::Error;
use crate::arrays::{A, at, fold, make, number, numbers, of, over, zip};
use crate::ask::{Ask, Made};

/// Returns the exponent, which is one of the parameter's texts.
fn exponent(r: &Ask<'_>) -> Result<f64, Error> {
    r.word("p")?.parse().map_err(|_| r.wrong("`p` is not a number"))
}

/// The distance of each row of one to each row of the other: `..ik,..jk->..ij`.
fn cdist(r: &Ask<'_>) -> Made {
    let (a, b, p) = (r.x(0)?, r.x(1)?, exponent(r)?);
    let n = a.ndim();
    r.ensure(n >= 2 && b.ndim() == n, "the batches differ")?;
    r.ensure(
        a.shape()[..n - 2] == b.shape()[..n - 2] && a.shape()[n - 1] == b.shape()[n - 1],
        "rows differ",
    )?;
    let shape = [&a.shape()[..n - 1], &b.shape()[n - 2..n - 1]].concat();
    Ok(vec![make(&shape, &|i| {
        let of = |x: &A, row: usize, k: usize| at(x, &[&i[..n - 2], &[row, k]].concat());
        let apart = |k: usize| of(a, i[n - 2], k) - of(b, i[n - 1], k);
        norm_of(p, &(0..a.shape()[n - 1]).map(apart).collect::<Vec<_>>())
    })])
}

fn pairwise_distance(r: &Ask<'_>) -> Made {
    let (p, eps) = (exponent(r)?, r.real("eps")?);
    let d = r.fit(zip(r.x(0)?, r.x(1)?, &|a, b| a - b + eps))?;
    Ok(vec![fold(&d, d.ndim() - 1, &|v| norm_of(p, v))])
}

fn dist(r: &Ask<'_>) -> Made {
    let p = exponent(r)?;
    Ok(vec![number(norm_of(p, &numbers(&r.fit(zip(r.x(0)?, r.x(1)?, &|a, b| a - b))?)))])
}

fn pdist(r: &Ask<'_>) -> Made {
    let (a, p) = (r.x(0)?, exponent(r)?);
    let (n, width) = (a.shape()[0], a.shape()[1]);
    let apart =
        |i: usize, j: usize| norm_of(p, &(0..width).map(|k| a[[i, k]] - a[[j, k]]).collect::<Vec<_>>());
    let list: Vec<f64> =
        (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).map(|(i, j)| apart(i, j)).collect();
    Ok(vec![r.fit(of(&[list.len()], list))?])
}

fn cosine_similarity(r: &Ask<'_>) -> Made {
    let (a, b, dim, eps) = (r.x(0)?, r.x(1)?, r.dim("dim")?, r.real("eps")?);
    let dot = |a: &A, b: &A| r.fit(zip(a, b, &|a, b| a * b)).map(|all| all.sum_axis(ndarray::Axis(dim)));
    let all = [&dot(a, b)?, &dot(a, a)?, &dot(b, b)?];
    Ok(vec![
        r.fit(crate::arrays::together(all, &|[ab, aa, bb]| ab / (aa.sqrt().max(eps) * bb.sqrt().max(eps))))?,
    ])
}

/// The norm of each index of a dim over all other dims.
fn lengths(a: &A, dim: usize, p: f64) -> A {
    let others: Vec<usize> = (0..a.ndim()).filter(|&d| d != dim).collect();
    over(a, &others, true, &|v| norm_of(p, v))
}

fn renorm(r: &Ask<'_>) -> Made {
    let (a, most) = (r.x(0)?, r.given("maxnorm")?);
    let n = lengths(a, r.dim("dim")?, r.real("p")?);
    Ok(vec![r.fit(zip(a, &n, &|v, n| if n > most { v * most / (n + 1e-7) } else { v }))?])
}

fn weight_norm(r: &Ask<'_>) -> Made {
    let (v, g) = (r.x(0)?, r.x(1)?);
    let n = lengths(v, r.dim("dim")?, 2.0);
    r.alike(g, &n)?;
    Ok(vec![r.fit(crate::arrays::together([v, g, &n], &|[v, g, n]| v * g / n))?])
}

pub(super) const OPS: Ops = &[
    ("cdist", By(cdist)),
    ("pairwise_distance", By(pairwise_distance)),
    ("dist", By(dist)),
    ("pdist", By(pdist)),
    ("cosine_similarity", By(cosine_similarity)),
    ("renorm", By(renorm)),
    ("weight_norm", By(weight_norm)),
];
