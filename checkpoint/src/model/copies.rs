//! The intersection of two regions of one tensor, as byte ranges with an offset in either row-major shard.
//!
//! Dim by dim, the indices that two ascending lists share form few regular runs; the ranges are the product
//! of the runs. Trailing dims that both regions hold equally are merged with the dim before them, so each
//! range is as long as possible. This one definition splits, assembles, reads parts, and copies from file to
//! file.

use reshard_sharding::Region;
use reshard_sharding::internal::{Run, shared};

/// A contiguous byte range that two shards have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The offset in the first shard.
    pub(crate) from: usize,
    /// The offset in the second shard.
    pub(crate) to: usize,
    /// The length in bytes.
    pub(crate) len: usize,
}

/// All byte ranges that two shards have in common.
pub(crate) struct Copies {
    /// The dims that are looped over, the outermost first.
    dims: Vec<Dim>,
    /// The bytes of one index of the last of them.
    inner: usize,
}

struct Dim {
    runs: Vec<Run>,
    from_stride: usize,
    to_stride: usize,
}

/// Returns the intersection of two regions; `None` if it is empty.
pub(crate) fn copies(from: &Region, to: &Region, item_bytes: usize) -> Option<Copies> {
    let (from_shape, to_shape) = (from.local_shape(), to.local_shape());
    let mut lists = Vec::with_capacity(from.dims.len());
    for (a, b) in from.dims.iter().zip(&to.dims) {
        let runs = shared(a, b);
        if runs.is_empty() {
            return None;
        }
        lists.push(runs);
    }
    let mut inner = item_bytes;
    while let Some(runs) = lists.last() {
        let dim = lists.len() - 1;
        let alike = |run: &Run| run.count == 1 && run.len == from_shape[dim] && run.len == to_shape[dim];
        if !matches!(&runs[..], [run] if alike(run)) {
            break;
        }
        inner *= from_shape[dim];
        lists.pop();
    }
    let mut dims: Vec<Dim> = Vec::with_capacity(lists.len());
    let (mut from_stride, mut to_stride) = (inner, inner);
    for (dim, runs) in lists.into_iter().enumerate().rev() {
        dims.push(Dim { runs, from_stride, to_stride });
        from_stride *= from_shape[dim];
        to_stride *= to_shape[dim];
    }
    dims.reverse();
    Some(Copies { dims, inner })
}

impl Copies {
    /// Returns the length of the shortest range.
    pub(crate) fn shortest(&self) -> usize {
        let last = self.dims.last().and_then(|dim| dim.runs.iter().map(|run| run.len).min());
        self.inner * last.unwrap_or(1)
    }

    /// Calls `visit` with every range until it fails; ascending in `from` and in `to`.
    pub(crate) fn each<E>(&self, visit: &mut impl FnMut(Stretch) -> Result<(), E>) -> Result<(), E> {
        self.descend(0, 0, 0, visit)
    }

    /// Visits the ranges below an index of the dims before `depth`.
    fn descend<E>(
        &self,
        depth: usize,
        from: usize,
        to: usize,
        visit: &mut impl FnMut(Stretch) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(dim) = self.dims.get(depth) else {
            return visit(Stretch { from, to, len: self.inner });
        };
        let last = depth + 1 == self.dims.len();
        for run in &dim.runs {
            for turn in 0..run.count {
                let (a, b) = (run.source + turn * run.source_step, run.target + turn * run.target_step);
                if last {
                    let (from, to) = (from + a * dim.from_stride, to + b * dim.to_stride);
                    visit(Stretch { from, to, len: run.len * self.inner })?;
                    continue;
                }
                for index in 0..run.len {
                    let (from, to) = (from + (a + index) * dim.from_stride, to + (b + index) * dim.to_stride);
                    self.descend(depth + 1, from, to, visit)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use reshard_sharding::{Mesh, Region, Sharding};

    use super::{Stretch, copies};

    /// Byte by byte: maps a byte of the whole to its offset in a shard.
    fn bytes(region: &Region, shape: &[usize], item: usize) -> BTreeMap<usize, usize> {
        let runs = region.runs(shape).unwrap();
        let indices = runs.flat_map(|run| run.indices().collect::<Vec<_>>());
        let bytes = indices.flat_map(|index| (0..item).map(move |byte| index as usize * item + byte));
        bytes.enumerate().map(|(local, whole)| (whole, local)).collect()
    }

    #[test]
    fn stretches_are_what_two_regions_share_byte_by_byte() {
        let mesh: Mesh = "a=2,b=3".parse().unwrap();
        let texts = [
            "R,R",
            "S(0),S(1)",
            "S(1),S(0)",
            "SS(0,3),S(0)",
            "S(2),S(2)",
            "BL(1,2),S(0)",
            "Z(0),R",
            "R,BL(2,1)",
        ];
        let mut tried = 0;
        for shape in [[7, 5, 3], [1, 8, 12], [12, 1, 1], [6, 6, 0]] {
            for (left, right) in texts.iter().flat_map(|left| texts.map(|right| (*left, right))) {
                let [Ok(left), Ok(right)] = [left, right].map(|text| Sharding::parse(&mesh, &shape, text))
                else {
                    continue;
                };
                for (a, b) in [(0, 0), (0, 5), (4, 1), (2, 3)] {
                    let (from, to) = (left.region(a).unwrap(), right.region(b).unwrap());
                    let (in_from, in_to) = (bytes(&from, &shape, 2), bytes(&to, &shape, 2));
                    let expected: BTreeMap<usize, usize> = (in_from.iter())
                        .filter_map(|(whole, local)| Some((*local, *in_to.get(whole)?)))
                        .collect();
                    let mut found = BTreeMap::new();
                    let mut shortest = usize::MAX;
                    let all = copies(&from, &to, 2);
                    if let Some(copies) = &all {
                        let done = copies.each(&mut |Stretch { from, to, len }| {
                            shortest = shortest.min(len);
                            found.extend((0..len).map(|at| (from + at, to + at)));
                            Ok::<(), ()>(())
                        });
                        done.unwrap();
                        assert_eq!(copies.shortest(), shortest);
                    }
                    assert_eq!(found, expected, "{left} {a}, {right} {b}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 300, "{tried}");
    }
}
