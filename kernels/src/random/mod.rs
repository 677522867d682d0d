//! Random numbers independent of the mesh: an element is a function of a key and its row-major index in the
//! global tensor.
//!
//! Its value is the same on every mesh, under every sharding and for every number of ranks. A rank draws only
//! the elements of its shard, and drawn values need not be retained.
//!
//! ```text
//! (key, index) --threefry, philox--> 32 or 64 bits --fraction--> [0, 1) --draw--> element
//! ```
//!
//! | | [`Generator::Threefry`] | [`Generator::Philox`] |
//! |---|---|---|
//! | whose | JAX's `threefry2x32`, partitionable | `torch.func._random`'s `philox4x32-10` |
//! | bits of index i | `(a, b)` of the counter i: 32 are `a ^ b`, 8 and 16 its lowest, 64 are `a b` | word `i mod 4` of the counter `offset + i div 4`; 64 are two of them |
//! | fractions | top 23 bits of 32 (f32), top 52 of 64 (f64), top 10 of 16 (f16), top 7 of 8 (bf16) | low 24, 53, 11, 8 bits |
//! | uniform | `fraction * (high - low) + low`, fused; f16 and bf16 round both | the same, not fused; f16 and bf16 round once |
//! | randint | the remainder of a number of twice the bits, by two keys that are split off | the remainder of one |
//! | equal in every bit | bits, uniform, bernoulli, randint, split, fold_in; normal of f16 and bf16 | bits, uniform, randint, split, fold_in |
//!
//! The rest is the same for both: `normal` is `sqrt(2) erfinv(uniform(-1, 1))`, at most 3 ulps from JAX's
//! by threefry; `truncated_normal`, `exponential` and `gumbel` are JAX's formulas; a normal
//! of another mean or deviation is `mean + std * normal`. Logarithms are one series on every machine, so
//! these draws have the same bits everywhere, which JAX's have not.
//!
//! On CUDA devices `reshard_cuda::DeviceDraw` makes the same bits, from a `Recipe`.
//!
//! ```
//! use reshard_kernels::{DType, random::{Draw, IndexRun, Key, fill}};
//! let (key, draw) = (Key::new(0), Draw::Uniform { low: 0.0, high: 1.0 });
//! let mut whole = [0; 24];
//! fill(&key, draw, DType::F32, &mut whole, &[2, 3], [IndexRun::all(6)])?;
//! // The second column, by a rank that holds nothing else.
//! let mut column = [0; 8];
//! fill(&key, draw, DType::F32, &mut column, &[2, 3], [IndexRun { start: 1, len: 2, stride: 3 }])?;
//! assert_eq!((&column[..4], &column[4..]), (&whole[4..8], &whole[16..20]));
//! # Ok::<(), reshard_kernels::Error>(())
//! ```

#[doc(hidden)]
pub mod coefficients;
#[doc(hidden)]
pub mod definition;
mod draw;
mod integer;
mod key;
mod philox;
mod real;
mod recipe;
mod special;
mod threefry;
mod transform;
mod words;

pub use draw::Draw;
pub use key::{Generator, Key};
pub use recipe::Recipe;
pub use reshard_layout::IndexRun;

use crate::{DType, Error};
use half::{bf16, f16};
use real::of_float;
use recipe::{Formula, Kind};
use words::Block;

/// Writes the elements of `runs` of a tensor of this shape, in this order, as native bytes.
///
/// ```text
/// dst[i] = element(key, draw, dtype, index i of the runs)            see `definition::element`
/// ```
///
/// Errors, before anything is written: [`Error::NoDraw`]; [`Error::Draw`]; [`Error::TooManyElements`] if an index has more
/// than 64 bits; [`Error::OutsideTensor`]; [`Error::WrongLength`].
pub fn fill<R>(
    key: &Key,
    draw: Draw,
    dtype: DType,
    dst: &mut [u8],
    shape: &[usize],
    runs: R,
) -> Result<(), Error>
where
    R: IntoIterator<Item = IndexRun, IntoIter: Clone>,
{
    let formula = Formula::new(key, draw, dtype)?;
    let runs = runs.into_iter();
    let elements = check_runs(shape, runs.clone())?;
    let bytes = elements.saturating_mul(dtype.element_bytes()? as u128);
    if bytes != dst.len() as u128 {
        return Err(Error::WrongLength { elements, bytes, length: dst.len() });
    }
    match formula.kind {
        Kind::Bits | Kind::Remainder => integer::fill(&formula, dtype, dst, runs),
        Kind::Below => transform::below(&formula, dtype, dst, runs),
        Kind::Stretched
        | Kind::Normal
        | Kind::NormalOf
        | Kind::Clamped
        | Kind::Exponential
        | Kind::Gumbel => {
            // No draw of this kind has another dtype.
            let _of_a_float = of_float!(dtype, T => transform::fill::<T>(&formula, dst, runs));
        }
    }
    Ok(())
}

/// Returns the number of elements of the runs; all of them must be in the tensor.
fn check_runs(shape: &[usize], runs: impl Iterator<Item = IndexRun>) -> Result<u128, Error> {
    let too_many = || Error::TooManyElements { shape: shape.to_vec() };
    let numel = if shape.contains(&0) {
        0
    } else {
        shape.iter().try_fold(1u128, |product, &n| product.checked_mul(n as u128)).ok_or_else(too_many)?
    };
    if numel > 1 << 64 {
        return Err(too_many());
    }
    let mut elements = 0u128;
    for run in runs {
        if run.len > 0 && run.last().is_none_or(|last| u128::from(last) >= numel) {
            let run = format!("{} + {} x {}", run.start, run.len, run.stride);
            return Err(Error::OutsideTensor { run, numel });
        }
        elements += u128::from(run.len);
    }
    Ok(elements)
}

/// Writes the target block by block: `visit` computes the elements of a block.
fn fill_blocks<T: bytemuck::Pod>(
    dst: &mut [u8],
    runs: impl Iterator<Item = IndexRun>,
    mut visit: impl FnMut(&Block, &mut [T; words::BLOCK]),
) {
    let mut made = [T::zeroed(); words::BLOCK];
    let mut rest = dst;
    Block::each(runs, |block| {
        visit(block, &mut made);
        let bytes: &[u8] = bytemuck::cast_slice(&made[..block.len]);
        // Lengths agree: the runs were counted before.
        let (now, later) = std::mem::take(&mut rest).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        rest = later;
    });
}
