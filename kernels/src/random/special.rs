//! Elementary functions of distributions: the natural logarithm and the inverse error function, from sums and
//! products.
//!
//! No operation is fused and none is a library's, so every machine gives the same bits. No loop over them has
//! a branch.

use std::ops::{Add, Mul, Sub};

use super::coefficients::{
    erf_inv_inner_f32, erf_inv_inner_f64, erf_inv_middle_f64, erf_inv_outer_f32, erf_inv_outer_f64,
    ln_single_terms, log1p_denominator, log1p_numerator,
};

/// The type of the arithmetic: f32, also for elements of 16 bits, or f64.
pub(super) trait Wide:
    Copy + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Into<f64> + Default
{
    /// Returns `self * a + b`, rounded once.
    fn fused(self, a: Self, b: Self) -> Self;
    /// Returns the logarithm of a number from 0 to 2.
    fn ln(self) -> Self;
    /// Returns `ln(1 - self)` of a number of [0, 1).
    fn ln_one_less(self) -> Self;
    /// Returns the inverse of the error function, of numbers from -1 to 1.
    fn erf_inv(self) -> Self;
}

/// Returns `true` if a product with this number is exact.
pub(super) fn is_power_of_two(x: f64) -> bool {
    x.is_normal() && x.to_bits().trailing_zeros() >= 52
}

const LN2_HIGH: f64 = 6.931_471_803_691_238e-1; // its last 32 bits are 0, so that products with exponents are exact
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Returns the logarithm by `x = 2^e m`, `m` between the roots of 1/2 and 2.
///
/// It uses `TERMS` summands of the series of `2 artanh((m-1)/(m+1))`: 7 suffice for f32, 12 for f64, as
/// `(m-1)/(m+1)` is at most 0.172.
#[inline(always)]
fn ln<const TERMS: usize>(x: f64) -> f64 {
    const ROOT_OF_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    // The ratio of x to the root of 1/2, as bits: its exponent is e, its mantissa the ratio of m to the root.
    let bits = x.to_bits().wrapping_add(0x3ff0_0000_0000_0000 - ROOT_OF_HALF);
    let exponent = f64::from_bits(0x4330_0000_0000_0000 | bits >> 52) - (4_503_599_627_370_496.0 + 1023.0);
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) + ROOT_OF_HALF);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut sum = 0.0;
    for k in (1..TERMS).rev() {
        sum = (sum + 1.0 / (2 * k + 1) as f64) * z;
    }
    let series = s + s * sum;
    exponent * LN2_HIGH + (2.0 * series + exponent * LN2_LOW)
}

/// Returns the logarithm in f32, with an error of at most 2 ulps.
///
/// It processes four numbers at once where f64 has two. It serves the inverse of the error function, whose
/// results for every fraction have been compared with JAX's.
#[inline(always)]
fn ln_single(x: f32) -> f32 {
    const ROOT_OF_HALF: u32 = 0x3f35_04f3;
    let bits = x.to_bits().wrapping_add(0x3f80_0000 - ROOT_OF_HALF);
    let exponent = ((bits >> 23) as i32 - 127) as f32;
    let m = f32::from_bits((bits & 0x007f_ffff) + ROOT_OF_HALF);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let sum = ln_single_terms!(z) * z;
    let series = 2.0 * s + 2.0 * s * sum;
    // The upper part of ln 2 has so few digits that its products with exponents are exact.
    exponent * 0.693_359_4 + (series + exponent * -2.121_944_4e-4)
}

impl Wide for f32 {
    /// Computes in doubles, where the product is exact.
    ///
    /// The sum is rounded to odd, so that double rounding is correct.
    #[inline(always)]
    fn fused(self, a: f32, b: f32) -> f32 {
        let (product, b) = (f64::from(self) * f64::from(a), f64::from(b));
        let sum = product + b;
        let rest = sum - product;
        let error = (product - (sum - rest)) + (b - rest);
        // If there is a remainder, the sum that is nearer to 0, with its last bit set.
        let bits = sum.to_bits();
        let toward_zero = bits - u64::from((error < 0.0) == (sum > 0.0) && error != 0.0);
        let odd = toward_zero | u64::from(error != 0.0);
        f64::from_bits(odd) as f32
    }

    #[inline(always)]
    fn ln(self) -> f32 {
        ln::<7>(f64::from(self)) as f32
    }

    #[inline(always)]
    fn ln_one_less(self) -> f32 {
        ln::<7>(1.0 - f64::from(self)) as f32
    }

    /// Uses the polynomials of Giles, "Approximating the erfinv function" (2010), in XLA's form.
    #[inline(always)]
    fn erf_inv(self) -> f32 {
        let w = 0.0 - ln_single(1.0 - self * self);
        let inner = erf_inv_inner_f32!(w - 2.5);
        let outer = erf_inv_outer_f32!(w.sqrt() - 3.0);
        let p = if w < 5.0 { inner } else { outer };
        let p = if self.abs() < 1.0 { p } else { f32::INFINITY };
        p * self
    }
}

