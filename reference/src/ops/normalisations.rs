//! Normalisations: each group minus its mean, divided by its deviation; then a weight and a bias.

use std::collections::BTreeMap;

use super::Body::By;
use super::Ops;
use crate::Error;
use crate::arrays::{A, at, make};
use crate::ask::{Ask, Made};

/// The mean and the inverse deviation.
type Moments = (f64, f64);

fn moments(v: &[f64], eps: f64) -> Moments {
    let n = v.len() as f64;
    let m = v.iter().sum::<f64>() / n;
    (m, 1.0 / (v.iter().map(|x| (x - m).powi(2)).sum::<f64>() / n + eps).sqrt())
}

/// Returns a mean of 0, and the inverse root of the mean square.
fn root(v: &[f64], eps: f64) -> Moments {
    (0.0, 1.0 / (v.iter().map(|x| x * x).sum::<f64>() / v.len() as f64 + eps).sqrt())
}

/// The moments of every group of elements.
fn grouped(
    a: &A,
    group: &dyn Fn(&[usize]) -> Vec<usize>,
    of: &dyn Fn(&[f64]) -> Moments,
) -> BTreeMap<Vec<usize>, Moments> {
    let mut lists: BTreeMap<Vec<usize>, Vec<f64>> = BTreeMap::new();
    for (i, &v) in a.indexed_iter() {
        lists.entry(group(ndarray::Dimension::slice(&i))).or_default().push(v);
    }
    lists.into_iter().map(|(group, v)| (group, of(&v))).collect()
}

fn normalised(a: &A, group: &dyn Fn(&[usize]) -> Vec<usize>, by: &BTreeMap<Vec<usize>, Moments>) -> A {
    make(a.shape(), &|i| {
        let (mean, scale) = by[&group(i)];
        (at(a, i) - mean) * scale
    })
}

/// Multiplies by the second input and adds the third, if given; both cover `count` dims from `from` on.
fn affine(r: &Ask<'_>, y: &A, from: usize, count: usize) -> Made {
    let dims = from..from + count;
    for w in [r.maybe(1), r.maybe(2)].into_iter().flatten() {
        r.ensure(w.shape() == &y.shape()[dims.clone()], "weight and bias must have the normalized shape")?;
    }
    let of = |i: usize, at_: &[usize], none: f64| r.maybe(i).map_or(none, |w| at(w, &at_[dims.clone()]));
    Ok(vec![make(y.shape(), &|i| at(y, i) * of(1, i, 1.0) + of(2, i, 0.0))])
}

/// Returns the number of last dims that are normalised: `last`, or the length of `dims`.
fn last(r: &Ask<'_>) -> Result<usize, Error> {
    if r.call.argument("dims").is_some() { Ok(r.dims("dims")?.len()) } else { Ok(r.count("last")?) }
}

/// Normalises over the last dims; `stats` add the mean and the inverse deviation, of size 1 there.
fn layer(r: &Ask<'_>, last: usize, of: &dyn Fn(&[f64]) -> Moments, stats: &[fn(Moments) -> f64]) -> Made {
    let a = r.x(0)?;
    let kept = a.ndim() - last;
    let group = |i: &[usize]| i[..kept].to_vec();
    let by = grouped(a, &group, of);
    let mut made = affine(r, &normalised(a, &group, &by), kept, last)?;
    let shape = [&a.shape()[..kept], &vec![1; last]].concat();
    // An empty group has no moments.
    made.extend(stats.iter().map(|stat| make(&shape, &|i| by.get(&group(i)).map_or(f64::NAN, |m| stat(*m)))));
    Ok(made)
}

const MEAN: fn(Moments) -> f64 = |m| m.0;
const SCALE: fn(Moments) -> f64 = |m| m.1;

fn layer_norm(r: &Ask<'_>, stats: &[fn(Moments) -> f64]) -> Made {
    let eps = r.real("eps")?;
    layer(r, last(r)?, &|v| moments(v, eps), stats)
}

