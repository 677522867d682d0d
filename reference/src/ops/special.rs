//! Special functions, by integrals of periodic functions, series, recurrences and bisection.

use std::f64::consts::{PI, SQRT_2};

use libm::{erf, erfc, j0, j1, lgamma, y0, y1};

use super::Body::{By, One, Two};
use super::Ops;

/// The mean of an even function of period 2 pi, computed to full precision with equal steps.
fn mean(f: impl Fn(f64) -> f64) -> f64 {
    (0..64).map(|k| f((f64::from(k) + 0.5) * PI / 64.0)).sum::<f64>() / 64.0
}

fn bessel_i(n: u32, x: f64) -> f64 {
    if x.is_infinite() { x } else { mean(|t| (x * t.cos()).exp() * (f64::from(n) * t).cos()) }
}

/// `exp(x) K_n(x)`, or `K_n(x)` itself.
fn bessel_k(n: u32, x: f64, scaled: bool) -> f64 {
    if x.is_infinite() {
        return 0.0;
    }
    let at = |t: f64| {
        let power = if scaled { x * (1.0 - t.cosh()) } else { -x * t.cosh() };
        power.exp() * (f64::from(n) * t).cosh()
    };
    0.05 * (at(0.0) / 2.0 + (1..240).map(|k| at(0.05 * f64::from(k))).sum::<f64>())
}

fn airy_ai(x: f64) -> f64 {
    let (mut f, mut g) = (1.0, x);
    let (mut a, mut b) = (1.0, x);
    for k in 1..40 {
        let n = 3.0 * f64::from(k);
        a *= x.powi(3) / ((n - 1.0) * n);
        b *= x.powi(3) / (n * (n + 1.0));
        f += a;
        g += b;
    }
    0.355_028_053_887_817_2 * f - 0.258_819_403_792_806_8 * g
}

fn digamma(x: f64) -> f64 {
    if x < 0.5 {
        return digamma(1.0 - x) - PI / (PI * x).tan();
    }
    let (mut x, mut less) = (x, 0.0);
    while x < 15.0 {
        less += 1.0 / x;
        x += 1.0;
    }
    x.ln() - 0.5 / x - 1.0 / (12.0 * x.powi(2)) + 1.0 / (120.0 * x.powi(4)) - 1.0 / (252.0 * x.powi(6)) - less
}

/// `sum_k (q + k)^-s`, with a remainder by Euler and Maclaurin.
fn zeta(s: f64, q: f64) -> f64 {
    let n = q + 15.0;
    let first: f64 = (0..15).map(|k| (q + f64::from(k)).powf(-s)).sum();
    first + n.powf(1.0 - s) / (s - 1.0) + n.powf(-s) / 2.0 + s / 12.0 * n.powf(-s - 1.0)
        - s * (s + 1.0) * (s + 2.0) / 720.0 * n.powf(-s - 3.0)
}

/// The regularized lower incomplete gamma function.
fn igamma(a: f64, x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..80 {
        term *= x / (a + f64::from(k));
        sum += term;
    }
    sum * (a * x.ln() - x - lgamma(a + 1.0)).exp()
}

/// `exp(x^2) erfc(x)`: a continued fraction for large x.
fn erfcx(x: f64) -> f64 {
    if x < 0.0 {
        2.0 * (x * x).exp() - erfcx(-x)
    } else if x < 2.0 {
        (x * x).exp() * erfc(x)
    } else {
        let rest = (1..80).rev().fold(x, |d, k| x + 0.5 * f64::from(k) / d);
        1.0 / (PI.sqrt() * rest)
    }
}

fn ndtr(x: f64) -> f64 {
    if x > 0.0 { 1.0 - ndtr(-x) } else { 0.5 * (-x * x / 2.0).exp() * erfcx(-x / SQRT_2) }
}

fn log_ndtr(x: f64) -> f64 {
    if x > 0.0 { (-ndtr(-x)).ln_1p() } else { (0.5 * erfcx(-x / SQRT_2)).ln() - x * x / 2.0 }
}

