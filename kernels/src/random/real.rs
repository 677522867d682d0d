//! The floats that can be drawn: conversion of random bits to fractions, and the rounding of each operation.
//!
//! f16 and bf16 are computed in f32 and rounded after every operation, as JAX does.

use half::{bf16, f16};

use super::key::Key;
use super::recipe::{Formula, Stretch};
use super::special::Wide;
use super::words::{BLOCK, Block, words32, words64};
use crate::DType;

/// A float type that can be drawn.
pub(super) trait Real: bytemuck::Pod {
    /// The type of its arithmetic.
    type Wide: Wide;

    /// Rounds to the nearest element, in the wide type.
    fn round(x: Self::Wide) -> Self::Wide;
    /// Converts a rounded value to the element.
    fn narrow(x: Self::Wide) -> Self;
    /// Returns the nearest element of a number.
    fn of(x: f64) -> Self::Wide;
    /// Returns the neighbour in the direction of infinity, or of minus infinity.
    fn next(x: Self::Wide, up: bool) -> Self::Wide;
    /// Returns the least positive element that is not subnormal.
    fn tiny() -> Self::Wide;
    /// Computes fractions of [0, 1): threefry's have as many bits as the mantissa, philox's one more.
    fn fractions(key: &Key, block: &Block, out: &mut [Self::Wide; BLOCK]);
}

/// Implements [`Real`]; a JAX fraction is 1 with the upper bits of the word as its mantissa, minus 1.
macro_rules! real {
    ($t:ty, $wide:ty, $word:ty, $words:ident,
     threefry $threefry:expr, philox $philox:expr, round $round:expr, narrow $narrow:expr, of $of:expr, tiny $tiny:expr) => {
        impl Real for $t {
            type Wide = $wide;
            #[inline(always)]
            fn round(x: $wide) -> $wide {
                $round(x)
            }
            #[inline(always)]
            fn narrow(x: $wide) -> $t {
                $narrow(x)
            }
            fn of(x: f64) -> $wide {
                $of(x)
            }
            fn next(x: $wide, up: bool) -> $wide {
                let x: $t = $narrow(x);
                // Zero has neighbours of either sign.
                let zero = <$t>::default();
                let bits = x.to_bits();
                let next = if x == zero {
                    let least = <$t>::from_bits(1);
                    return <$wide>::from(if up { least } else { -least });
                } else if (x > zero) == up {
                    bits + 1
                } else {
                    bits - 1
                };
                <$wide>::from(<$t>::from_bits(next))
            }
            fn tiny() -> $wide {
                <$wide>::from($tiny)
            }
            fn fractions(key: &Key, block: &Block, out: &mut [$wide; BLOCK]) {
                let mut words = [0; BLOCK];
                $words(key, block, &mut words);
                match key {
                    Key::Threefry(_) => {
                        for (x, &word) in out.iter_mut().zip(&words) {
                            *x = $threefry(word);
                        }
                    }
                    Key::Philox { .. } => {
                        for (x, &word) in out.iter_mut().zip(&words) {
                            *x = $philox(word);
                        }
                    }
                }
            }
        }
    };
}

real!(
    f32, f32, u32, words32,
    threefry |word: u32| f32::from_bits(word >> 9 | 0x3f80_0000) - 1.0,
    philox |word: u32| fraction(word, 24),
    round |x: f32| x,
    narrow |x: f32| x,
    of |x: f64| x as f32,
    tiny f32::MIN_POSITIVE
);
real!(
    f64, f64, u64, words64,
    threefry |word: u64| f64::from_bits(word >> 12 | 0x3ff0_0000_0000_0000) - 1.0,
    philox |word: u64| (word & ((1 << 53) - 1)) as f64 * (1.0 / (1u64 << 53) as f64),
    round |x: f64| x,
    narrow |x: f64| x,
    of |x: f64| x,
    tiny f64::MIN_POSITIVE
);
real!(
    bf16, f32, u32, words32,
    threefry |word: u32| ((word >> 1) & 0x7f) as i32 as f32 * (1.0 / 128.0),
    philox |word: u32| fraction(word, 8),
    round |x: f32| widened(crate::element::narrow(x)),
    narrow crate::element::narrow,
    of |x: f64| bf16::from_f64(x).to_f32(),
    tiny bf16::MIN_POSITIVE
);
real!(
    f16, f32, u32, words32,
    threefry |word: u32| ((word >> 6) & 0x3ff) as i32 as f32 * (1.0 / 1024.0),
    philox |word: u32| fraction(word, 11),
    round |x: f32| f16::from_f32(x).to_f32(),
    narrow f16::from_f32,
    of |x: f64| f16::from_f64(x).to_f32(),
    tiny f16::MIN_POSITIVE
);

fn widened(x: bf16) -> f32 {
    crate::element::widen(x)
}

/// Returns the lowest bits of the word as a fraction.
#[inline(always)]
fn fraction(word: u32, bits: u32) -> f32 {
    (word & ((1 << bits) - 1)) as i32 as f32 * (1.0 / (1u32 << bits) as f32)
}

/// Evaluates an expression for the float type of a dtype; `None` if it cannot be drawn.
macro_rules! of_float {
    ($dtype:expr, $T:ident => $of:expr) => {
        match $dtype {
            DType::F64 => {
                type $T = f64;
                Some($of)
            }
            DType::F32 => {
                type $T = f32;
                Some($of)
            }
            DType::BF16 => {
                type $T = bf16;
                Some($of)
            }
            DType::F16 => {
                type $T = f16;
                Some($of)
            }
            DType::Bool
            | DType::F4
            | DType::F6_E2M3
            | DType::F6_E3M2
            | DType::U8
            | DType::I8
            | DType::F8_E5M2
            | DType::F8_E4M3
            | DType::F8_E8M0
            | DType::F8_E4M3FNUZ
            | DType::F8_E5M2FNUZ
            | DType::I16
            | DType::U16
            | DType::I32
            | DType::U32
            | DType::C64
            | DType::I64
            | DType::U64 => None,
        }
    };
}
pub(super) use of_float;

fn double(x: impl Wide) -> f64 {
    x.into()
}

/// Returns the nearest element of a number; `None` if the dtype is not a float that can be drawn.
pub(super) fn in_dtype(dtype: DType, x: f64) -> Option<f64> {
    of_float!(dtype, T => double(<T as Real>::of(x)))
}

/// Returns the neighbour of an element, up or down.
pub(super) fn next_in_dtype(dtype: DType, x: f64, up: bool) -> Option<f64> {
    of_float!(dtype, T => double(<T as Real>::next(<T as Real>::of(x), up)))
}

/// Returns the least positive element that is not subnormal.
pub(super) fn tiny_of(dtype: DType) -> Option<f64> {
    of_float!(dtype, T => double(<T as Real>::tiny()))
}

/// Computes the scaled fractions of a formula, in the wide type.
pub(super) fn stretched<T: Real>(f: &Formula, block: &Block, out: &mut [T::Wide; BLOCK]) {
    T::fractions(&f.key, block, out);
    let (low, span) = (T::of(f.low), T::of(f.span));
    let at_least = |x: T::Wide| if x > low { x } else { low };
    match f.stretch {
        Stretch::None => {}
        Stretch::Plain => {
            for x in out {
                *x = at_least(T::round(*x * span + low));
            }
        }
        Stretch::Fused => {
            for x in out {
                *x = at_least(x.fused(span, low));
            }
        }
        Stretch::Twice => {
            for x in out {
                *x = at_least(T::round(T::round(*x * span) + low));
            }
        }
    }
}
