//! Losses of each element, row or sequence, and their mean or sum.

use std::f64::consts::PI;

use super::Body::By;
use super::Ops;
use super::along::log_softmax;
use super::reductions::norm_of;
use crate::Error;
use crate::arrays::{A, at, fold, lines, make, number, together, zip};
use crate::ask::{Ask, Made};

/// Returns the mean of losses, their sum, or all of them.
fn reduced(r: &Ask<'_>, losses: A) -> Made {
    let n = losses.len() as f64;
    weighted(r, losses, n)
}

/// Reduces losses, of which `count` elements count for a mean.
fn weighted(r: &Ask<'_>, losses: A, count: f64) -> Made {
    Ok(vec![match r.word("reduction")?.as_str() {
        "mean" => number(losses.sum() / count),
        "sum" => number(losses.sum()),
        _ => losses,
    }])
}

/// The losses of pairs of elements of two tensors of one shape.
fn pairs(r: &Ask<'_>, f: &dyn Fn(f64, f64) -> f64) -> Made {
    r.alike(r.x(0)?, r.x(1)?)?;
    reduced(r, r.fit(zip(r.x(0)?, r.x(1)?, f))?)
}

/// The losses of triples of elements.
fn triples(r: &Ask<'_>, f: &dyn Fn(f64, f64, f64) -> f64) -> Made {
    let (a, b, c) = (r.x(0)?, r.x(1)?, r.x(2)?);
    r.alike(a, b)?;
    r.alike(b, c)?;
    reduced(r, r.fit(together([a, b, c], &|[a, b, c]| f(a, b, c)))?)
}

/// Quadratic up to a distance, linear beyond.
fn smooth(d: f64, beta: f64) -> f64 {
    if d.abs() < beta { 0.5 * d * d / beta } else { d.abs() - 0.5 * beta }
}

fn with_logits(x: f64, y: f64) -> f64 {
    x.max(0.0) - x * y + (-x.abs()).exp().ln_1p()
}

/// Binary cross entropy; logarithms are at least -100.
fn binary(p: f64, y: f64) -> f64 {
    -(y * p.ln().max(-100.0) + (1.0 - y) * (1.0 - p).ln().max(-100.0))
}

fn divergence(r: &Ask<'_>) -> Made {
    if r.flag("log_target")? {
        return pairs(r, &|x, t| t.exp() * (t - x));
    }
    pairs(r, &|x, t| if t > 0.0 { t * (t.ln() - x) } else { 0.0 })
}

/// The loss of a class for each row or each point of space.
///
/// It is minus the log-probability of the class, times the class's weight if there are any. Ignored elements
/// count for nothing, and a mean is over the weights of the others.
fn classes(r: &Ask<'_>, logits: bool) -> Made {
    let (a, t) = (r.x(0)?, r.x(1)?);
    r.ensure(
        a.ndim() >= 2 && crate::arrays::without(a.shape(), 1) == t.shape(),
        "the target must have one class per row",
    )?;
    let (held, n) = (r.held(0, 1)?, r.input(0)?[1]);
    let ignored = if r.has("ignore_index")? { Some(r.number("ignore_index")? as f64) } else { None };
    let smoothing = if logits { r.real("label_smoothing")? } else { 0.0 };
    r.ensure(smoothing <= 1.0, "label_smoothing is at most 1")?;
    if let Some(w) = r.maybe(2) {
        r.ensure(w.shape() == &a.shape()[1..2], "the weight must have one element per class")?;
    }
    let weight = |c: usize| r.maybe(2).map_or(1.0, |w| w[c]);
    let counts = |class: f64| ignored != Some(class);
    let known = |class: f64| class.fract() == 0.0 && class >= 0.0 && class < n as f64;
    if let Some(class) = t.iter().find(|&&class| counts(class) && !known(class)) {
        return Err(r.wrong(format!("{class} is not one of {n} classes")));
    }
    let logs = if logits { lines(a, 1, &log_softmax) } else { a.clone() };
    let of = |i: &[usize], c: usize| at(&logs, &[&i[..1], &[c], &i[1..]].concat());
    let losses = make(t.shape(), &|i| {
        let class = at(t, i);
        if !counts(class) {
            return 0.0;
        }
        let right = held.iter().position(|&c| c as f64 == class).map_or(0.0, |c| -of(i, c) * weight(c));
        let all = || (0..held.len()).map(|c| -of(i, c) * weight(c)).sum::<f64>() / n as f64;
        if smoothing > 0.0 { (1.0 - smoothing) * right + smoothing * all() } else { right }
    });
    let of_class = |class: f64| held.iter().position(|&c| c as f64 == class).map_or(1.0, weight);
    weighted(r, losses, t.iter().filter(|&&class| counts(class)).map(|&class| of_class(class)).sum())
}

