//! Swizzles: exchanging bits of an index so that neighbours fall into different banks of memory.
//!
//! ```text
//! Sw<b,m,s>(x)  =  x xor ((x and Y) >> s)        Y = b ones at bit m + s        s >= 0
//!               =  x xor ((x and Y) << -s)       Y = b ones at bit m            s < 0
//! ```
//!
//! A swizzle is linear over the bits. For `|s| >= b` the bits that are read are not written, and it is its
//! own inverse; for `0 < |s| < b` it is a bijection that need not be; for `s = 0` and `b > 0` it clears bits,
//! `x and not Y`.
//!
//! Source: CuTe, `cute/swizzle.hpp`.

use std::fmt;
use std::str::FromStr;

use crate::algebra::recognise;
use crate::notation::Cursor;
use crate::{Error, ErrorCode, Layout, Operation};

/// A swizzle `Sw<b,m,s>`, a function on the integers that are not negative.
///
/// ```
/// use reshard_layout::Swizzle;
///
/// let swizzle: Swizzle = "Sw<2,0,3>".parse()?;
/// assert_eq!(swizzle.at(0b01_000)?, 0b01_001);
/// assert_eq!(swizzle.at(0b11_010)?, 0b11_001);
/// assert_eq!(Swizzle::new(2, 0, -3)?.at(0b00_001)?, 0b01_001);
/// assert_eq!(Swizzle::new(2, 1, 0)?.at(0b1111)?, 0b1001);
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Swizzle {
    bits: u8,
    base: u8,
    shift: i8,
}

impl Swizzle {
    /// `Sw<0,0,0>`, which changes nothing.
    pub(crate) const IDENTITY: Self = Self { bits: 0, base: 0, shift: 0 };

    /// The number of bits of an index.
    const WIDTH: u8 = 62;

    /// Returns the swizzle of `bits` bits, shifted by `shift`, with `base` unchanged low bits.
    ///
    /// # Errors
    ///
    /// `too_large` if `bits + base + |shift|` is more than 62.
    pub fn new(bits: u8, base: u8, shift: i8) -> Result<Self, Error> {
        let reach = u16::from(bits) + u16::from(base) + u16::from(shift.unsigned_abs());
        if reach > u16::from(Self::WIDTH) {
            return Err(Error::TooLarge {
                what: crate::Counted::SwizzleBits,
                limit: usize::from(Self::WIDTH),
            });
        }
        Ok(Self { bits, base, shift })
    }

    /// Returns the number of bits exchanged.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Returns the number of low bits left alone.
    pub fn base(self) -> u8 {
        self.base
    }

    /// Returns the distance by which bits are shifted, to the right if positive.
    pub fn shift(self) -> i8 {
        self.shift
    }

    fn apply(self, value: i64) -> i64 {
        let ones = (1_i64 << self.bits) - 1;
        let distance = u32::from(self.shift.unsigned_abs());
        if self.shift >= 0 {
            value ^ ((value & (ones << (u32::from(self.base) + distance))) >> distance)
        } else {
            value ^ ((value & (ones << self.base)) << distance)
        }
    }

    /// Returns the value at an index that is not negative.
    ///
    /// # Errors
    ///
    /// `out_of_domain` for a negative index.
    pub fn at(self, index: i64) -> Result<i64, Error> {
        if index < 0 {
            return Err(Error::OutOfDomain { operation: Operation::Evaluate, value: index, size: i64::MAX });
        }
        Ok(self.apply(index))
    }

    /// Returns `true` if different indices have different values: unless it clears bits.
    #[doc(hidden)]
    pub fn is_bijective(self) -> bool {
        self.bits == 0 || self.shift != 0
    }

