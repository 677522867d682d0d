//! Transforms into frequencies and back; complex numbers are stored in a last dim of two.

use std::f64::consts::PI;

use super::Body::By;
use super::Ops;
use crate::Error;
use crate::arrays::{A, at, cut, make, with};
use crate::ask::{Ask, Made};

/// A complex number.
type Complex = (f64, f64);

/// `sum_t z_t exp(sign 2 pi i t f / n)`.
fn frequency(f: usize, n: usize, sign: f64, z: &dyn Fn(usize) -> Complex) -> Complex {
    (0..n).fold((0.0, 0.0), |(re, im), t| {
        let (s, c) = (sign * 2.0 * PI * (t * f % n) as f64 / n as f64).sin_cos();
        let (x, y) = z(t);
        (re + x * c - y * s, im + x * s + y * c)
    })
}

fn part(z: Complex, i: usize) -> f64 {
    if i == 0 { z.0 } else { z.1 }
}

/// Transforms complex numbers along a dim.
fn transformed(a: &A, dim: usize, sign: f64, scaled: bool) -> A {
    let (n, last) = (a.shape()[dim], a.ndim() - 1);
    let by = if scaled { n as f64 } else { 1.0 };
    make(a.shape(), &|i| {
        let get = |t: usize, k: usize| at(a, &with(&with(i, dim, t), last, k));
        part(frequency(i[dim], n, sign, &|t| (get(t, 0), get(t, 1))), i[last]) / by
    })
}

fn pairs<'a>(r: &'a Ask<'_>) -> Result<&'a A, Error> {
    let a = r.x(0)?;
    r.ensure(a.shape().last() == Some(&2), "the last dim must be the real and the imaginary part")?;
    Ok(a)
}

fn complex(r: &Ask<'_>, sign: f64, scaled: bool) -> Made {
    Ok(vec![r.dims("dims")?.into_iter().fold(pairs(r)?.clone(), |a, dim| transformed(&a, dim, sign, scaled))])
}

/// Transforms real numbers, of which half the frequencies determine the others.
fn from_real(r: &Ask<'_>, sign: f64, scaled: bool) -> Made {
    let (a, dims) = (r.x(0)?, r.dims("dims")?);
    let rank = a.ndim();
    let a = make(&[a.shape(), &[2]].concat(), &|i| if i[rank] == 0 { at(a, &i[..rank]) } else { 0.0 });
    let a = dims.iter().fold(a, |a, &dim| transformed(&a, dim, sign, scaled));
    let last = dims.last().copied().ok_or_else(|| r.wrong("names no dim"))?;
    Ok(vec![r.fit(cut(&a, last, 0, a.shape()[last] / 2 + 1))?])
}

/// Returns a frequency of `n` real numbers, of which half are given.
///
/// The others are conjugates in reverse order, and a frequency that is its own conjugate is real.
fn mirrored(t: usize, n: usize, given: usize, get: &dyn Fn(usize) -> Complex) -> Complex {
    let near = t.min(n - t);
    if near >= given {
        return (0.0, 0.0);
    }
    let (re, im) = get(near);
    (
        re,
        if t == 0 || 2 * t == n {
            0.0
        } else if near == t {
            im
        } else {
            -im
        },
    )
}

fn to_real(r: &Ask<'_>, sign: f64, scaled: bool) -> Made {
    let mut dims = r.dims("dims")?;
    let last = dims.pop().ok_or_else(|| r.wrong("names no dim"))?;
    let a = dims.into_iter().fold(pairs(r)?.clone(), |a, dim| transformed(&a, dim, sign, scaled));
    let given = a.shape()[last];
    let n = if r.has("size")? { r.size("size")? } else { 2 * given.saturating_sub(1) };
    let by = if scaled { n as f64 } else { 1.0 };
    Ok(vec![make(&with(&a.shape()[..a.ndim() - 1], last, n), &|i| {
        let get = |t: usize, k: usize| at(&a, &[&with(i, last, t)[..], &[k]].concat());
        frequency(i[last], n, sign, &|t| mirrored(t, n, given, &|t| (get(t, 0), get(t, 1)))).0 / by
    })])
}

/// Shifts the frequency 0 to the middle, or back to the start.
fn shifted(r: &Ask<'_>, back: bool) -> Made {
    let (a, dims) = (r.x(0)?, r.dims("dims")?);
    Ok(vec![make(a.shape(), &|i| {
        let mut from = i.to_vec();
        for &d in &dims {
            let n = a.shape()[d];
            from[d] = (i[d] + if back { n / 2 } else { n.div_ceil(2) }) % n;
        }
        at(a, &from)
    })])
}

/// The frequencies of windows, at a fixed distance of each other.
fn stft(r: &Ask<'_>) -> Made {
    let (a, window, hop) = (r.x(0)?, r.size("window")?, r.size("hop")?);
    let d = a.ndim() - 1;
    let left = a.shape()[d].checked_sub(window).ok_or_else(|| r.wrong("a window does not fit"))?;
    let shape = [&a.shape()[..d], &[window / 2 + 1, left / hop + 1, 2]].concat();
    Ok(vec![make(&shape, &|i| {
        let get = |t: usize| (at(a, &[&i[..d], &[hop * i[d + 1] + t]].concat()), 0.0);
        part(frequency(i[d], window, -1.0, &get), i[d + 2])
    })])
}

/// Averages the windows that cover an element.
fn istft(r: &Ask<'_>) -> Made {
    let (a, window, hop) = (pairs(r)?, r.size("window")?, r.size("hop")?);
    let d = a.ndim() - 3;
    let (given, frames) = (a.shape()[d], a.shape()[d + 1]);
    let length = frames.saturating_sub(1) * hop + window;
    Ok(vec![make(&[&a.shape()[..d], &[length]].concat(), &|i| {
        let of = |frame: usize| {
            let get = |t: usize, k: usize| at(a, &[&i[..d], &[t, frame, k]].concat());
            let z = |t: usize| mirrored(t, window, given, &|t| (get(t, 0), get(t, 1)));
            frequency(i[d] - hop * frame, window, 1.0, &z).0 / window as f64
        };
        let covering: Vec<usize> =
            (0..frames).filter(|f| (hop * f..hop * f + window).contains(&i[d])).collect();
        covering.iter().map(|&f| of(f)).sum::<f64>() / covering.len().max(1) as f64
    })])
}

pub(super) const OPS: Ops = &[
    ("fft", By(|r| complex(r, -1.0, false))),
    ("ifft", By(|r| complex(r, 1.0, true))),
    ("rfft", By(|r| from_real(r, -1.0, false))),
    ("ihfft", By(|r| from_real(r, 1.0, true))),
    ("irfft", By(|r| to_real(r, 1.0, true))),
    ("hfft", By(|r| to_real(r, -1.0, false))),
    ("fftshift", By(|r| shifted(r, false))),
    ("ifftshift", By(|r| shifted(r, true))),
    ("stft", By(stft)),
    ("istft", By(istft)),
];