fn erfinv(y: f64) -> f64 {
    let (mut low, mut high) = (-6.0, 6.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if erf(middle) < y { low = middle } else { high = middle }
    }
    if y.abs() > 1.0 { f64::NAN } else { low }
}

/// Evaluates `p_(k+1) = step(k, p_k, p_(k-1))`, beginning with two polynomials.
fn polynomial(n: f64, first: [f64; 2], step: &dyn Fn(f64, f64, f64) -> f64) -> f64 {
    // Larger arguments are not supported.
    if n > 1e6 {
        return f64::NAN;
    }
    let [mut q, mut p] = first;
    for k in 0..n as u32 {
        (q, p) = (p, step(f64::from(k + 1), p, q));
    }
    q
}

fn chebyshev(n: f64, x: f64, first: f64) -> f64 {
    polynomial(n, [1.0, first], &|_, p, q| 2.0 * x * p - q)
}

pub(super) const OPS: Ops = &[
    ("ndtr", One(ndtr)),
    ("log_ndtr", One(log_ndtr)),
    ("erfcx", One(erfcx)),
    ("i0", One(|x| bessel_i(0, x))),
    ("i1", One(|x| bessel_i(1, x))),
    ("i0e", One(|x| bessel_i(0, x) * (-x.abs()).exp())),
    ("i1e", One(|x| bessel_i(1, x) * (-x.abs()).exp())),
    ("bessel_j0", One(j0)),
    ("bessel_j1", One(j1)),
    ("bessel_y0", One(y0)),
    ("bessel_y1", One(y1)),
    ("modified_bessel_k0", One(|x| bessel_k(0, x, false))),
    ("modified_bessel_k1", One(|x| bessel_k(1, x, false))),
    ("scaled_modified_bessel_k0", One(|x| bessel_k(0, x, true))),
    ("scaled_modified_bessel_k1", One(|x| bessel_k(1, x, true))),
    ("spherical_bessel_j0", One(|x| if x == 0.0 { 1.0 } else { x.sin() / x })),
    ("sinc", One(|x| if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) })),
    ("airy_ai", One(airy_ai)),
    ("digamma", One(digamma)),
    ("lgamma", One(lgamma)),
    (
        "polygamma",
        By(|r| {
            let n = r.size("n")?;
            let by = (1..=n.min(1000)).fold(if n % 2 == 0 { -1.0 } else { 1.0 }, |by, k| by * k as f64);
            r.map(&|x| if n == 0 { digamma(x) } else { by * zeta(n as f64 + 1.0, x) })
        }),
    ),
    (
        "mvlgamma",
        By(|r| {
            let p = r.size("p")?;
            r.ensure(p <= 1 << 12, "p is at most 4096")?;
            let constant = p as f64 * (p as f64 - 1.0) / 4.0 * PI.ln();
            r.map(&|x| constant + (0..p).map(|j| lgamma(x - j as f64 / 2.0)).sum::<f64>())
        }),
    ),
    ("entr", One(|x| if x == 0.0 { 0.0 } else { -x * x.ln() })),
    ("erfinv", One(erfinv)),
    ("ndtri", One(|p| SQRT_2 * erfinv(2.0 * p - 1.0))),
    (
        "logit",
        By(|r| {
            let eps = r.maybe_real("eps")?;
            let within = |p: f64| eps.map_or(p, |eps| p.max(eps).min(1.0 - eps));
            r.map(&|p| (within(p) / (1.0 - within(p))).ln())
        }),
    ),
    ("zeta", Two(zeta)),
    ("igamma", Two(igamma)),
    ("igammac", Two(|a, x| 1.0 - igamma(a, x))),
    ("xlog1py", Two(|x, y| if x == 0.0 { 0.0 } else { x * y.ln_1p() })),
    ("chebyshev_polynomial_t", Two(|x, n| chebyshev(n, x, x))),
    ("chebyshev_polynomial_u", Two(|x, n| chebyshev(n, x, 2.0 * x))),
    ("chebyshev_polynomial_v", Two(|x, n| chebyshev(n, x, 2.0 * x - 1.0))),
    ("chebyshev_polynomial_w", Two(|x, n| chebyshev(n, x, 2.0 * x + 1.0))),
    ("shifted_chebyshev_polynomial_t", Two(|x, n| chebyshev(n, 2.0 * x - 1.0, 2.0 * x - 1.0))),
    ("shifted_chebyshev_polynomial_u", Two(|x, n| chebyshev(n, 2.0 * x - 1.0, 4.0 * x - 2.0))),
    ("shifted_chebyshev_polynomial_v", Two(|x, n| chebyshev(n, 2.0 * x - 1.0, 4.0 * x - 3.0))),
    ("shifted_chebyshev_polynomial_w", Two(|x, n| chebyshev(n, 2.0 * x - 1.0, 4.0 * x - 1.0))),
    ("hermite_polynomial_h", Two(|x, n| polynomial(n, [1.0, 2.0 * x], &|k, p, q| 2.0 * x * p - 2.0 * k * q))),
    ("hermite_polynomial_he", Two(|x, n| polynomial(n, [1.0, x], &|k, p, q| x * p - k * q))),
    (
        "laguerre_polynomial_l",
        Two(|x, n| polynomial(n, [1.0, 1.0 - x], &|k, p, q| ((2.0 * k + 1.0 - x) * p - k * q) / (k + 1.0))),
    ),
    (
        "legendre_polynomial_p",
        Two(|x, n| polynomial(n, [1.0, x], &|k, p, q| ((2.0 * k + 1.0) * x * p - k * q) / (k + 1.0))),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from tables.
    #[test]
    fn special_functions_have_their_values() {
        for (name, has, wants) in [
            ("I0(1)", bessel_i(0, 1.0), 1.266_065_877_752_008_3),
            ("I1(2)", bessel_i(1, 2.0), 1.590_636_854_637_329),
            ("K0(1)", bessel_k(0, 1.0, false), 0.421_024_438_240_708_3),
            ("K1(2)", bessel_k(1, 2.0, false), 0.139_865_881_816_522_43),
            ("exp(1) K0(1)", bessel_k(0, 1.0, true), 0.421_024_438_240_708_3 * 1f64.exp()),
            ("Ai(1)", airy_ai(1.0), 0.135_292_416_312_881_4),
            ("Ai(-2)", airy_ai(-2.0), 0.227_407_428_201_685_6),
            ("lgamma(-0.5)", lgamma(-0.5), (2.0 * PI.sqrt()).ln()),
            ("erfcx(-3)", erfcx(-3.0), 16_205.988_853_999_586),
            ("erf(4.9)", erf(4.9), 1.0 - 4.218_936_524e-12),
            ("digamma(-0.5)", digamma(-0.5), 0.036_489_973_978_576_52),
            ("digamma(1)", digamma(1.0), -0.577_215_664_901_532_9),
            ("zeta(2,1)", zeta(2.0, 1.0), PI * PI / 6.0),
            ("P(1,2)", igamma(1.0, 2.0), 1.0 - (-2f64).exp()),
            ("erfcx(1)", erfcx(1.0), 0.427_583_576_155_807),
            ("erfcx(3)", erfcx(3.0), 0.179_001_151_181_389_1),
            ("ndtr(1)", ndtr(1.0), 0.841_344_746_068_542_9),
            ("log_ndtr(-10)", log_ndtr(-10.0), -53.231_285_151_247_06),
            ("erfinv(0.5)", erfinv(0.5), 0.476_936_276_204_469_9),
            ("T3(0.5)", chebyshev(3.0, 0.5, 0.5), -1.0),
            ("H3(1)", polynomial(3.0, [1.0, 2.0], &|k, p, q| 2.0 * p - 2.0 * k * q), -4.0),
        ] {
            assert!(
                (has - wants).abs() < 1e-9 * (1.0 + wants.abs()),
                "{name} is {has}, and should be {wants}"
            );
        }
    }
}