fn rms_norm(r: &Ask<'_>, last: usize, stats: &[fn(Moments) -> f64]) -> Made {
    let eps = r.maybe_real("eps")?.unwrap_or(r.element.epsilon);
    layer(r, last, &|v| root(v, eps), stats)
}

/// The group of each local channel, by its index in the whole.
fn channel_groups(r: &Ask<'_>) -> Result<Vec<usize>, Error> {
    let each = r.input(0)?[1] / r.size("groups")?.max(1);
    Ok(r.held(0, 1)?.into_iter().map(|c| c / each.max(1)).collect())
}

fn group_norm(r: &Ask<'_>, stats: &[fn(Moments) -> f64]) -> Made {
    let (a, eps, groups) = (r.x(0)?, r.real("eps")?, channel_groups(r)?);
    let group = |i: &[usize]| vec![i[0], groups[i[1]]];
    let by = grouped(a, &group, &|v| moments(v, eps));
    let mut made = affine(r, &normalised(a, &group, &by), 1, 1)?;
    let mut here = groups.clone();
    here.dedup();
    let shape = [a.shape()[0], here.len()];
    let of = |i: &[usize], stat: &fn(Moments) -> f64| {
        by.get(&vec![i[0], here[i[1]]]).map_or(f64::NAN, |m| stat(*m))
    };
    made.extend(stats.iter().map(|stat| make(&shape, &|i| of(i, stat))));
    Ok(made)
}

fn batch_norm(r: &Ask<'_>, stats: &[fn(Moments) -> f64]) -> Made {
    let (a, eps) = (r.x(0)?, r.real("eps")?);
    let group = |i: &[usize]| vec![i[1]];
    let by = grouped(a, &group, &|v| moments(v, eps));
    let mut made = affine(r, &normalised(a, &group, &by), 1, 1)?;
    let of = |c: usize, stat: &fn(Moments) -> f64| by.get(&vec![c]).map_or(f64::NAN, |m| stat(*m));
    made.extend(stats.iter().map(|stat| make(&a.shape()[1..2], &|i| of(i[0], stat))));
    Ok(made)
}

/// Normalises by the given means and variances.
fn evaluated(r: &Ask<'_>) -> Made {
    let (a, mean, var, eps) = (r.x(0)?, r.x(3)?, r.x(4)?, r.real("eps")?);
    r.alike(mean, var)?;
    r.ensure(mean.len() == a.shape()[1], "the statistics must have one element per channel")?;
    let y = make(a.shape(), &|i| (at(a, i) - mean[i[1]]) / (var[i[1]] + eps).sqrt());
    affine(r, &y, 1, 1)
}

fn instance_norm(r: &Ask<'_>) -> Made {
    let (a, eps) = (r.x(0)?, r.real("eps")?);
    let group = |i: &[usize]| i[..2].to_vec();
    affine(r, &normalised(a, &group, &grouped(a, &group, &|v| moments(v, eps))), 1, 1)
}

pub(super) const OPS: Ops = &[
    ("layer_norm", By(|r| layer_norm(r, &[]))),
    ("native_layer_norm", By(|r| layer_norm(r, &[MEAN, SCALE]))),
    ("rms_norm", By(|r| rms_norm(r, last(r)?, &[]))),
    ("fused_rms_norm", By(|r| rms_norm(r, r.count("last")?, &[SCALE]))),
    ("group_norm", By(|r| group_norm(r, &[]))),
    ("native_group_norm", By(|r| group_norm(r, &[MEAN, SCALE]))),
    ("batch_norm", By(|r| if r.flag("training")? { batch_norm(r, &[]) } else { evaluated(r) })),
    ("native_batch_norm", By(|r| batch_norm(r, &[MEAN, SCALE]))),
    ("instance_norm", By(instance_norm)),
];
