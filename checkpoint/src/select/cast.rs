//! Conversion between floating-point types: elements are rounded once, to the nearest, ties to even.
//!
//! There is no instruction from 64 bits to 16, and rounding through 32 bits would round twice. An
//! intermediate step that rounds to odd does not: a number that 32 bits cannot represent becomes the
//! neighbour whose last bit is set. That neighbour is on the same side as the number of every 16-bit number,
//! and of every midpoint between two of them.

use half::{bf16, f16};
use reshard_kernels::DType;
use safetensors::Dtype;

use crate::error::Error;
use crate::shown::Shown;

/// A floating-point type whose elements can be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float {
    F16,
    BF16,
    F32,
    F64,
}

impl Float {
    /// Returns the float type of a dtype; `None` for all other types.
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        let all = [
            (Dtype::F16, Self::F16),
            (Dtype::BF16, Self::BF16),
            (Dtype::F32, Self::F32),
            (Dtype::F64, Self::F64),
        ];
        all.into_iter().find(|(known, _)| *known == dtype).map(|(_, float)| float)
    }

    /// Returns the bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Returns the dtype of this name, in reshard's, NumPy's or PyTorch's spelling.
    pub(crate) fn named(name: &str) -> Result<Dtype, Error> {
        let all = [
            (DType::F16, Dtype::F16),
            (DType::BF16, Dtype::BF16),
            (DType::F32, Dtype::F32),
            (DType::F64, Dtype::F64),
        ];
        let named = name.parse::<DType>().ok();
        let found = all.into_iter().find(|(known, _)| Some(*known) == named);
        found.map(|(_, dtype)| dtype).ok_or_else(|| {
            let message =
                format!("tensors can be converted to f16, bf16, f32 or f64, not to `{}`", name.shown());
            Error::unsupported("dtype", message)
        })
    }
}

/// A conversion from one type to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cast {
    pub(crate) from: Float,
    pub(crate) to: Float,
}

impl Cast {
    /// Appends the converted elements; returns the number of finite ones that became infinite.
    pub(crate) fn append(self, bytes: &[u8], out: &mut Vec<u8>) -> u64 {
        match self.from {
            Float::F16 => of::<f16>(self.to, bytes, out),
            Float::BF16 => of::<bf16>(self.to, bytes, out),
            Float::F32 => of::<f32>(self.to, bytes, out),
            Float::F64 => of::<f64>(self.to, bytes, out),
        }
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

fn of<T: Number>(to: Float, bytes: &[u8], out: &mut Vec<u8>) -> u64 {
    match to {
        Float::F16 => all::<T, 2>(bytes, out, |x| {
            let y = f16::from_f32(x.odd());
            (y.to_le_bytes(), y.is_infinite())
        }),
        Float::BF16 => all::<T, 2>(bytes, out, |x| {
            let y = bf16::from_f32(x.odd());
            (y.to_le_bytes(), y.is_infinite())
        }),
        Float::F32 => all::<T, 4>(bytes, out, |x| (x.single().to_le_bytes(), x.single().is_infinite())),
        Float::F64 => all::<T, 8>(bytes, out, |x| (x.wide().to_le_bytes(), x.wide().is_infinite())),
    }
}

fn all<T: Number, const N: usize>(
    bytes: &[u8],
    out: &mut Vec<u8>,
    convert: impl Fn(T) -> ([u8; N], bool),
) -> u64 {
    let mut became_infinite = 0;
    for x in bytes.chunks_exact(size_of::<T>()).filter_map(T::read) {
        let (y, infinite) = convert(x);
        became_infinite += u64::from(infinite && x.wide().is_finite());
        out.extend_from_slice(&y);
    }
    became_infinite
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use reshard_test_support::Random;

    use super::{Cast, Float};

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
            (Float::F16, ladder(|code| f16::from_bits(code).to_f64(), 0x7c00)),
            (Float::BF16, ladder(|code| bf16::from_bits(code).to_f64(), 0x7f80)),
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
                let mut out = Vec::new();
                let infinite = Cast { from: Float::F64, to: *to }.append(&x.to_le_bytes(), &mut out);
                let expected = nearest(ladder, x);
                assert_eq!(u16::from_le_bytes([out[0], out[1]]), expected, "{x:e} to {to:?}");
                let overflows = (expected & 0x7fff) as usize == ladder.len() - 1 && x.is_finite();
                assert_eq!(infinite, u64::from(overflows), "{x:e}");
                // Converts from 32 bits too.
                let y = x as f32;
                let mut out = Vec::new();
                Cast { from: Float::F32, to: *to }.append(&y.to_le_bytes(), &mut out);
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
            for narrow in [Float::F16, Float::BF16] {
                for wide in [Float::F32, Float::F64] {
                    let (mut out, mut back) = (Vec::new(), Vec::new());
                    assert_eq!(Cast { from: narrow, to: wide }.append(&code.to_le_bytes(), &mut out), 0);
                    Cast { from: wide, to: narrow }.append(&out, &mut back);
                    let is_nan = match narrow {
                        Float::F16 => f16::from_bits(code).is_nan(),
                        Float::BF16 => bf16::from_bits(code).is_nan(),
                        Float::F32 | Float::F64 => unreachable!("they are not narrow"),
                    };
                    let back = u16::from_le_bytes([back[0], back[1]]);
                    let same = if is_nan { back & 0x7fff > 0x7c00 } else { back == code };
                    assert!(same, "{code:#x} {narrow:?} {wide:?} {back:#x}");
                }
            }
        }
    }
}
