//! Conversion between floating-point types: elements are rounded once, to the nearest, ties to even.
//!
//! There is no instruction from 64 bits to 16, and rounding through 32 bits would round twice. An
//! intermediate step that rounds to odd does not: a number that 32 bits cannot represent becomes the
//! neighbour whose last bit is set. That neighbour is on the same side as the number of every 16-bit number,
//! and of every midpoint between two of them.

use half::{bf16, f16};

use crate::{DType, Error};

/// A floating-point type whose elements can be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Float {
    F16,
    BF16,
    F32,
    F64,
}

impl Float {
    fn of(dtype: DType) -> Option<Self> {
        let all = [
            (DType::F16, Self::F16),
            (DType::BF16, Self::BF16),
            (DType::F32, Self::F32),
            (DType::F64, Self::F64),
        ];
        all.into_iter().find(|(known, _)| *known == dtype).map(|(_, float)| float)
    }

    fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// A conversion of elements from one floating-point type to another.
///
/// ```
/// use reshard_kernels::{Cast, DType};
///
/// let cast = Cast::new(DType::F32, DType::BF16).unwrap();
/// let mut rounded = [0; 4];
/// let source = [1.0, f32::MAX].map(f32::to_le_bytes);
/// assert_eq!(cast.run(&mut rounded, source.as_flattened())?, 1); // one element became infinite
/// assert_eq!(rounded, [0x80, 0x3f, 0x80, 0x7f]);
/// assert_eq!(Cast::new(DType::F32, DType::I32), None);
/// # Ok::<(), reshard_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    from: Float,
    to: Float,
}

impl Cast {
    /// Returns the conversion between two of f16, bf16, f32 and f64; `None` for other types.
    pub fn new(from: DType, to: DType) -> Option<Self> {
        Some(Self { from: Float::of(from)?, to: Float::of(to)? })
    }

    /// Returns the bytes of an element before and after the conversion.
    pub fn element_bytes(self) -> (usize, usize) {
        (self.from.bytes(), self.to.bytes())
    }

    /// Converts all elements, and returns the number of finite ones that became infinite.
    ///
    /// Elements are little-endian. Errors: [`Error::SizeMismatch`] unless both have the same number of elements.
    pub fn run(self, target: &mut [u8], source: &[u8]) -> Result<u64, Error> {
        let (from, to) = self.element_bytes();
        let (target_elements, source_elements) = (target.len() / to, source.len() / from);
        if target_elements != source_elements
            || !target.len().is_multiple_of(to)
            || !source.len().is_multiple_of(from)
        {
            return Err(Error::SizeMismatch { target: target_elements, source: source_elements });
        }
        Ok(match self.from {
            Float::F16 => of::<f16>(self.to, target, source),
            Float::BF16 => of::<bf16>(self.to, target, source),
            Float::F32 => of::<f32>(self.to, target, source),
            Float::F64 => of::<f64>(self.to, target, source),
        })
    }
}

/// A floating-point number to convert.
trait Number: Sized + Copy {
    fn read(bytes: &[u8]) -> Option<Self>;
    fn wide(self) -> f64;
    /// Returns the nearest `f32`.
    fn single(self) -> f32;
    /// Returns the `f32` rounded to odd.
    fn odd(self) -> f32;
}

macro_rules! narrow_number {
    ($type:ty) => {
        impl Number for $type {
            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|bytes| Self::from_le_bytes(*bytes))
            }
            fn wide(self) -> f64 {
                self.into()
            }
            fn single(self) -> f32 {
                self.into()
            }
            fn odd(self) -> f32 {
                self.into()
            }
        }
    };
}

narrow_number!(f16);
narrow_number!(bf16);
narrow_number!(f32);

impl Number for f64 {
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self::from_le_bytes(*bytes))
    }

    fn wide(self) -> f64 {
        self
    }

    fn single(self) -> f32 {
        self as f32
    }

    #[allow(clippy::float_cmp, reason = "the test is for exact equality")]
    fn odd(self) -> f32 {
        let near = self as f32;
        if f64::from(near) == self || self.is_nan() {
            return near;
        }
        // The neighbour towards zero; setting its last bit yields it or the next one.
        let bits = near.to_bits();
        let towards_zero = if f64::from(near).abs() > self.abs() { bits - 1 } else { bits };
        f32::from_bits(towards_zero | 1)
    }
}

fn of<T: Number>(to: Float, target: &mut [u8], source: &[u8]) -> u64 {
    match to {
        Float::F16 => all::<T, 2>(target, source, |x| {
            let y = f16::from_f32(x.odd());
            (y.to_le_bytes(), y.is_infinite())
        }),
        Float::BF16 => all::<T, 2>(target, source, |x| {
            let y = bf16::from_f32(x.odd());
            (y.to_le_bytes(), y.is_infinite())
        }),
        Float::F32 => all::<T, 4>(target, source, |x| (x.single().to_le_bytes(), x.single().is_infinite())),
        Float::F64 => all::<T, 8>(target, source, |x| (x.wide().to_le_bytes(), x.wide().is_infinite())),
    }
}

