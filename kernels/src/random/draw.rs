//! Draws: a distribution with its parameters, as a value and as a text.

use std::fmt;
use std::str::FromStr;

use super::real::in_dtype;
use crate::{DType, Error};

/// A distribution. Displays as it is parsed: `uniform(0,1)`; standard parameters may be omitted: `normal`.
///
/// ```
/// use reshard_kernels::random::Draw;
/// let draw: Draw = "uniform(-1,1)".parse()?;
/// assert_eq!(draw, Draw::Uniform { low: -1.0, high: 1.0 });
/// assert_eq!("normal".parse::<Draw>()?.to_string(), "normal(0,1)");
/// # Ok::<(), reshard_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Draw {
    /// Random bits: `u8`, `u16`, `u32`, `u64`.
    Bits,
    /// Evenly from `low` on and below `high`, except for rounding; floats.
    Uniform {
        /// The inclusive lower bound.
        low: f64,
        /// The exclusive upper bound.
        high: f64,
    },
    /// The normal distribution; floats.
    Normal {
        /// The mean.
        mean: f64,
        /// The deviation, at least 0.
        std: f64,
    },
    /// The standard normal distribution between `low` and `high`, both excluded; floats.
    TruncatedNormal {
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
    /// 1 with probability `p`, else 0: the same in every dtype; bool, integers, floats.
    Bernoulli {
        /// The probability, from 0 to 1.
        p: f64,
    },
    /// Integers from `low` on and below `high`.
    RandInt {
        /// The least integer.
        low: i128,
        /// The greatest integer plus one.
        high: i128,
    },
    /// The exponential distribution of rate 1; floats.
    Exponential,
    /// The standard Gumbel distribution; floats.
    Gumbel,
}

/// The dtypes that support a draw.
const UNSIGNED: &str = "u8, u16, u32, u64";
const FLOATS: &str = "f64, f32, bf16, f16";
const NUMBERS: &str = "bool, integers, f64, f32, bf16, f16";
const INTEGERS: &str = "integers";

/// Returns the least integer of a dtype and its greatest plus one; `None` if it has no integers.
pub(super) fn range_of(dtype: DType) -> Option<(i128, i128)> {
    let signed = |bits: u32| Some((-(1i128 << (bits - 1)), 1i128 << (bits - 1)));
    let unsigned = |bits: u32| Some((0, 1i128 << bits));
    match dtype {
        DType::U8 => unsigned(8),
        DType::U16 => unsigned(16),
        DType::U32 => unsigned(32),
        DType::U64 => unsigned(64),
        DType::I8 => signed(8),
        DType::I16 => signed(16),
        DType::I32 => signed(32),
        DType::I64 => signed(64),
        DType::Bool
        | DType::F4
        | DType::F6_E2M3
        | DType::F6_E3M2
        | DType::F8_E5M2
        | DType::F8_E4M3
        | DType::F8_E8M0
        | DType::F8_E4M3FNUZ
        | DType::F8_E5M2FNUZ
        | DType::F16
        | DType::BF16
        | DType::F32
        | DType::C64
        | DType::F64 => None,
    }
}

impl Draw {
    /// Default parameters of `uniform`, `normal` and so on.
    #[doc(hidden)]
    pub const STANDARD: [Draw; 8] = [
        Draw::Bits,
        Draw::Uniform { low: 0.0, high: 1.0 },
        Draw::Normal { mean: 0.0, std: 1.0 },
        Draw::TruncatedNormal { low: -2.0, high: 2.0 },
        Draw::Bernoulli { p: 0.5 },
        Draw::RandInt { low: 0, high: 2 },
        Draw::Exponential,
        Draw::Gumbel,
    ];

