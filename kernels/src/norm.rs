//! The norm of two numbers, `(|a|^p + |b|^p)^(1/p)`, without overflow or underflow and with the same bits
//! everywhere.
//!
//! ```text
//! p = 1      |a| + |b|
//! p = 2      sqrt((s a)^2 + (s b)^2) / s        s a power of two, 1 unless a square would leave the range of doubles
//! p = inf    the greater of |a| and |b|
//! other p    m exp(log(1 + exp(p log r)) / p)   m the greater magnitude, r = the lesser divided by m, at most 1
//! ```
//!
//! It is the same for (b, a), and for b = 0 it is |a| exactly. NaN takes precedence, then infinity. `exp` and
//! `log` are series in additions, multiplications and divisions, each rounded by itself, as every IEEE
//! machine does them. Those of libraries differ in their last bits between machines, and so would the
//! replicas on different ranks. `cu/norm.cuh` is the same on devices. Numbers of fewer bits are computed in
//! f64 and rounded.

use reshard_layout::Exponent;

/// The algorithm for the norm of an exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Norm {
    /// The sum of magnitudes.
    One,
    /// The Euclidean norm.
    Two,
    /// The greatest magnitude.
    Infinity,
    /// Another exponent.
    Other(f64),
}

impl Norm {
    pub(crate) fn of(p: Exponent) -> Norm {
        match p {
            Exponent::ONE => Norm::One,
            Exponent::TWO => Norm::Two,
            Exponent::INFINITY => Norm::Infinity,
            other => Norm::Other(other.value()),
        }
    }
}

/// Returns the Euclidean norm.
#[inline(always)]
pub(crate) fn euclidean(a: f64, b: f64) -> f64 {
    let (a, b) = (a.abs(), b.abs());
    let most = if a > b || a.is_nan() { a } else { b };
    // Squares of greater numbers overflow, and those of lesser ones lose digits. NaN and infinities are not
    // scaled.
    let scale = if most >= TWO_TO_511 {
        1.0 / TWO_TO_600
    } else if most < 1.0 / TWO_TO_450 {
        TWO_TO_600
    } else {
        1.0
    };
    let (x, y) = (a * scale, b * scale);
    let sum = (x * x + y * y).sqrt() / scale;
    // A NaN takes precedence over an infinity, whose square is infinite.
    if a.is_nan() || b.is_nan() { f64::NAN } else { sum }
}

const TWO_TO_450: f64 = power_of_two(450);
const TWO_TO_511: f64 = power_of_two(511);
const TWO_TO_600: f64 = power_of_two(600);

/// Returns `2^n`, for a normal number.
const fn power_of_two(n: i64) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// Returns the norm of a finite exponent above 0.
pub(crate) fn of_exponent(p: f64, a: f64, b: f64) -> f64 {
    let (a, b) = (a.abs(), b.abs());
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    let (most, least) = if a > b { (a, b) } else { (b, a) };
    if least == 0.0 || most == f64::INFINITY {
        return most;
    }
    let ratio = least / most;
    if ratio == 0.0 {
        return most;
    }
    most * exp(log(1.0 + exp(p * log(ratio))) / p)
}

const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
const LOG2_E: f64 = std::f64::consts::LOG2_E;

/// Returns the logarithm of a number above 0 and at most 2.
///
/// With `x = 2^k f`, `f` near 1, it is `k log 2 + 2 (s + s^3/3 + s^5/5 + ..)` for `s = (f - 1) / (f + 1)`.
fn log(x: f64) -> f64 {
    let (x, less) = if x < f64::MIN_POSITIVE { (x * power_of_two(54), 54) } else { (x, 0) };
    let bits = x.to_bits();
    let mut k = (bits >> 52) as i64 - 1023;
    let mut f = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if f > std::f64::consts::SQRT_2 {
        f *= 0.5;
        k += 1;
    }
    let s = (f - 1.0) / (f + 1.0);
    let square = s * s;
    let mut series = 0.0;
    let mut odd = 25;
    while odd > 1 {
        series = (series + 1.0 / f64::from(odd)) * square;
        odd -= 2;
    }
    let k = (k - less) as f64;
    k * LN_2_HIGH + (2.0 * s + (2.0 * s * series + k * LN_2_LOW))
}