fn poisson(r: &Ask<'_>) -> Made {
    let (log, full, eps) = (r.flag("log_input")?, r.flag("full")?, r.real("eps")?);
    pairs(r, &|x, y| {
        let rest = if full && y > 1.0 { y * y.ln() - y + 0.5 * (2.0 * PI * y).ln() } else { 0.0 };
        rest + if log { x.exp() - y * x } else { x - y * (x + eps).ln() }
    })
}

fn gaussian(r: &Ask<'_>) -> Made {
    let (eps, constant) = (r.real("eps")?, if r.flag("full")? { 0.5 * (2.0 * PI).ln() } else { 0.0 });
    triples(r, &|mean, y, var| 0.5 * (var.max(eps).ln() + (mean - y).powi(2) / var.max(eps)) + constant)
}

/// The distance between the rows of two inputs.
fn apart(r: &Ask<'_>, a: &A, b: &A) -> Result<A, Error> {
    let (p, eps) = (r.real("p")?, r.real("eps")?);
    r.alike(a, b)?;
    Ok(fold(&r.fit(zip(a, b, &|a, b| a - b + eps))?, 1, &|v| norm_of(p, v)))
}

fn triplet(r: &Ask<'_>) -> Made {
    let (near, far) = (apart(r, r.x(0)?, r.x(1)?)?, apart(r, r.x(0)?, r.x(2)?)?);
    let margin = r.real("margin")?;
    reduced(r, r.fit(zip(&near, &far, &|near, far| (near - far + margin).max(0.0)))?)
}

fn cosine(r: &Ask<'_>) -> Made {
    let (a, b, y, margin) = (r.x(0)?, r.x(1)?, r.x(2)?, r.real("margin")?);
    r.alike(a, b)?;
    r.ensure(y.shape() == &a.shape()[..1], "the target must have one sign per row")?;
    let dot = |a: &A, b: &A| r.fit(zip(a, b, &|a, b| a * b)).map(|all| all.sum_axis(ndarray::Axis(1)));
    let all = [&dot(a, b)?, &dot(a, a)?, &dot(b, b)?, y];
    let losses = together(all, &|[ab, aa, bb, y]| {
        let cosine = ab / ((aa + 1e-12) * (bb + 1e-12)).sqrt();
        if y > 0.0 { 1.0 - cosine } else { (cosine - margin).max(0.0) }
    });
    reduced(r, r.fit(losses)?)
}

fn multi_margin(r: &Ask<'_>) -> Made {
    let (a, y) = (r.x(0)?, r.x(1)?);
    let (p, margin) = (r.size("p")? as f64, r.real("margin")?);
    let n = a.shape()[1];
    r.ensure(a.shape()[0] == y.len(), "the target must have one class per row")?;
    r.ensure(
        y.iter().all(|c| c.fract() == 0.0 && *c >= 0.0 && *c < n as f64),
        "a target is not one of the classes",
    )?;
    reduced(
        r,
        make(&[y.len()], &|i| {
            let right = y[i[0]] as usize;
            let others = (0..n).filter(|&c| c != right);
            let over = |c: usize| (margin - a[[i[0], right]] + a[[i[0], c]]).max(0.0).powf(p);
            others.map(over).sum::<f64>() / n as f64
        }),
    )
}

fn multilabel_margin(r: &Ask<'_>) -> Made {
    let (a, y) = (r.x(0)?, r.x(1)?);
    r.alike(a, y)?;
    let n = a.shape()[1];
    reduced(
        r,
        make(&a.shape()[..1], &|i| {
            let is = |k: &usize| y[[i[0], *k]] > 0.5;
            let over = |j: usize, k: usize| (1.0 - a[[i[0], j]] + a[[i[0], k]]).max(0.0);
            let of = |j: usize| (0..n).filter(|k| !is(k)).map(|k| over(j, k)).sum::<f64>();
            (0..n).filter(is).map(of).sum::<f64>() / n as f64
        }),
    )
}