    /// Returns the name, without parameters.
    pub fn name(self) -> &'static str {
        match self {
            Draw::Bits => "bits",
            Draw::Uniform { .. } => "uniform",
            Draw::Normal { .. } => "normal",
            Draw::TruncatedNormal { .. } => "truncated_normal",
            Draw::Bernoulli { .. } => "bernoulli",
            Draw::RandInt { .. } => "randint",
            Draw::Exponential => "exponential",
            Draw::Gumbel => "gumbel",
        }
    }

    /// Succeeds if the parameters are valid for this draw, in any dtype.
    ///
    /// Errors: [`Error::Draw`] if the range is empty or a parameter is invalid.
    pub(crate) fn check_numbers(self) -> Result<(), Error> {
        let finite = |numbers: &[f64]| match numbers.iter().find(|x| !x.is_finite()) {
            Some(x) => Err(self.refused(format!("{x} is not finite"))),
            None => Ok(()),
        };
        let ascend = |low: f64, high: f64| {
            if low < high {
                return Ok(());
            }
            Err(self.refused(format!("{} is not less than {}", short(low), short(high))))
        };
        match self {
            Draw::Bits | Draw::Exponential | Draw::Gumbel => Ok(()),
            Draw::Uniform { low, high } | Draw::TruncatedNormal { low, high } => {
                finite(&[low, high]).and_then(|()| ascend(low, high))
            }
            Draw::Normal { mean, std } => {
                finite(&[mean, std])?;
                if std < 0.0 {
                    return Err(self.refused(format!("the standard deviation {} is negative", short(std))));
                }
                Ok(())
            }
            Draw::Bernoulli { p } => {
                if (0.0..=1.0).contains(&p) {
                    return Ok(());
                }
                Err(self.refused(format!("the probability {} is not between 0 and 1", short(p))))
            }
            Draw::RandInt { low, high } => {
                if low < high {
                    return Ok(());
                }
                Err(self.refused(format!("{low} is not less than {high}")))
            }
        }
    }

    /// Succeeds if elements of `dtype` can be drawn.
    ///
    /// ```
    /// use reshard_kernels::{DType, random::Draw};
    /// let draw: Draw = "uniform(-1,1)".parse()?;
    /// assert_eq!(draw.check(DType::I32).unwrap_err().to_string(), "cannot draw uniform(-1,1) as i32; supported dtypes: f64, f32, bf16, f16");
    /// # Ok::<(), reshard_kernels::Error>(())
    /// ```
    ///
    /// Errors: [`Error::NoDraw`] for a dtype that does not support the draw, [`Error::Draw`] if its
    /// parameters are invalid, or not representable in this dtype.
    #[doc(hidden)]
    pub fn check(self, dtype: DType) -> Result<(), Error> {
        self.check_numbers()?;
        let range = range_of(dtype);
        let none = |fits: &'static str| Error::NoDraw { dtype, draw: self.to_string(), fits };
        match self {
            Draw::Bits => {
                if range.is_none_or(|(low, _)| low < 0) {
                    return Err(none(UNSIGNED));
                }
            }
            Draw::Bernoulli { .. } => {
                if range.is_none() && dtype != DType::Bool && in_dtype(dtype, 0.0).is_none() {
                    return Err(none(NUMBERS));
                }
            }
            Draw::RandInt { low, high } => {
                let Some((least, end)) = range else { return Err(none(INTEGERS)) };
                if low < least || high > end {
                    return Err(
                        self.refused(format!("{dtype} only has integers from {least} to {}", end - 1))
                    );
                }
            }
            Draw::Uniform { low, high } | Draw::TruncatedNormal { low, high } => {
                let (Some(a), Some(b)) = (in_dtype(dtype, low), in_dtype(dtype, high)) else {
                    return Err(none(FLOATS));
                };
                let span = in_dtype(dtype, b - a).unwrap_or(f64::NAN);
                if !(a.is_finite() && b.is_finite() && span.is_finite()) {
                    return Err(self.refused(format!("out of the range of {dtype}")));
                }
                if a >= b {
                    return Err(self.refused(format!("both bounds round to {} in {dtype}", short(a))));
                }
            }
            Draw::Normal { mean, std } => {
                let (Some(mean), Some(std)) = (in_dtype(dtype, mean), in_dtype(dtype, std)) else {
                    return Err(none(FLOATS));
                };
                if !(mean.is_finite() && std.is_finite()) {
                    return Err(self.refused(format!("out of the range of {dtype}")));
                }
            }
            Draw::Exponential | Draw::Gumbel => {
                if in_dtype(dtype, 0.0).is_none() {
                    return Err(none(FLOATS));
                }
            }
        }
        Ok(())
    }

    pub(super) fn refused(self, reason: String) -> Error {
        Error::Draw { draw: self.to_string(), reason }
    }
}

/// Returns the shorter of `1000` and `1e3`; both parse as the number.
fn short(x: f64) -> String {
    let (plain, scientific) = (format!("{x}"), format!("{x:e}"));
    if scientific.len() < plain.len() { scientific } else { plain }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match *self {
            Draw::Bits | Draw::Exponential | Draw::Gumbel => f.write_str(name),
            Draw::Uniform { low: a, high: b }
            | Draw::Normal { mean: a, std: b }
            | Draw::TruncatedNormal { low: a, high: b } => write!(f, "{name}({},{})", short(a), short(b)),
            Draw::Bernoulli { p } => write!(f, "{name}({})", short(p)),
            Draw::RandInt { low, high } => write!(f, "{name}({low},{high})"),
        }
    }
}

impl FromStr for Draw {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownDraw { text: text.to_owned() };
        let trimmed = text.trim();
        let (name, numbers) = match trimmed.split_once('(') {
            None => (trimmed, None),
            Some((name, rest)) => (name, Some(rest.strip_suffix(')').ok_or_else(unknown)?)),
        };
        let standard = Draw::STANDARD.into_iter().find(|draw| draw.name() == name).ok_or_else(unknown)?;
        let Some(numbers) = numbers else { return Ok(standard) };
        let numbers: Vec<&str> = numbers.split(',').map(str::trim).collect();
        let real = |text: &str| text.parse::<f64>().map_err(|_| unknown());
        let integer = |text: &str| text.parse::<i128>().map_err(|_| unknown());
        let draw = match (standard, &numbers[..]) {
            (Draw::Uniform { .. }, [a, b]) => Draw::Uniform { low: real(a)?, high: real(b)? },
            (Draw::Normal { .. }, [a, b]) => Draw::Normal { mean: real(a)?, std: real(b)? },
            (Draw::TruncatedNormal { .. }, [a, b]) => Draw::TruncatedNormal { low: real(a)?, high: real(b)? },
            (Draw::Bernoulli { .. }, [p]) => Draw::Bernoulli { p: real(p)? },
            (Draw::RandInt { .. }, [a, b]) => Draw::RandInt { low: integer(a)?, high: integer(b)? },
            (
                Draw::Bits
                | Draw::Exponential
                | Draw::Gumbel
                | Draw::Uniform { .. }
                | Draw::Normal { .. }
                | Draw::TruncatedNormal { .. }
                | Draw::Bernoulli { .. }
                | Draw::RandInt { .. },
                _,
            ) => return Err(unknown()),
        };
        draw.check_numbers()?;
        Ok(draw)
    }
}
