//! Permutations of a tensor in one address space, to be compared with memcpy of the same bytes and with a peer.

use reshard_kernels::{Error, LoopNest, PreparedCopy};
use reshard_layout::Mode;

/// A permutation of a row-major tensor.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    /// The permutation and the element, for a table.
    pub name: &'static str,
    /// The shape of the source.
    pub shape: &'static [usize],
    /// The source dim of each target dim.
    pub order: &'static [usize],
    /// Bytes of an element.
    pub item_bytes: usize,
}

const fn of(
    name: &'static str,
    shape: &'static [usize],
    order: &'static [usize],
    item_bytes: usize,
) -> Permutation {
    Permutation { name, shape, order, item_bytes }
}

/// The measured permutations: sizes that are powers of two, odd ones, and few elements inside or outside.
pub const PERMUTATIONS: [Permutation; 30] = [
    of("2-D f32", &[8192, 8192], &[1, 0], 4),
    of("2-D bf16", &[8192, 8192], &[1, 0], 2),
    of("2-D u8", &[8192, 8192], &[1, 0], 1),
    of("2-D f64", &[8192, 4096], &[1, 0], 8),
    of("(0,2,1,3) f32, inner 128", &[64, 128, 64, 128], &[0, 2, 1, 3], 4),
    of("(0,2,1,3) f32, inner 4", &[64, 256, 1024, 4], &[0, 2, 1, 3], 4),
    of("(3,0,1,2) f32", &[64, 128, 64, 128], &[3, 0, 1, 2], 4),
    of("(2,1,0) f32", &[512, 256, 512], &[2, 1, 0], 4),
    of("2-D u8, 8111 x 8113", &[8111, 8113], &[1, 0], 1),
    of("2-D bf16, 8111 x 8113", &[8111, 8113], &[1, 0], 2),
    of("2-D f32, 8111 x 8113", &[8111, 8113], &[1, 0], 4),
    of("2-D f64, 4111 x 4113", &[4111, 4113], &[1, 0], 8),
    of("2-D of 16 bytes, 2111 x 2113", &[2111, 2113], &[1, 0], 16),
    of("2-D u8, 1000 x 1003", &[1000, 1003], &[1, 0], 1),
    of("2-D bf16, 1000 x 1003", &[1000, 1003], &[1, 0], 2),
    of("2-D f32, 1000 x 1003", &[1000, 1003], &[1, 0], 4),
    of("2-D f64, 1000 x 1003", &[1000, 1003], &[1, 0], 8),
    of("2-D of 16 bytes, 1000 x 1003", &[1000, 1003], &[1, 0], 16),
    of("(2,1,0) f32, 129 x 513 x 33", &[129, 513, 33], &[2, 1, 0], 4),
    of("(0,2,1) f32, 129 x 513 x 33", &[129, 513, 33], &[0, 2, 1], 4),
    of("(1,0,2) f32, inner 3", &[2000, 2000, 3], &[1, 0, 2], 4),
    of("(1,0,2) f32, inner 5", &[2000, 2000, 5], &[1, 0, 2], 4),
    of("(1,0,2) f32, inner 7", &[2000, 2000, 7], &[1, 0, 2], 4),
    of("(1,0,2) u8, inner 3", &[3000, 3000, 3], &[1, 0, 2], 1),
    of("(2,0,1) f32, inner 3", &[2000, 2000, 3], &[2, 0, 1], 4),
    of("(2,0,1) f32, inner 7", &[2000, 2000, 7], &[2, 0, 1], 4),
    of("(2,0,1) u8, inner 3", &[3000, 3000, 3], &[2, 0, 1], 1),
    of("(1,2,0) f32, outer 3", &[3, 2000, 2000], &[1, 2, 0], 4),
    of("(1,2,0) f32, outer 7", &[7, 2000, 2000], &[1, 2, 0], 4),
    of("(1,2,0) u8, outer 3", &[3, 3000, 3000], &[1, 2, 0], 1),
];

impl Permutation {
    /// Returns the elements of the tensor.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the shape of the target.
    pub fn target_shape(&self) -> Vec<usize> {
        self.order.iter().map(|k| self.shape[*k]).collect()
    }

    /// Returns the elements from one index of a target dim to the next, in the source and in the target.
    pub fn strides(&self) -> (Vec<isize>, Vec<isize>) {
        let source = row_major(self.shape);
        (self.order.iter().map(|k| source[*k]).collect(), row_major(&self.target_shape()))
    }

    /// Returns the copy that permutes.
    pub fn prepared(&self) -> Result<PreparedCopy, Error> {
        let (source, target) = self.strides();
        let modes = self.target_shape().into_iter().zip(source.into_iter().zip(target)).rev();
        let modes = modes.map(|(extent, (s, t))| Mode::new(extent as i64, (s as i64, t as i64)));
        PreparedCopy::new(&LoopNest::new(0, 0, modes), self.item_bytes)
    }
}

fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for k in (1..shape.len()).rev() {
        strides[k - 1] = strides[k] * shape[k] as isize;
    }
    strides
}