/// Returns the exponential of a number of at most 709.
///
/// With `x = k log 2 + r`, `r` near 0, it is `2^k (1 + r + r^2/2! + ..)`.
fn exp(x: f64) -> f64 {
    if x < -745.0 {
        return 0.0;
    }
    let scaled = x * LOG2_E;
    let k = (scaled + if scaled < 0.0 { -0.5 } else { 0.5 }) as i64;
    let whole = k as f64;
    let r = (x - whole * LN_2_HIGH) - whole * LN_2_LOW;
    let mut series = 1.0;
    let mut n = 16;
    while n > 0 {
        series = 1.0 + series * r / f64::from(n);
        n -= 1;
    }
    // In two factors, as one may not be a normal number.
    let half = k / 2;
    series * power_of_two(half) * power_of_two(k - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a few magnitudes from the least to the greatest, and numbers between 0 and 1.
    fn numbers() -> Vec<f64> {
        let mut all = vec![0.0, f64::MIN_POSITIVE, f64::from_bits(1), f64::MAX, 1.0, 3.0, 1e-200, 1e200, 0.1];
        let mut x = 0x1234_5678_9abc_def1u64;
        for _ in 0..300 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            all.push((x >> 11) as f64 / (1u64 << 53) as f64);
            all.push(f64::from_bits(x >> 1 & !(1 << 62) | (x & 1) << 62).abs().min(f64::MAX));
        }
        all.retain(|x| x.is_finite());
        all
    }

    #[test]
    fn series_are_those_of_the_functions() {
        for x in numbers().into_iter().filter(|&x| x > 0.0 && x <= 2.0) {
            assert!(
                (log(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1e-300),
                "log {x}: {} {}",
                log(x),
                x.ln()
            );
        }
        for i in -7500..7090 {
            let x = f64::from(i) / 10.0 + 0.037;
            let (is, should) = (exp(x), x.exp());
            assert!((is - should).abs() <= 4e-16 * should + f64::from_bits(1), "exp {x}: {is} {should}");
        }
        assert_eq!((exp(0.0), log(1.0), exp(-800.0)), (1.0, 0.0, 0.0));
    }

    /// Divides by the greater magnitude and uses the library's powers.
    ///
    /// The error is a few units of rounding times `1/p`.
    fn definition(p: f64, a: f64, b: f64) -> f64 {
        let most = a.max(b);
        if most == 0.0 { 0.0 } else { most * ((a / most).powf(p) + (b / most).powf(p)).powf(1.0 / p) }
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "an exponent that is exactly 2, and infinities")]
    fn norms_are_those_of_the_definition_and_never_leave_the_range() {
        let numbers = numbers();
        for p in [0.001, 0.1, 0.5, 1.5, 2.0, 2.5, 3.0, 4.0, 10.0, 65.0] {
            for (i, &a) in numbers.iter().enumerate() {
                for &b in &numbers[i % 7..(i % 7 + 40)] {
                    let is = if p == 2.0 { euclidean(a, b) } else { of_exponent(p, a, b) };
                    let other = if p == 2.0 { euclidean(-b, a) } else { of_exponent(p, -b, a) };
                    assert_eq!(is.to_bits(), other.to_bits(), "commutes");
                    let should = definition(p, a, b);
                    let allowed = 8.0 * f64::EPSILON * (1.0 + 1.0 / p) * should + f64::from_bits(2);
                    assert!(
                        is == should || (is - should).abs() <= allowed,
                        "{p} of {a} and {b}: {is}, not {should}"
                    );
                }
            }
        }
    }

    #[test]
    fn zero_is_the_identity_and_nan_wins() {
        for x in numbers().into_iter().chain([f64::INFINITY]) {
            for zero in [0.0, -0.0] {
                assert_eq!(euclidean(x, zero).to_bits(), x.to_bits(), "{x}");
                assert_eq!(of_exponent(3.0, zero, -x).to_bits(), x.to_bits(), "{x}");
            }
            assert_eq!(
                (euclidean(x, f64::NEG_INFINITY), of_exponent(0.5, f64::INFINITY, x)),
                (f64::INFINITY, f64::INFINITY)
            );
            for (a, b) in [(f64::NAN, x), (x, f64::NAN), (f64::NAN, f64::INFINITY), (f64::INFINITY, f64::NAN)]
            {
                assert!(euclidean(a, b).is_nan() && of_exponent(3.0, a, b).is_nan());
            }
        }
    }
}
