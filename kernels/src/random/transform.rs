//! What distributions make of fractions, a block of elements at a time.

use half::{bf16, f16};
use reshard_layout::IndexRun;

use super::draw::Draw;
use super::fill_blocks;
use super::key::Key;
use super::real::{Real, Stretch};
use super::special::Wide;
use super::words::{BLOCK, Block};
use crate::DType;

type WideBlock<T> = [<T as Real>::Wide; BLOCK];

/// The constant that makes the error function's inverse a deviation of 1.
const ROOT_OF_TWO: f64 = std::f64::consts::SQRT_2;

/// The floats of a draw that has been checked.
pub(super) fn fill<T: Real>(key: &Key, draw: Draw, dst: &mut [u8], runs: impl Iterator<Item = IndexRun>) {
    let each = |x: T::Wide| x;
    match draw {
        Draw::Uniform { low, high } => {
            let stretch = Stretch::<T>::new(key, T::of(low), T::of(high));
            stretched(key, &stretch, dst, runs, each);
        }
        Draw::Normal { mean, std } => {
            let stretch = Stretch::<T>::new(key, T::next(T::of(-1.0), true), T::of(1.0));
            let root = T::of(ROOT_OF_TWO);
            let standard = |x: T::Wide| T::round(root * T::round(x.erf_inv()));
            let (mean, std) = (T::of(mean), T::of(std));
            if mean == T::of(0.0) && std == T::of(1.0) {
                stretched(key, &stretch, dst, runs, standard);
            } else {
                stretched(key, &stretch, dst, runs, |x| T::round(mean + T::round(std * standard(x))));
            }
        }
        Draw::TruncatedNormal { low, high } => {
            let root = T::of(ROOT_OF_TWO);
            let (low, high) = (T::of(low), T::of(high));
            let at = |x: T::Wide| T::of(libm::erf(T::of(x.into() / root.into()).into()));
            let stretch = Stretch::<T>::new(key, at(low), at(high));
            let (least, most) = (T::next(low, true), T::next(high, false));
            stretched(key, &stretch, dst, runs, |x| {
                let x = T::round(root * T::round(x.erf_inv()));
                let x = if x > least { x } else { least };
                if x < most { x } else { most }
            });
        }
        Draw::Exponential => {
            let stretch = Stretch::<T>::new(key, T::of(0.0), T::of(1.0));
            let zero = T::of(0.0);
            stretched(key, &stretch, dst, runs, |x| zero - T::round(x.ln_one_less()));
        }
        Draw::Gumbel => {
            let stretch = Stretch::<T>::new(key, T::tiny(), T::of(1.0));
            let zero = T::of(0.0);
            stretched(key, &stretch, dst, runs, |x| zero - T::round((zero - T::round(x.ln())).ln()));
        }
        Draw::Bits | Draw::Bernoulli { .. } | Draw::RandInt { .. } => {}
    }
}

/// Fractions stretched, then each made an element.
fn stretched<T: Real>(
    key: &Key,
    stretch: &Stretch<T>,
    dst: &mut [u8],
    runs: impl Iterator<Item = IndexRun>,
    each: impl Fn(T::Wide) -> T::Wide,
) {
    let mut wide: WideBlock<T> = [T::Wide::default(); BLOCK];
    fill_blocks(dst, runs, |block: &Block, out: &mut [T; BLOCK]| {
        stretch.fill(key, block, &mut wide);
        for (out, &x) in out.iter_mut().zip(&wide) {
            *out = T::narrow(each(x));
        }
    });
}

/// 1 where a fraction of f32 is below `p`, else 0, whatever the dtype.
pub(super) fn bernoulli(
    key: &Key,
    p: f64,
    dtype: DType,
    dst: &mut [u8],
    runs: impl Iterator<Item = IndexRun>,
) {
    match dtype {
        DType::Bool | DType::U8 | DType::I8 => ones(key, p, (0u8, 1), dst, runs),
        DType::U16 | DType::I16 => ones(key, p, (0u16, 1), dst, runs),
        DType::U32 | DType::I32 => ones(key, p, (0u32, 1), dst, runs),
        DType::U64 | DType::I64 => ones(key, p, (0u64, 1), dst, runs),
        DType::F16 => ones(key, p, (f16::ZERO, f16::ONE), dst, runs),
        DType::BF16 => ones(key, p, (bf16::ZERO, bf16::ONE), dst, runs),
        DType::F32 => ones(key, p, (0f32, 1.0), dst, runs),
        DType::F64 => ones(key, p, (0f64, 1.0), dst, runs),
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
    key: &Key,
    p: f64,
    (zero, one): (T, T),
    dst: &mut [u8],
    runs: impl Iterator<Item = IndexRun>,
) {
    let p = <f32 as Real>::of(p);
    let mut fractions = [0f32; BLOCK];
    fill_blocks(dst, runs, |block: &Block, out: &mut [T; BLOCK]| {
        <f32 as Real>::fractions(key, block, &mut fractions);
        for (out, &x) in out.iter_mut().zip(&fractions) {
            *out = if x < p { one } else { zero };
        }
    });
}
