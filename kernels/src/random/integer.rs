//! Draws of integers: random bits, and integers of a range.
//!
//! Threefry's, as JAX's, take twice the n bits of the dtype, at least 64, as one number `high 2^n + low` modulo the span, so that no
//! integer is much likelier than another. What does not fit n bits wraps, and of 2^n nothing is left where the span is more than
//! its root: then the lower bits alone decide. Philox's, as PyTorch's, take n bits modulo the span; all integers of a dtype are
//! its bits.

use reshard_layout::IndexRun;

use super::draw::{Draw, range_of};
use super::fill_blocks;
use super::key::Key;
use super::words::{BLOCK, Block, words32, words64};
use crate::{DType, Error};

/// The widest span of 32 bits that is no power of two by philox: of a wider one, some integers would be likelier than others by more
/// than a sixteenth.
const MOST_OF_32_BITS: i128 = 1 << 28;

/// Fails where a remainder would be far from even.
pub(super) fn check_span(key: &Key, draw: Draw, dtype: DType) -> Result<(), Error> {
    if let (Key::Philox { .. }, Draw::RandInt { low, high }) = (key, draw) {
        // The draw has been checked, so that its span fits.
        let span = high - low;
        if dtype.bits() <= 32 && span >= MOST_OF_32_BITS && span & (span - 1) != 0 {
            let reason = format!(
                "philox takes 32 bits modulo {span}, which is far from even: take i64, u64, threefry or a power of two"
            );
            return Err(draw.refused(reason));
        }
    }
    Ok(())
}

/// An integer that is drawn: the lowest bits of a word.
trait Integer: bytemuck::Pod {
    fn lowest(word: u64) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Integer for $t {
            #[inline(always)]
            fn lowest(word: u64) -> $t {
                word as $t
            }
        }
    )*};
}
integers!(u8 u16 u32 u64);

/// The integers of a draw that has been checked; signed ones are the bits of unsigned ones.
pub(super) fn fill(
    key: &Key,
    draw: Draw,
    dtype: DType,
    dst: &mut [u8],
    runs: impl Iterator<Item = IndexRun>,
) {
    let draw = match (key, draw) {
        (Key::Philox { .. }, Draw::RandInt { low, high }) if range_of(dtype) == Some((low, high)) => {
            Draw::Bits
        }
        _ => draw,
    };
    match dtype {
        DType::U8 | DType::I8 => narrow::<u8>(key, draw, dst, runs),
        DType::U16 | DType::I16 => narrow::<u16>(key, draw, dst, runs),
        DType::U32 | DType::I32 => narrow::<u32>(key, draw, dst, runs),
        DType::U64 | DType::I64 => wide(key, draw, dst, runs),
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
        | DType::F64 => {}
    }
}

/// Of two words of `n` bits under 2^n the remainder by a span; a span of 2^n, which is 0 here, leaves the lower word.
macro_rules! from_words {
    ($name:ident, $word:ty, $words:ident, $t:ident: $bound:path) => {
        fn $name<$t: $bound>(key: &Key, draw: Draw, dst: &mut [u8], runs: impl Iterator<Item = IndexRun>) {
            let mut words = [0; BLOCK];
            let Draw::RandInt { low, high } = draw else {
                return fill_blocks(dst, runs, |block: &Block, out: &mut [$t; BLOCK]| {
                    $words(key, block, &mut words);
                    for (out, &word) in out.iter_mut().zip(&words) {
                        *out = <$t>::lowest(u64::from(word));
                    }
                });
            };
            let (low, span) = (low as $word, (high - low) as $word);
            let rem = |x: $word| x.checked_rem(span).unwrap_or(x);
            match key {
                Key::Philox { .. } => fill_blocks(dst, runs, |block: &Block, out: &mut [$t; BLOCK]| {
                    $words(key, block, &mut words);
                    for (out, &word) in out.iter_mut().zip(&words) {
                        *out = <$t>::lowest(u64::from(low.wrapping_add(rem(word))));
                    }
                }),
                Key::Threefry(_) => {
                    let half = rem(1 << (<$word>::BITS / 2));
                    let power = rem(half.wrapping_mul(half));
                    let (upper, lower) = (key.fold_in(0), key.fold_in(1));
                    let mut upper_words = [0; BLOCK];
                    fill_blocks(dst, runs, |block: &Block, out: &mut [$t; BLOCK]| {
                        $words(&upper, block, &mut upper_words);
                        $words(&lower, block, &mut words);
                        for ((out, &a), &b) in out.iter_mut().zip(&upper_words).zip(&words) {
                            let offset = rem(rem(a).wrapping_mul(power).wrapping_add(rem(b)));
                            *out = <$t>::lowest(u64::from(low.wrapping_add(offset)));
                        }
                    });
                }
            }
        }
    };
}
from_words!(narrow, u32, words32, T: Integer);
from_words!(wide_of, u64, words64, T: Integer);

fn wide(key: &Key, draw: Draw, dst: &mut [u8], runs: impl Iterator<Item = IndexRun>) {
    wide_of::<u64>(key, draw, dst, runs);
}
