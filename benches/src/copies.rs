//! Permutations of a tensor in one address space, compared with memcpy of the same bytes.

use std::time::Instant;

use reshard_kernels::{Error, LoopNest, PreparedCopy};
use reshard_layout::Mode;

use crate::Ratios;

/// A permutation of a row-major tensor: name, shape, source dim of each target dim, bytes of an element.
pub type Permutation = (&'static str, &'static [usize], &'static [usize], usize);

/// The measured permutations, of 64 to 256 MiB each.
pub const PERMUTATIONS: [Permutation; 7] = [
    ("2-D f32", &[8192, 8192], &[1, 0], 4),
    ("2-D bf16", &[8192, 8192], &[1, 0], 2),
    ("2-D f64", &[8192, 4096], &[1, 0], 8),
    ("(0,2,1,3) f32, inner 128", &[64, 128, 64, 128], &[0, 2, 1, 3], 4),
    ("(0,2,1,3) f32, inner 4", &[64, 256, 1024, 4], &[0, 2, 1, 3], 4),
    ("(3,0,1,2) f32", &[64, 128, 64, 128], &[3, 0, 1, 2], 4),
    ("(2,1,0) f32", &[512, 256, 512], &[2, 1, 0], 4),
];

/// Returns the copy that permutes: target dim `k` is source dim `order[k]`, both sides row-major.
pub fn permutation(shape: &[usize], order: &[usize], item_bytes: usize) -> Result<PreparedCopy, Error> {
    let strides = |shape: &[usize]| {
        let mut strides = vec![1i64; shape.len()];
        for k in (1..shape.len()).rev() {
            strides[k - 1] = strides[k] * shape[k] as i64;
        }
        strides
    };
    let target: Vec<usize> = order.iter().map(|k| shape[*k]).collect();
    let (source_strides, target_strides) = (strides(shape), strides(&target));
    let modes = order.iter().zip(target_strides).rev();
    let modes = modes.map(|(&k, target)| Mode::new(shape[k] as i64, (source_strides[k], target)));
    PreparedCopy::new(&LoopNest::new(0, 0, modes), item_bytes)
}

/// Times memcpy and the permutation in turn, `turns` times, on one thread.
pub fn measure(copy: &PreparedCopy, turns: usize) -> Result<Ratios, Error> {
    let (source, mut target) = (vec![1u8; copy.bytes()], vec![2u8; copy.bytes()]);
    let mut pairs = Vec::with_capacity(turns);
    for _ in 0..turns {
        let begin = Instant::now();
        target.copy_from_slice(&source);
        let plain = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        copy.run(&mut target, &source)?;
        pairs.push((plain, begin.elapsed().as_secs_f64()));
    }
    Ok(Ratios::new(&pairs, copy.bytes()))
}
