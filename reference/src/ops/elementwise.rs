//! Element by element: bits, steps, scales, neighbours and complex numbers, stored in a last dim of two.

use std::f64::consts::PI;

use ndarray::{Axis, stack};

use super::Body::{By, One, Two};
use super::Ops;
use crate::Error;
use crate::arrays::{A, at, make, map, truth, zip};
use crate::ask::{Ask, Made};

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

fn lcm(a: f64, b: f64) -> f64 {
    let by = gcd(a as i64, b as i64) as f64;
    if by == 0.0 { 0.0 } else { (a / by * b).abs() }
}

fn next_after(r: &Ask<'_>) -> Made {
    let next = r.element.next;
    r.zip(&|a, b| match a.partial_cmp(&b) {
        Some(std::cmp::Ordering::Less) => next(a),
        Some(std::cmp::Ordering::Greater) => -next(-a),
        Some(std::cmp::Ordering::Equal) => b,
        None => f64::NAN,
    })
}

fn logaddexp2(a: f64, b: f64) -> f64 {
    let m = a.max(b);
    if m.is_infinite() { m } else { m + ((a - m).exp2() + (b - m).exp2()).log2() }
}

fn frexp(r: &Ask<'_>) -> Made {
    let a = r.x(0)?;
    let exponent = |v: f64| if v == 0.0 || !v.is_finite() { 0.0 } else { v.abs().log2().floor() + 1.0 };
    Ok(vec![map(a, &|v| v * (-exponent(v)).exp2()), map(a, &exponent)])
}

fn prelu(r: &Ask<'_>) -> Made {
    let (a, w) = (r.x(0)?, r.x(1)?);
    r.ensure(a.shape()[1] == w.len(), "the weight must have one element per channel")?;
    Ok(vec![make(a.shape(), &|i| if at(a, i) > 0.0 { at(a, i) } else { w[i[1]] * at(a, i) })])
}

/// Two tensors, broadcast, as a last dim of two.
fn pair(r: &Ask<'_>, real: &dyn Fn(f64, f64) -> f64, imaginary: &dyn Fn(f64, f64) -> f64) -> Made {
    let (a, b) = (r.x(0)?, r.x(1)?);
    let (a, b) = (r.fit(zip(a, b, real))?, r.fit(zip(a, b, imaginary))?);
    let made = stack(Axis(a.ndim()), &[a.view(), b.view()]);
    Ok(vec![made.map_err(|e| r.wrong(e))?])
}

fn part(r: &Ask<'_>, i: usize) -> Result<A, Error> {
    let a = r.x(0)?;
    r.ensure(a.shape().last() == Some(&2), "the last dim must be the real and the imaginary part")?;
    Ok(a.index_axis(Axis(a.ndim() - 1), i).to_owned())
}

fn conj(r: &Ask<'_>) -> Made {
    part(r, 0)?;
    let a = r.x(0)?;
    Ok(vec![make(a.shape(), &|i| if i.last() == Some(&1) { -at(a, i) } else { at(a, i) })])
}

pub(super) const OPS: Ops = &[
    ("isposinf", One(|x| truth(x == f64::INFINITY))),
    ("isneginf", One(|x| truth(x == f64::NEG_INFINITY))),
    ("signbit", One(|x| truth(x.is_sign_negative()))),
    ("angle", One(|x| if x < 0.0 { PI } else { 0.0 })),
    ("exp2", One(f64::exp2)),
    ("deg2rad", One(f64::to_radians)),
    ("rad2deg", One(f64::to_degrees)),
    ("positive", One(|x| x)),
    ("bitwise_not", One(|x| -1.0 - x)),
    ("bitwise_and", Two(|a, b| (a as i64 & b as i64) as f64)),
    ("bitwise_or", Two(|a, b| (a as i64 | b as i64) as f64)),
    ("bitwise_xor", Two(|a, b| (a as i64 ^ b as i64) as f64)),
    ("gcd", Two(|a, b| gcd(a as i64, b as i64) as f64)),
    ("lcm", Two(lcm)),
    ("bitwise_left_shift", Two(|a, n| a * n.exp2())),
    ("bitwise_right_shift", Two(|a, n| (a * (-n).exp2()).floor())),
    ("ldexp", Two(|a, n| a * n.exp2())),
    ("heaviside", Two(|a, v| if a == 0.0 { v } else { truth(a > 0.0) })),
    ("fmax", Two(f64::max)),
    ("fmin", Two(f64::min)),
    ("logaddexp2", Two(logaddexp2)),
    (
        "isclose",
        By(|r| {
            let (relative, absolute) = (r.real("rtol")?, r.real("atol")?);
            r.zip(&|a, b| truth(a == b || (a - b).abs() <= absolute + relative * b.abs()))
        }),
    ),
    ("nextafter", By(next_after)),
    ("frexp", By(frexp)),
    ("fma", By(|r| r.zip3(&|a, b, c| a * b + c))),
    ("prelu", By(prelu)),
    ("complex", By(|r| pair(r, &|a, _| a, &|_, b| b))),
    ("polar", By(|r| pair(r, &|length, angle| length * angle.cos(), &|length, angle| length * angle.sin()))),
    ("real", By(|r| Ok(vec![part(r, 0)?]))),
    ("imag", By(|r| Ok(vec![part(r, 1)?]))),
    ("conj", By(conj)),
];
