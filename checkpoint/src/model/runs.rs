//! The contiguous runs of a rank's region inside the whole tensor.
//!
//! This one definition serves verification, assembly and extraction: the offset of each range of a rank's
//! row-major shard in the row-major whole. It is computed from `region(rank)` alone and never from a plan, so
//! it can verify a plan.

use reshard_sharding::Intervals;
use reshard_sharding::Region;

/// A byte range that is contiguous both in a rank's shard and in the whole tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The offset in the shard.
    pub(crate) local: usize,
    /// The offset in the whole.
    pub(crate) whole: usize,
    /// The length in bytes.
    pub(crate) len: usize,
}

/// Calls `visit` with every run of `region`, in the order of the shard, until one call returns `false`.
///
/// Returns `true` if all calls returned `true`.
///
/// Trailing dims that the rank holds entirely are part of every run, so a plain row shard is one run.
pub(crate) fn all_runs(
    shape: &[usize],
    region: &Region,
    item_bytes: usize,
    mut visit: impl FnMut(Run) -> bool,
) -> bool {
    let dims = &region.dims;
    if dims.iter().any(|intervals| intervals.is_empty()) {
        return true;
    }
    // Dims from `split` on are whole; the dim before them is split into intervals; the dims before that are
    // loops.
    let whole_dim = |d: usize| matches!(dims[d].as_slice(), [one] if one.start == 0 && one.len == shape[d]);
    let mut split = shape.len();
    let mut inner = item_bytes;
    while split > 0 && whole_dim(split - 1) {
        split -= 1;
        inner *= shape[split];
    }
    if split == 0 {
        return visit(Run { local: 0, whole: 0, len: inner });
    }
    let cut = split - 1;
    let mut stride = vec![inner; split];
    for d in (0..cut).rev() {
        stride[d] = stride[d + 1] * shape[d + 1];
    }
    let mut walk = Walk { dims, stride, cut, local: 0, visit: &mut visit };
    walk.descend(0, 0)
}

struct Walk<'a, Visit> {
    dims: &'a [Intervals],
    stride: Vec<usize>,
    cut: usize,
    local: usize,
    visit: &'a mut Visit,
}

impl<Visit: FnMut(Run) -> bool> Walk<'_, Visit> {
    fn descend(&mut self, d: usize, base: usize) -> bool {
        let stride = self.stride[d];
        for interval in &self.dims[d] {
            if d == self.cut {
                let run = Run {
                    local: self.local,
                    whole: base + interval.start * stride,
                    len: interval.len * stride,
                };
                self.local += run.len;
                if run.len > 0 && !(self.visit)(run) {
                    return false;
                }
            } else {
                for index in interval.start..interval.start + interval.len {
                    if !self.descend(d + 1, base + index * stride) {
                        return false;
                    }
                }
            }
        }
        true
    }
}
