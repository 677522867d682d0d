//! Draws of integers: random bits, and integers of a range.
//!
//! Threefry's draws, as JAX's, take twice the n bits of the dtype, at least 64, as one number `high 2^n +
//! low` modulo the span, so that no integer is much likelier than another. Bits beyond n wrap, and `2^n`
//! modulo the span becomes 0 if the span is more than its root: then the lower bits alone decide. Philox's
//! draws, as PyTorch's, take n bits modulo the span; the draw of all integers of a dtype is its bits.

use reshard_layout::IndexRun;

use super::draw::Draw;
use super::fill_blocks;
use super::key::Key;
use super::recipe::{Formula, Kind};
use super::words::{BLOCK, Block, words32, words64};
use crate::{DType, Error};

/// Minimum span of 32 bits that philox rejects unless it is a power of two.
///
/// For a wider one, some integers would be likelier than others by more than a sixteenth.
const MOST_OF_32_BITS: i128 = 1 << 28;

/// Fails if a remainder would be far from even.
pub(super) fn check_span(key: &Key, draw: Draw, dtype: DType) -> Result<(), Error> {
    if let (Key::Philox { .. }, Draw::RandInt { low, high }) = (key, draw) {
        // The draw has been checked, so that its span fits.
        let span = high - low;
        if dtype.bits() <= 32 && span >= MOST_OF_32_BITS && span & (span - 1) != 0 {
            let reason = format!(
                "philox takes 32 bits modulo {span}, which is far from uniform; use i64, u64, threefry or a power of two"
            );
            return Err(draw.refused(reason));
        }
    }
    Ok(())
}

/// An integer type that can be drawn: the lowest bits of its word.
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

/// Writes the integers of a formula; signed ones are the bits of unsigned ones.
pub(super) fn fill(f: &Formula, dtype: DType, dst: &mut [u8], runs: impl Iterator<Item = IndexRun>) {
    match dtype {
        DType::U8 | DType::I8 => narrow::<u8>(f, dst, runs),
        DType::U16 | DType::I16 => narrow::<u16>(f, dst, runs),
        DType::U32 | DType::I32 => narrow::<u32>(f, dst, runs),
        DType::U64 | DType::I64 => wide(f, dst, runs),
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

/// Takes the remainder of two words of `n` bits by a span.
///
/// A span of 2^n, which is 0 here, leaves the lower word.
macro_rules! from_words {
    ($name:ident, $word:ty, $words:ident, $t:ident: $bound:path) => {
        fn $name<$t: $bound>(f: &Formula, dst: &mut [u8], runs: impl Iterator<Item = IndexRun>) {
            let mut words = [0; BLOCK];
            if f.kind != Kind::Remainder {
                return fill_blocks(dst, runs, |block: &Block, out: &mut [$t; BLOCK]| {
                    $words(&f.key, block, &mut words);
                    for (out, &word) in out.iter_mut().zip(&words) {
                        *out = <$t>::lowest(u64::from(word));
                    }
                });
            }
            let (base, modulus, power) = (f.base as $word, f.modulus as $word, f.power as $word);
            let rem = |x: $word| x.checked_rem(modulus).unwrap_or(x);
            match f.key {
                Key::Philox { .. } => fill_blocks(dst, runs, |block: &Block, out: &mut [$t; BLOCK]| {
                    $words(&f.key, block, &mut words);
                    for (out, &word) in out.iter_mut().zip(&words) {
                        *out = <$t>::lowest(u64::from(base.wrapping_add(rem(word))));
                    }
                }),
                Key::Threefry(_) => {
                    let mut upper_words = [0; BLOCK];
                    fill_blocks(dst, runs, |block: &Block, out: &mut [$t; BLOCK]| {
                        $words(&f.key, block, &mut upper_words);
                        $words(&f.second, block, &mut words);
                        for ((out, &upper), &lower) in out.iter_mut().zip(&upper_words).zip(&words) {
                            let offset = rem(rem(upper).wrapping_mul(power).wrapping_add(rem(lower)));
                            *out = <$t>::lowest(u64::from(base.wrapping_add(offset)));
                        }
                    });
                }
            }
        }
    };
}
from_words!(narrow, u32, words32, T: Integer);
from_words!(wide_of, u64, words64, T: Integer);

fn wide(f: &Formula, dst: &mut [u8], runs: impl Iterator<Item = IndexRun>) {
    wide_of::<u64>(f, dst, runs);
}
