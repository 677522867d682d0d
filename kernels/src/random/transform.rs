//! The transforms of distributions on fractions, a block of elements at a time.

use half::{bf16, f16};
use reshard_layout::IndexRun;

use super::fill_blocks;
use super::real::{Real, stretched};
use super::recipe::{Formula, Kind};
use super::special::Wide;
use super::words::{BLOCK, Block};
use crate::DType;

/// The factor that gives the inverse error function a deviation of 1.
const ROOT_OF_TWO: f64 = std::f64::consts::SQRT_2;

/// Writes the floats of a formula whose kind uses scaled fractions.
pub(super) fn fill<T: Real>(f: &Formula, dst: &mut [u8], runs: impl Iterator<Item = IndexRun>) {
    let root = T::of(ROOT_OF_TWO);
    let (a, b, zero) = (T::of(f.a), T::of(f.b), T::of(0.0));
    match f.kind {
        Kind::Bits | Kind::Remainder | Kind::Below => {}
        Kind::Stretched => each::<T>(f, dst, runs, |x| x),
        Kind::Normal => each::<T>(f, dst, runs, |x| normal::<T>(root, x)),
        Kind::NormalOf => each::<T>(f, dst, runs, |x| T::round(a + T::round(b * normal::<T>(root, x)))),
        Kind::Clamped => each::<T>(f, dst, runs, |x| {
            let x = normal::<T>(root, x);
            let x = if x > a { x } else { a };
            if x < b { x } else { b }
        }),
        Kind::Exponential => each::<T>(f, dst, runs, |x| zero - T::round(x.ln_one_less())),
        Kind::Gumbel => each::<T>(f, dst, runs, |x| zero - T::round((zero - T::round(x.ln())).ln())),
    }
}

#[inline(always)]
fn normal<T: Real>(root: T::Wide, x: T::Wide) -> T::Wide {
    T::round(root * T::round(x.erf_inv()))
}

/// Scales fractions, then transforms each to an element.
fn each<T: Real>(
    f: &Formula,
    dst: &mut [u8],
    runs: impl Iterator<Item = IndexRun>,
    made: impl Fn(T::Wide) -> T::Wide,
) {
    let mut wide = [T::Wide::default(); BLOCK];
    fill_blocks(dst, runs, |block: &Block, out: &mut [T; BLOCK]| {
        stretched::<T>(f, block, &mut wide);
        for (out, &x) in out.iter_mut().zip(&wide) {
            *out = T::narrow(made(x));
        }
    });
}

/// Writes 1 if a fraction of f32 is below `a`, else 0, in any dtype.
pub(super) fn below(f: &Formula, dtype: DType, dst: &mut [u8], runs: impl Iterator<Item = IndexRun>) {
    match dtype {
        DType::Bool | DType::U8 | DType::I8 => ones(f, (0u8, 1), dst, runs),
        DType::U16 | DType::I16 => ones(f, (0u16, 1), dst, runs),
        DType::U32 | DType::I32 => ones(f, (0u32, 1), dst, runs),
        DType::U64 | DType::I64 => ones(f, (0u64, 1), dst, runs),
        DType::F16 => ones(f, (f16::ZERO, f16::ONE), dst, runs),
        DType::BF16 => ones(f, (bf16::ZERO, bf16::ONE), dst, runs),
        DType::F32 => ones(f, (0f32, 1.0), dst, runs),
        DType::F64 => ones(f, (0f64, 1.0), dst, runs),
        DType::F4
        | DType::F6_E2M3
        | DType::F6_E3M2
        | DType::F8_E5M2
        | DType::F8_E4M3
        | DType::F8_E8M0
        | DType::F8_E4M3FNUZ
        | DType::F8_E5M2FNUZ
        | DType::C64 => {}
    }
}

fn ones<T: bytemuck::Pod>(
    f: &Formula,
    (zero, one): (T, T),
    dst: &mut [u8],
    runs: impl Iterator<Item = IndexRun>,
) {
    let p = <f32 as Real>::of(f.a);
    let mut fractions = [0f32; BLOCK];
    fill_blocks(dst, runs, |block: &Block, out: &mut [T; BLOCK]| {
        <f32 as Real>::fractions(&f.key, block, &mut fractions);
        for (out, &x) in out.iter_mut().zip(&fractions) {
            *out = if x < p { one } else { zero };
        }
    });
}
