//! Transforms into frequencies and back; complex numbers lie in a last dim of two.

use reshard_ops::rules::verify::LocalView;

use super::{A, Example, defined, make, x};

/// `sum_t z_t exp(sign 2 pi i t f / n)` along dim 1 of real and imaginary parts.
fn frequency(
    a: &A,
    b: usize,
    f: usize,
    n: usize,
    sign: f64,
    get: impl Fn(&A, usize, usize) -> (f64, f64),
) -> (f64, f64) {
    (0..n).fold((0.0, 0.0), |(re, im), t| {
        let (s, c) = (sign * 2.0 * std::f64::consts::PI * (t * f % n) as f64 / n as f64).sin_cos();
        let (x, y) = get(a, b, t);
        (re + x * c - y * s, im + x * s + y * c)
    })
}

fn part(z: (f64, f64), i: usize) -> f64 {
    if i == 0 { z.0 } else { z.1 }
}

fn complex(a: &A, b: usize, t: usize) -> (f64, f64) {
    (a[[b, t, 0]], a[[b, t, 1]])
}

/// The other half of the frequencies of real numbers.
fn mirrored(a: &A, b: usize, t: usize, n: usize) -> (f64, f64) {
    if t < a.shape()[1] {
        // Where a frequency is its own mirror image, it is real.
        let (re, im) = complex(a, b, t);
        (re, if t == 0 || 2 * t == n { 0.0 } else { im })
    } else {
        let (re, im) = complex(a, b, n - t);
        (re, -im)
    }
}

fn to_real(l: &LocalView<'_>, n: Option<usize>, sign: f64, scaled: bool) -> Vec<A> {
    let a = x(l, 0);
    assert_eq!(a.shape()[2], 2);
    let n = n.unwrap_or(2 * (a.shape()[1] - 1));
    let scale = if scaled { n as f64 } else { 1.0 };
    vec![make(&[a.shape()[0], n], |i| {
        frequency(&a, i[0], i[1], n, sign, |a, b, t| mirrored(a, b, t, n)).0 / scale
    })]
}

fn from_real(l: &LocalView<'_>, sign: f64, scaled: bool) -> Vec<A> {
    let a = x(l, 0);
    let n = a.shape()[1];
    let scale = if scaled { n as f64 } else { 1.0 };
    vec![make(&[a.shape()[0], n / 2 + 1, 2], |i| {
        part(frequency(&a, i[0], i[1], n, sign, |a, b, t| (a[[b, t]], 0.0)), i[2]) / scale
    })]
}

fn shifted(l: &LocalView<'_>, back: bool) -> Vec<A> {
    let a = x(l, 0);
    let n = a.shape()[1];
    let by = if back { n / 2 } else { n.div_ceil(2) };
    vec![make(a.shape(), |i| a[[i[0], (i[1] + by) % n]])]
}

pub fn all() -> Vec<Example> {
    vec![
        defined("ifft(dims=[1])", "6,4,2; 5,6,2", |l| {
            let a = x(l, 0);
            let n = a.shape()[1];
            assert_eq!(a.shape()[2], 2);
            vec![make(a.shape(), |i| part(frequency(&a, i[0], i[1], n, 1.0, complex), i[2]) / n as f64)]
        })
        .near(),
        defined("rfft(dims=[1])", "6,4; 5,5", |l| from_real(l, -1.0, false)).near(),
        defined("ihfft(dims=[1])", "6,4; 5,5", |l| from_real(l, 1.0, true)).near(),
        defined("irfft(dims=[1])", "6,3,2; 5,4,2", |l| to_real(l, None, 1.0, true)).near(),
        defined("irfft(dims=[1],size=5)", "6,3,2; 4,3,2", |l| to_real(l, Some(5), 1.0, true)).near(),
        defined("hfft(dims=[1])", "6,3,2; 5,4,2", |l| to_real(l, None, -1.0, false)).near(),
        defined("fftshift(dims=[1])", "6,5; 5,4", |l| shifted(l, false)),
        defined("ifftshift(dims=[1])", "6,5; 5,4", |l| shifted(l, true)),
        defined("stft(window=4,hop=2)", "6,8; 5,6", |l| {
            let a = x(l, 0);
            let frames = (a.shape()[1] - 4) / 2 + 1;
            vec![make(&[a.shape()[0], 3, frames, 2], |i| {
                part(frequency(&a, i[0], i[1], 4, -1.0, |a, b, t| (a[[b, 2 * i[2] + t]], 0.0)), i[3])
            })]
        })
        .near(),
        defined("istft(window=4,hop=2)", "6,3,3,2; 5,3,2,2", |l| {
            let a = x(l, 0);
            let (frames, length) = (a.shape()[2], 2 * (a.shape()[2] - 1) + 4);
            assert_eq!(a.shape()[3], 2);
            vec![make(&[a.shape()[0], length], |i| {
                let of = |frame: usize| {
                    let get = |a: &A, b: usize, t: usize| {
                        let g = if t < 3 { t } else { 4 - t };
                        let im = a[[b, g, frame, 1]]
                            * if t == 0 || t == 2 {
                                0.0
                            } else if t < 3 {
                                1.0
                            } else {
                                -1.0
                            };
                        (a[[b, g, frame, 0]], im)
                    };
                    frequency(&a, i[0], i[1] - 2 * frame, 4, 1.0, get).0 / 4.0
                };
                let covering: Vec<usize> =
                    (0..frames).filter(|f| (2 * f..2 * f + 4).contains(&i[1])).collect();
                covering.iter().map(|&f| of(f)).sum::<f64>() / covering.len() as f64
            })]
        })
        .near(),
    ]
}
