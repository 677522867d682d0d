//! Exponents of norms.
//!
//! The `p` of `(|x_0|^p + |x_1|^p + ..)^(1/p)`, a decimal with at most three digits after the point, or
//! infinity. It is stored as a number of thousandths, so that it can be compared, hashed and printed exactly.
//! Its value is the double nearest to the decimal, the same as for the literals `2.5` or `3.3` in a program.
//! Reductions use it in two crates that share only this one.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// The exponent of a norm: 0.001 to 65 in steps of 0.001, or infinity.
///
/// ```
/// use reshard_layout::Exponent;
/// let p: Exponent = "2.5".parse().unwrap();
/// assert_eq!((p.to_string().as_str(), p.value()), ("2.5", 2.5));
/// assert_eq!("inf".parse(), Ok(Exponent::INFINITY));
/// assert_eq!(Exponent::new(2.0), Some(Exponent::TWO));
/// let error = "0".parse::<Exponent>().unwrap_err();
/// assert_eq!(error.to_string(), "the exponent of a norm must be 0.001 to 65 with at most three decimals, or inf, not 0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Exponent(NonZeroU16);

/// The representation of infinity: one more than the greatest number of thousandths.
const INFINITE: NonZeroU16 = NonZeroU16::new(65_001).unwrap();

impl Exponent {
    /// The sum of magnitudes.
    pub const ONE: Exponent = Exponent(NonZeroU16::new(1000).unwrap());
    /// The Euclidean norm.
    pub const TWO: Exponent = Exponent(NonZeroU16::new(2000).unwrap());
    /// The cube root of the sum of cubes.
    #[doc(hidden)]
    pub const THREE: Exponent = Exponent(NonZeroU16::new(3000).unwrap());
    /// The greatest magnitude.
    pub const INFINITY: Exponent = Exponent(INFINITE);

    /// Returns the exponent with this value; `None` for other values.
    pub fn new(p: f64) -> Option<Exponent> {
        if p.is_nan() {
            return None;
        }
        p.to_string().parse().ok()
    }

    /// Returns a number of 1 to 65,001 for it.
    #[doc(hidden)]
    #[inline]
    pub const fn word(self) -> NonZeroU16 {
        self.0
    }

    /// Returns the exponent with a [`word`](Self::word).
    #[doc(hidden)]
    #[inline]
    pub const fn of_word(word: NonZeroU16) -> Exponent {
        if word.get() < INFINITE.get() { Exponent(word) } else { Exponent::INFINITY }
    }

    /// Returns `true` for infinity.
    #[doc(hidden)]
    pub const fn is_infinite(self) -> bool {
        self.0.get() == INFINITE.get()
    }

    /// Returns the value: the double nearest to the decimal, or infinity.
    pub fn value(self) -> f64 {
        if self.is_infinite() { f64::INFINITY } else { f64::from(self.0.get()) / 1000.0 }
    }
}

impl fmt::Display for Exponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value())
    }
}

/// The error for a text that is not an exponent of a norm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseExponentError(String);

impl fmt::Display for ParseExponentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(
            f,
            "the exponent of a norm must be 0.001 to 65 with at most three decimals, or inf, not {text}"
        )
    }
}

impl std::error::Error for ParseExponentError {}

impl FromStr for Exponent {
    type Err = ParseExponentError;

    fn from_str(text: &str) -> Result<Exponent, ParseExponentError> {
        if text == "inf" {
            return Ok(Exponent::INFINITY);
        }
        let thousandths = || -> Option<NonZeroU16> {
            let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
            let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
            let decimals = if digits(decimals) { decimals.trim_end_matches('0') } else { return None };
            if !digits(whole) || decimals.len() > 3 {
                return None;
            }
            let n: u16 = whole.parse::<u16>().ok()?.checked_mul(1000)?;
            NonZeroU16::new(n.checked_add(format!("{decimals:0<3}").parse().ok()?)?).filter(|n| *n < INFINITE)
        };
        thousandths().map(Exponent).ok_or_else(|| ParseExponentError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp, reason = "the same decimal")]
    fn every_exponent_is_the_decimal_that_it_prints() {
        for n in (1..=INFINITE.get()).filter_map(NonZeroU16::new) {
            let p = Exponent::of_word(n);
            assert_eq!(p.word(), n);
            assert_eq!(p.to_string().parse(), Ok(p));
            assert_eq!(Exponent::new(p.value()), Some(p));
            if !p.is_infinite() {
                let thousandths: f64 = format!("{:.3}", p.value()).replace('.', "").parse().unwrap();
                assert_eq!(thousandths.to_bits(), f64::from(n.get()).to_bits());
                assert_eq!(p.to_string().parse::<f64>().unwrap().to_bits(), p.value().to_bits());
            }
        }
        for (a, b) in
            [("2.0", "2"), ("02", "2"), ("2.500", "2.5"), ("0.5", "0.5"), ("64.999", "64.999"), ("65", "65")]
        {
            assert_eq!(a.parse::<Exponent>().unwrap().to_string(), b);
        }
    }

    #[test]
    fn what_is_no_exponent_is_refused_in_a_sentence() {
        let long = "1".repeat(1000);
        for text in [
            "", "0", "0.0", "-1", "65.001", "65.0010", "65.535", "66", "1.0001", "2.", ".5", "1e3", "+2",
            "NaN", "infinity", &long,
        ] {
            let error = text.parse::<Exponent>().unwrap_err().to_string();
            assert!(
                error.starts_with("the exponent of a norm must be 0.001 to 65") && error.len() < 140,
                "{error}"
            );
        }
        for p in [0.0, -1.0, 0.0001, 65.001, 1e300, f64::NAN, f64::NEG_INFINITY, 1.0 / 3.0] {
            assert_eq!(Exponent::new(p), None, "{p}");
        }
        assert_eq!(Exponent::new(f64::INFINITY), Some(Exponent::INFINITY));
    }
}
