//! The description of one launch, in the bytes that the kernels read.

use bytemuck::{Pod, Zeroable};
use reshard_layout::Mode;

/// Maximum number of loops of one job.
pub const MAX_LOOPS: usize = 10;

/// Threads of a block, for every kernel.
pub const THREADS: u32 = 256;

/// One loop of a job, with strides in bytes and the constants of a division by its extent.
///
/// ```text
/// n / extent = (floor(n magic / 2^32) + n) >> shift         for n < 2^31
/// ```
///
/// Source: Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct JobLoop {
    /// Number of iterations, at least 1 and below 2^31.
    pub extent: u32,
    /// `floor(2^32 (2^shift - extent) / extent) + 1`.
    pub magic: u32,
    /// `ceil(log2 extent)`.
    pub shift: u32,
    unused: u32,
    /// Bytes that the source advances.
    pub source: i64,
    /// Bytes that the target advances.
    pub target: i64,
}

impl JobLoop {
    /// Creates a loop of `extent` iterations.
    ///
    /// Requires `1 <= extent < 2^31`.
    pub fn new(extent: u32, source: i64, target: i64) -> JobLoop {
        let shift = extent.next_power_of_two().trailing_zeros();
        let magic = ((1u64 << 32) * ((1u64 << shift) - u64::from(extent)) / u64::from(extent) + 1) as u32;
        JobLoop { extent, magic, shift, unused: 0, source, target }
    }

    /// Returns `n / extent` as the kernels compute it.
    pub fn divide(&self, n: u32) -> u32 {
        let high = ((u64::from(n) * u64::from(self.magic)) >> 32) as u32;
        (high + n) >> self.shift
    }
}

/// One job: the same fields as `Job` in `cu/index.cuh`, in the same order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Job {
    /// Byte offset of the first unit in the source.
    pub source: i64,
    /// Byte offset of the first unit in the target.
    pub target: i64,
    /// Source stride of the target's contiguous dim, in bytes (transposes).
    pub row_source: i64,
    /// Target stride of the source's contiguous dim, in bytes (transposes).
    pub column_target: i64,
    /// The number of the kernel, for batches.
    pub kind: u32,
    /// The first block of this job in its batch.
    pub first_block: u32,
    /// Units to copy (rows), words of 16 bytes that they can touch (runs) or tiles (transposes).
    pub count: u32,
    /// The number of loops.
    pub loops: u32,
    /// Extent in units of the target's contiguous dim (transposes).
    pub rows: u32,
    /// Extent in units of the source's contiguous dim (transposes), or the bytes of a run (runs).
    pub columns: u32,
    unused: [u32; 2],
    /// The loops, fastest first.
    ///
    /// For a transpose, those that count tiles come first; for runs, the one that counts words.
    pub list: [JobLoop; MAX_LOOPS],
}

impl Job {
    /// Creates a job without loops.
    pub(crate) fn at(source: i64, target: i64, kind: u32) -> Job {
        Job { source, target, kind, count: 1, ..Job::default() }
    }

    /// Adds the next slower loop.
    ///
    /// Requires fewer than [`MAX_LOOPS`] so far.
    pub(crate) fn push(&mut self, l: JobLoop) {
        self.list[self.loops as usize] = l;
        self.loops += 1;
        self.count *= l.extent;
    }

    /// Adds these modes, the next slower ones.
    pub(crate) fn extend<'a>(&mut self, modes: impl IntoIterator<Item = &'a Mode<(i64, i64)>>) {
        for mode in modes {
            self.push(JobLoop::new(mode.extent as u32, mode.stride.0, mode.stride.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use reshard_test_support::properties;

    use super::JobLoop;

    #[test]
    fn division_is_right_at_the_edges() {
        let extents = (1..2000).chain((1..31).flat_map(|k| [(1 << k) - 1, 1 << k, (1u32 << k) + 1]));
        for extent in extents.filter(|&e| e > 0 && e < 1 << 31) {
            let l = JobLoop::new(extent, 0, 0);
            let multiples = [1u32, 2, 3, 1000].into_iter().filter_map(|k| extent.checked_mul(k));
            for n in multiples.flat_map(|m| [m - 1, m, m.saturating_add(1)]).chain([0, (1 << 31) - 1]) {
                if n < 1 << 31 {
                    assert_eq!(l.divide(n), n / extent, "{n} / {extent}");
                }
            }
        }
    }

    properties! {
        fn division_is_right(n: u32, extent: u32) -> bool {
            let (n, extent) = (n >> 1, (extent >> 1).max(1));
            JobLoop::new(extent, 0, 0).divide(n) == n / extent
        }
    }
}