    /// Returns the layout `R` with `R(i) = Sw(A(i))` whose shape refines that of `A`, by enumeration.
    ///
    /// Use [`ComposedLayout`](crate::algebra::ComposedLayout) where the result is not a layout.
    ///
    /// ```
    /// use reshard_layout::{Layout, Swizzle};
    ///
    /// let swizzle: Swizzle = "Sw<2,0,3>".parse()?;
    /// assert_eq!(swizzle.compose(&"(4,4):(8,1)".parse()?).unwrap_err().code(), "not_representable");
    /// assert_eq!(swizzle.compose(&"(2,2):(8,16)".parse()?)?.to_string(), "(2,2):(9,18)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out_of_domain` if `A` has negative values, `not_representable`, `undecided` beyond 2^18
    /// indices.
    pub fn compose(self, inner: &Layout) -> Result<Layout, Error> {
        if inner.min_value() < 0 {
            let value = inner.min_value();
            return Err(Error::OutOfDomain { operation: Operation::Compose, value, size: i64::MAX });
        }
        recognise(inner, |index| self.apply(index)).map_err(|refusal| refusal.into_error(self.into(), inner))
    }

    /// Returns the swizzle that is `self` after `first`, if it is one.
    ///
    /// ```
    /// use reshard_layout::Swizzle;
    ///
    /// let [a, b]: [Swizzle; 2] = ["Sw<1,0,3>".parse()?, "Sw<2,0,3>".parse()?];
    /// assert_eq!(a.after(a).map(|s| s.to_string()), Some("Sw<0,0,0>".to_owned()));
    /// assert_eq!(a.after(b).map(|s| s.to_string()), Some("Sw<1,1,3>".to_owned()));
    /// assert_eq!(a.after("Sw<1,0,1>".parse()?), None);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn after(self, first: Self) -> Option<Self> {
        // Both are linear over the bits, so the effect on every single bit determines the result.
        Self::of_bits((0..Self::WIDTH).map(|bit| {
            let unit = 1_i64 << bit;
            (unit, self.apply(first.apply(unit)) ^ unit)
        }))
    }

    /// Returns the swizzle that adds to each of these bits, ascending, the paired value, if there is one.
    pub(crate) fn of_bits(acts: impl IntoIterator<Item = (i64, i64)>) -> Option<Self> {
        let mut found: Option<Self> = None;
        for (unit, added) in acts {
            let bit = u8::try_from(unit.trailing_zeros()).ok()?;
            if added == 0 {
                continue;
            }
            if added.count_ones() != 1 {
                return None;
            }
            let shift = i8::try_from(bit).ok()? - i8::try_from(added.trailing_zeros()).ok()?;
            found = match found {
                None => Some(Self {
                    bits: 1,
                    base: if shift >= 0 { bit - shift.unsigned_abs() } else { bit },
                    shift,
                }),
                Some(so_far) => {
                    let next = so_far.base + so_far.bits + u8::try_from(so_far.shift.max(0)).ok()?;
                    if shift != so_far.shift || bit != next {
                        return None;
                    }
                    Some(Self { bits: so_far.bits + 1, ..so_far })
                }
            };
        }
        Some(found.unwrap_or(Self::IDENTITY))
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sw<{},{},{}>", self.bits, self.base, self.shift)
    }
}

impl Cursor<'_> {
    pub(crate) fn swizzle(&mut self) -> Result<Swizzle, Error> {
        let place = self.place();
        if self.word() != "Sw" {
            return Err(self.error_at(
                place,
                ErrorCode::Parse,
                "expected a swizzle like Sw<2,0,3>".to_owned(),
            ));
        }
        self.swizzle_parameters(place)
    }

    /// Returns the rest of a swizzle after its name.
    pub(crate) fn swizzle_parameters(&mut self, place: usize) -> Result<Swizzle, Error> {
        self.expect('<')?;
        let bits = self.integer()?;
        self.expect(',')?;
        let base = self.integer()?;
        self.expect(',')?;
        let shift = self.integer()?;
        self.expect('>')?;
        let small = u8::try_from(bits).ok().zip(u8::try_from(base).ok()).zip(i8::try_from(shift).ok());
        let Some(((bits, base), shift)) = small else {
            return Err(self.error_at(
                place,
                ErrorCode::TooLarge,
                "the swizzle has more than 62 bits".to_owned(),
            ));
        };
        Swizzle::new(bits, base, shift)
    }
}

impl FromStr for Swizzle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut cursor = Cursor::new(text);
        let swizzle = cursor.swizzle()?;
        cursor.finish()?;
        Ok(swizzle)
    }
}