fn multilabel_soft_margin(r: &Ask<'_>) -> Made {
    r.alike(r.x(0)?, r.x(1)?)?;
    let each = r.fit(zip(r.x(0)?, r.x(1)?, &with_logits))?;
    reduced(r, fold(&each, 1, &super::reductions::mean))
}

/// Minus the log-probability of a sequence of targets, with blanks of class 0 between, over all alignments.
fn aligned(logs: &A, b: usize, targets: &[usize], length: usize) -> f64 {
    let with_blanks: Vec<usize> = std::iter::once(0).chain(targets.iter().flat_map(|&t| [t, 0])).collect();
    let n = with_blanks.len();
    let mut alpha = vec![0.0; n];
    for t in 0..length {
        let before = alpha.clone();
        for s in 0..n {
            let skips = s > 1 && with_blanks[s] != 0 && with_blanks[s] != with_blanks[s - 2];
            let from = if t == 0 {
                f64::from(u8::from(s < 2))
            } else {
                before[s] + if s > 0 { before[s - 1] } else { 0.0 } + if skips { before[s - 2] } else { 0.0 }
            };
            alpha[s] = from * logs[[t, b, with_blanks[s]]].exp();
        }
    }
    -(alpha[n - 1] + if n > 1 { alpha[n - 2] } else { 0.0 }).ln()
}

/// The CTC loss of logarithms by time, batch and class, and of targets, both with given lengths.
fn ctc(r: &Ask<'_>) -> Made {
    let (logs, targets, lengths, of_targets) = (r.x(0)?, r.x(1)?, r.x(2)?, r.x(3)?);
    let (b, [time, most, classes]) =
        (targets.shape()[0], [logs.shape()[0], targets.shape()[1], logs.shape()[2]]);
    r.ensure(
        logs.shape()[1] == b && lengths.shape() == [b] && of_targets.shape() == [b],
        "the batches differ",
    )?;
    let below = |a: &A, n: usize| a.iter().all(|v| v.fract() == 0.0 && *v >= 0.0 && *v < n as f64);
    r.ensure(below(lengths, time + 1) && below(of_targets, most + 1), "a length exceeds its sequence")?;
    r.ensure(below(targets, classes), "a target is not one of the classes")?;
    let mean = r.word("reduction")? == "mean";
    reduced(
        r,
        make(&[b], &|i| {
            let n = of_targets[i] as usize;
            let list: Vec<usize> = (0..n).map(|s| targets[[i[0], s]] as usize).collect();
            let loss = aligned(logs, i[0], &list, lengths[i] as usize);
            if mean { loss / n.max(1) as f64 } else { loss }
        }),
    )
}

pub(super) const OPS: Ops = &[
    ("mse_loss", By(|r| pairs(r, &|a, b| (a - b).powi(2)))),
    ("l1_loss", By(|r| pairs(r, &|a, b| (a - b).abs()))),
    (
        "smooth_l1_loss",
        By(|r| {
            let beta = r.real("beta")?;
            pairs(r, &|a, b| smooth(a - b, beta))
        }),
    ),
    (
        "huber_loss",
        By(|r| {
            let delta = r.real("delta")?;
            pairs(r, &|a, b| delta * smooth(a - b, delta))
        }),
    ),
    ("binary_cross_entropy", By(|r| pairs(r, &binary))),
    ("binary_cross_entropy_with_logits", By(|r| pairs(r, &with_logits))),
    ("kl_div", By(divergence)),
    ("cross_entropy", By(|r| classes(r, true))),
    ("nll_loss", By(|r| classes(r, false))),
    ("ctc_loss", By(ctc)),
    ("soft_margin_loss", By(|r| pairs(r, &|x, y| (-y * x).exp().ln_1p()))),
    (
        "hinge_embedding_loss",
        By(|r| {
            let margin = r.real("margin")?;
            pairs(r, &|x, y| if y > 0.0 { x } else { (margin - x).max(0.0) })
        }),
    ),
    ("poisson_nll_loss", By(poisson)),
    ("gaussian_nll_loss", By(gaussian)),
    (
        "margin_ranking_loss",
        By(|r| {
            let margin = r.real("margin")?;
            triples(r, &|a, b, y| (margin - y * (a - b)).max(0.0))
        }),
    ),
    ("triplet_margin_loss", By(triplet)),
    ("cosine_embedding_loss", By(cosine)),
    ("multi_margin_loss", By(multi_margin)),
    ("multilabel_margin_loss", By(multilabel_margin)),
    ("multilabel_soft_margin_loss", By(multilabel_soft_margin)),
];