fn all<T: Number, const N: usize>(
    target: &mut [u8],
    source: &[u8],
    convert: impl Fn(T) -> ([u8; N], bool),
) -> u64 {
    let mut became_infinite = 0;
    let elements = source.chunks_exact(size_of::<T>()).filter_map(T::read);
    for (x, out) in elements.zip(target.as_chunks_mut::<N>().0) {
        let (y, infinite) = convert(x);
        became_infinite += u64::from(infinite && x.wide().is_finite());
        *out = y;
    }
    became_infinite
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use reshard_test_support::Random;

    use super::Cast;
    use crate::DType;

    /// Returns the converted bytes, and the number of elements that became infinite.
    fn converted(from: DType, to: DType, bytes: &[u8]) -> (Vec<u8>, u64) {
        let cast = Cast::new(from, to).unwrap();
        let (before, after) = cast.element_bytes();
        let mut out = vec![0; bytes.len() / before * after];
        let infinite = cast.run(&mut out, bytes).unwrap();
        (out, infinite)
    }

    /// Every finite number of a type and the step after the largest, ascending.
    ///
    /// The definition of rounding searches in this list.
    fn ladder(of: impl Fn(u16) -> f64, infinite: u16) -> Vec<f64> {
        let mut all: Vec<f64> = (0..infinite).map(of).collect();
        let (last, before) = (all[all.len() - 1], all[all.len() - 2]);
        all.push(last + (last - before)); // from here on infinity
        all
    }

    /// The nearest number by distance; of two equally near ones, the one with an even code.
    #[allow(clippy::float_cmp, reason = "ties are exact")]
    fn nearest(ladder: &[f64], x: f64) -> u16 {
        let above = ladder.partition_point(|y| *y < x.abs());
        let (below, above) = (above.saturating_sub(1), above.min(ladder.len() - 1));
        let (down, up) = (x.abs() - ladder[below], ladder[above] - x.abs());
        let code = if up < down || (up == down && above % 2 == 0) { above } else { below };
        code as u16 | if x.is_sign_negative() { 0x8000 } else { 0 }
    }

    #[test]
    fn rounding_is_to_the_nearest_and_ties_to_even() {
        let mut r = Random(61);
        let halves = [
            (DType::F16, ladder(|code| f16::from_bits(code).to_f64(), 0x7c00)),
            (DType::BF16, ladder(|code| bf16::from_bits(code).to_f64(), 0x7f80)),
        ];
        for (to, ladder) in &halves {
            let mut numbers = vec![0.0, -0.0, f64::MIN_POSITIVE, 1e-300, 3e38, 1e300, f64::MAX];
            for at in 0..ladder.len() - 1 {
                // Each number, the midpoint to the next, and neighbours of the midpoint that 32 bits cannot
                // distinguish.
                let middle = f64::midpoint(ladder[at], ladder[at + 1]);
                numbers.extend([ladder[at], middle, middle.next_up(), middle.next_down()]);
            }
            numbers.extend((0..20_000).map(|_| f64::from_bits(r.next_u64())).filter(|x| !x.is_nan()));
            for x in numbers.iter().flat_map(|x| [*x, -*x]) {
                let (out, infinite) = converted(DType::F64, *to, &x.to_le_bytes());
                let expected = nearest(ladder, x);
                assert_eq!(u16::from_le_bytes([out[0], out[1]]), expected, "{x:e} to {to:?}");
                let overflows = (expected & 0x7fff) as usize == ladder.len() - 1 && x.is_finite();
                assert_eq!(infinite, u64::from(overflows), "{x:e}");
                // Converts from 32 bits too.
                let y = x as f32;
                let (out, _) = converted(DType::F32, *to, &y.to_le_bytes());
                assert_eq!(
                    u16::from_le_bytes([out[0], out[1]]),
                    nearest(ladder, y.into()),
                    "{y:e} to {to:?}"
                );
            }
        }
    }

    #[test]
    fn widening_is_exact_and_comes_back() {
        for code in 0..=u16::MAX {
            for narrow in [DType::F16, DType::BF16] {
                for wide in [DType::F32, DType::F64] {
                    let (out, infinite) = converted(narrow, wide, &code.to_le_bytes());
                    assert_eq!(infinite, 0);
                    let (back, _) = converted(wide, narrow, &out);
                    let is_nan = if narrow == DType::F16 {
                        f16::from_bits(code).is_nan()
                    } else {
                        bf16::from_bits(code).is_nan()
                    };
                    let back = u16::from_le_bytes([back[0], back[1]]);
                    let same = if is_nan { back & 0x7fff > 0x7c00 } else { back == code };
                    assert!(same, "{code:#x} {narrow:?} {wide:?} {back:#x}");
                }
            }
        }
    }
}
