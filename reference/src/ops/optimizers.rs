//! Steps of optimizers, element by element, of a parameter, its gradient and states.
//!
//! They return the next parameter and states.

use super::Body::By;
use super::Ops;
use super::pointwise::sign;
use crate::Error;
use crate::arrays::{numbers, of};
use crate::ask::{Ask, Made};

/// Applies a function to `N` inputs of one shape, element by element; returns the parameter and the states.
fn step<const N: usize>(r: &Ask<'_>, f: &dyn Fn([f64; N]) -> Vec<f64>) -> Made {
    let (first, mut lists) = (r.x(0)?, Vec::new());
    for i in 0..N {
        r.alike(first, r.x(i)?)?;
        lists.push(numbers(r.x(i)?));
    }
    let made: Vec<Vec<f64>> = (0..first.len()).map(|e| f(core::array::from_fn(|i| lists[i][e]))).collect();
    (0..N - 1).map(|o| r.fit(of(first.shape(), made.iter().map(|outputs| outputs[o]).collect()))).collect()
}

/// The hyperparameters of Adam and its variants.
struct Rates {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
}

impl Rates {
    fn of(r: &Ask<'_>) -> Result<Rates, Error> {
        Ok(Rates { lr: r.real("lr")?, beta1: r.real("beta1")?, beta2: r.real("beta2")?, eps: r.real("eps")? })
    }

    /// The averages of the gradient and of its square.
    fn moments(&self, g: f64, m: f64, v: f64) -> (f64, f64) {
        (self.beta1 * m + (1.0 - self.beta1) * g, self.beta2 * v + (1.0 - self.beta2) * g * g)
    }
}

/// Returns the bias corrections of the first steps' averages; 1 if no step is given.
fn bias(r: &Ask<'_>) -> Result<(f64, f64), Error> {
    if !r.has("step")? {
        return Ok((1.0, 1.0));
    }
    let t = r.number("step")? as f64;
    Ok((1.0 - r.real("beta1")?.powf(t), 1.0 - r.real("beta2")?.powf(t)))
}

/// Adam with weight decay that is part of the gradient, or decoupled from it.
fn adam(r: &Ask<'_>, apart: bool) -> Made {
    let (rates, (c1, c2), decay) = (Rates::of(r)?, bias(r)?, r.real("weight_decay")?);
    step(r, &|[p, g, m, v]| {
        let (p, g) = if apart { (p * (1.0 - rates.lr * decay), g) } else { (p, g + decay * p) };
        let (m, v) = rates.moments(g, m, v);
        vec![p - rates.lr * (m / c1) / ((v / c2).sqrt() + rates.eps), m, v]
    })
}

fn adam_amsgrad(r: &Ask<'_>) -> Made {
    let (rates, (c1, c2)) = (Rates::of(r)?, bias(r)?);
    step(r, &|[p, g, m, v, most]| {
        let (m, v) = rates.moments(g, m, v);
        let most = most.max(v);
        vec![p - rates.lr * (m / c1) / ((most / c2).sqrt() + rates.eps), m, v, most]
    })
}

/// Adam with Nesterov's momentum.
fn nadam(r: &Ask<'_>) -> Made {
    let rates = Rates::of(r)?;
    step(r, &|[p, g, m, v]| {
        let (m, v) = rates.moments(g, m, v);
        let ahead = rates.beta1 * m + (1.0 - rates.beta1) * g;
        vec![p - rates.lr * ahead / (v.sqrt() + rates.eps), m, v]
    })
}

/// Rectified Adam: without the square in the first steps, and then with a rectified one.
fn radam(r: &Ask<'_>) -> Made {
    let (rates, (c1, c2)) = (Rates::of(r)?, bias(r)?);
    let most = 2.0 / (1.0 - rates.beta2) - 1.0;
    let t = if r.has("step")? { Some(r.number("step")? as f64) } else { None };
    let length = t.map_or(most, |t| most - 2.0 * t * rates.beta2.powf(t) / c2);
    let rectified = ((length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length)).sqrt();
    step(r, &|[p, g, m, v]| {
        let (m, v) = rates.moments(g, m, v);
        let by = if length > 5.0 { rectified * c2.sqrt() / (v.sqrt() + rates.eps) } else { 1.0 };
        vec![p - rates.lr * m / c1 * by, m, v]
    })
}