impl Wide for f64 {
    #[inline(always)]
    fn fused(self, a: f64, b: f64) -> f64 {
        self.mul_add(a, b)
    }

    #[inline(always)]
    fn ln(self) -> f64 {
        ln::<12>(self)
    }

    /// Uses the rational function of Cephes' `log1p` up to `sqrt(2) - 1`, because XLA does so too.
    ///
    /// It is designed for less than 0.29, and has an error of up to 100 ulps beyond; an exact function would
    /// differ from JAX by as much.
    #[inline(always)]
    fn ln_one_less(self) -> f64 {
        let x = 0.0 - self;
        let numerator = log1p_numerator!(x);
        let denominator = log1p_denominator!(x);
        let z = x * x;
        let near = x + (x * (z * numerator / denominator) - 0.5 * z);
        if self < std::f64::consts::SQRT_2 - 1.0 { near } else { ln::<12>(1.0 - self) }
    }

    /// Uses the polynomials of Giles, in XLA's form.
    #[inline(always)]
    fn erf_inv(self) -> f64 {
        let w = 0.0 - (self * self).ln_one_less();
        let inner = erf_inv_inner_f64!(w - 3.125);
        let middle = erf_inv_middle_f64!(w.sqrt() - 3.25);
        let outer = erf_inv_outer_f64!(w.sqrt() - 5.0);
        let p = if w < 16.0 { middle } else { outer };
        let p = if w < 6.25 { inner } else { p };
        let p = if self.abs() < 1.0 { p } else { f64::INFINITY };
        p * self
    }
}

#[cfg(test)]
mod tests {
    use super::Wide;

    /// Tests numbers over the whole range of floats, and those whose sums end halfway between two of them.
    #[test]
    fn a_fused_product_and_sum_is_rounded_once() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        let (mut tried, mut double_rounding_matters) = (0, 0);
        for round in 0..400_000 {
            let [a, b, c] = [next(), next(), next()];
            let exponent = |x: u32, e: u32| f32::from_bits(x & 0x807f_ffff | e << 23);
            let (mut a, mut b) = (exponent(a, 100 + next() % 54), exponent(b, 100 + next() % 54));
            let mut c = exponent(c, 90 + next() % 80);
            if round % 2 == 0 {
                // An odd product of 25 bits is halfway between two floats, and the summand is too small for a
                // double.
                [a, b] = [a, b].map(|x| (x.to_bits() % 1024) as f32 * 2.0 + 4097.0);
                c = exponent(c.to_bits(), 60 + next() % 30);
            }
            let want = a.mul_add(b, c);
            assert_eq!(a.fused(b, c).to_bits(), want.to_bits(), "{a:e} {b:e} {c:e}");
            tried += 1;
            let twice = (f64::from(a) * f64::from(b) + f64::from(c)) as f32;
            double_rounding_matters += u32::from(twice != want);
        }
        for (a, b, c) in [
            (1.0f32, 1.0, -1.0),
            (0.0, 1.0, 0.0),
            (0.5, -2.0, 1.0),
            (16_777_215.0, 16_777_215.0, 1.0),
            (4097.0, 4095.0, 1.0 + 1e-7),
        ] {
            for (a, c) in [(a, c), (-a, c), (a, -c), (-a, -c)] {
                assert_eq!(a.fused(b, c), a.mul_add(b, c), "{a:e} {b:e} {c:e}");
            }
        }
        assert!(tried > 0 && double_rounding_matters > 0, "{double_rounding_matters} of {tried}");
    }

    /// The result is within 1.5 ulps of the machine's library.
    ///
    /// The library has an error of that size itself.
    #[test]
    fn logarithms_are_those_of_a_library() {
        let ulps = |a: f64, b: f64| a.to_bits().abs_diff(b.to_bits());
        let (mut worst, mut worst32) = (0, 0);
        for i in 1..100_000u32 {
            for x in [f64::from(i) / 100_000.0, 1.0 - f64::from(i) * 1e-11, f64::from(i) * 1e-300] {
                worst = worst.max(ulps(-Wide::ln(x), -libm::log(x)));
                let single = x as f32;
                if single > 0.0 && single < 1.0 {
                    let want = libm::log(f64::from(single)) as f32;
                    worst32 = worst32.max(Wide::ln(single).to_bits().abs_diff(want.to_bits()));
                }
            }
        }
        assert!(worst <= 3 && worst32 <= 1, "{worst} {worst32}");
        assert_eq!((Wide::ln(1.0f32), Wide::ln(1.0f64)), (0.0, 0.0));
        assert!(
            0.0f64.erf_inv() == 0.0
                && 1.0f32.erf_inv() == f32::INFINITY
                && (-1.0f64).erf_inv() == f64::NEG_INFINITY
        );
    }
}