/// Adam with the greatest gradient in place of the square.
fn adamax(r: &Ask<'_>) -> Made {
    let rates = Rates::of(r)?;
    step(r, &|[p, g, m, u]| {
        let m = rates.beta1 * m + (1.0 - rates.beta1) * g;
        let u = (rates.beta2 * u).max(g.abs() + rates.eps);
        vec![p - rates.lr * m / u, m, u]
    })
}

fn sgd_momentum(r: &Ask<'_>) -> Made {
    let (lr, momentum) = (r.real("lr")?, r.real("momentum")?);
    let (dampening, nesterov) = (r.real("dampening")?, r.flag("nesterov")?);
    step(r, &|[p, g, m]| {
        let m = momentum * m + (1.0 - dampening) * g;
        vec![p - lr * if nesterov { g + momentum * m } else { m }, m]
    })
}

fn adagrad(r: &Ask<'_>) -> Made {
    let (lr, eps) = (r.real("lr")?, r.real("eps")?);
    step(r, &|[p, g, s]| {
        let s = s + g * g;
        vec![p - lr * g / (s.sqrt() + eps), s]
    })
}

fn rmsprop(r: &Ask<'_>) -> Made {
    let (lr, alpha, eps) = (r.real("lr")?, r.real("alpha")?, r.real("eps")?);
    step(r, &|[p, g, v]| {
        let v = alpha * v + (1.0 - alpha) * g * g;
        vec![p - lr * g / (v.sqrt() + eps), v]
    })
}

fn adadelta(r: &Ask<'_>) -> Made {
    let (lr, rho, eps) = (r.real("lr")?, r.real("rho")?, r.real("eps")?);
    step(r, &|[p, g, v, d]| {
        let v = rho * v + (1.0 - rho) * g * g;
        let by = ((d + eps) / (v + eps)).sqrt() * g;
        vec![p - lr * by, v, rho * d + (1.0 - rho) * by * by]
    })
}

/// Uses the sign of the gradient alone; a gradient whose sign changed counts for nothing.
fn rprop(r: &Ask<'_>) -> Made {
    let (minus, plus) = (r.real("etaminus")?, r.real("etaplus")?);
    let (least, most) = (r.real("min_step")?, r.real("max_step")?);
    step(r, &|[p, g, before, size]| {
        let turned = sign(g * before);
        let size = match turned {
            t if t > 0.0 => size * plus,
            t if t < 0.0 => size * minus,
            _ => size,
        };
        let size = size.max(least).min(most);
        let g = if turned < 0.0 { 0.0 } else { g };
        vec![p - sign(g) * size, g, size]
    })
}

fn lion(r: &Ask<'_>) -> Made {
    let (lr, beta1, beta2) = (r.real("lr")?, r.real("beta1")?, r.real("beta2")?);
    step(r, &|[p, g, m]| vec![p - lr * sign(beta1 * m + (1.0 - beta1) * g), beta2 * m + (1.0 - beta2) * g])
}

pub(super) const OPS: Ops = &[
    (
        "sgd",
        By(|r| {
            let lr = r.real("lr")?;
            r.zip(&|p, g| p - lr * g)
        }),
    ),
    ("sgd_momentum", By(sgd_momentum)),
    ("adam", By(|r| adam(r, false))),
    ("adamw", By(|r| adam(r, true))),
    ("adam_amsgrad", By(adam_amsgrad)),
    ("nadam", By(nadam)),
    ("radam", By(radam)),
    ("adamax", By(adamax)),
    ("adagrad", By(adagrad)),
    ("rmsprop", By(rmsprop)),
    ("adadelta", By(adadelta)),
    ("rprop", By(rprop)),
    ("lion", By(lion)),
];
