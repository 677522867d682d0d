//! Blocks of a tensor that fit in memory and are one contiguous range of every file that has a part of them.
//!
//! A block is a range of one dim, at single indices of the dims before it, with all of the dims after it.
//! That is a contiguous range of the row-major whole. The indices that a rank holds of a dim ascend in its
//! shard, so its part of a block is one contiguous range of its shard too. For any two shardings, resharding
//! a block reads one range of each source and writes one range of each target; all scattering happens in
//! memory.

use std::ops::Range;

use reshard_sharding::{Interval, Intervals, Region};

/// The blocks of a tensor, each of a limited number of bytes (or of one element).
#[derive(Debug)]
pub(crate) struct Slabs {
    shape: Vec<usize>,
    item_bytes: usize,
    /// The dim that is split, and the number of its indices per block.
    dim: usize,
    rows: usize,
    /// The number of blocks along the dim, and the total number.
    of_dim: usize,
    count: usize,
}

/// One block of a tensor.
#[derive(Debug)]
pub(crate) struct Slab {
    /// The region of the whole.
    pub(crate) region: Region,
    /// The number of bytes.
    pub(crate) len: usize,
    dim: usize,
    item_bytes: usize,
}

/// The part of a block that a shard holds.
pub(crate) struct Part {
    /// The region of the whole.
    pub(crate) region: Region,
    /// The byte range in the shard.
    pub(crate) bytes: Range<usize>,
}

impl Slabs {
    pub(crate) fn of(shape: &[usize], item_bytes: usize, most: usize) -> Self {
        let mut row = shape.iter().product::<usize>() * item_bytes;
        let mut dim = 0;
        // The outermost dim of which one index fits.
        while dim < shape.len() {
            row = row.checked_div(shape[dim]).unwrap_or(0);
            if row <= most || dim + 1 == shape.len() {
                break;
            }
            dim += 1;
        }
        let extent = shape.get(dim).copied().unwrap_or(1);
        let rows = most.checked_div(row).unwrap_or(extent).clamp(1, extent.max(1));
        let of_dim = extent.div_ceil(rows);
        let before: usize = shape.iter().take(dim).product();
        let empty = shape.contains(&0);
        Self {
            shape: shape.to_vec(),
            item_bytes,
            dim,
            rows,
            of_dim,
            count: if empty { 0 } else { before * of_dim },
        }
    }

    /// Returns the number of blocks; 0 for a tensor without elements.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the block with this number, in the order of the whole.
    pub(crate) fn get(&self, number: usize) -> Slab {
        let (mut before, piece) = (number / self.of_dim, number % self.of_dim);
        let mut indices = vec![0; self.dim];
        for (index, extent) in indices.iter_mut().zip(&self.shape).rev() {
            *index = before % extent;
            before /= extent;
        }
        let dim = |dim: usize, extent: usize| match indices.get(dim) {
            Some(start) => Interval { start: *start, len: 1 },
            None if dim == self.dim => {
                let start = piece * self.rows;
                Interval { start, len: self.rows.min(extent - start) }
            }
            None => Interval { start: 0, len: extent },
        };
        let dims = self.shape.iter().enumerate().map(|(at, extent)| [dim(at, *extent)].into_iter().collect());
        let region = Region { dims: dims.collect() };
        let len = region.numel() * self.item_bytes;
        Slab { region, len, dim: self.dim, item_bytes: self.item_bytes }
    }
}

impl Slab {
    /// Returns the same block for elements of another size.
    pub(crate) fn with_items(&self, item_bytes: usize) -> Self {
        let len = self.region.numel() * item_bytes;
        Self { region: self.region.clone(), len, dim: self.dim, item_bytes }
    }

    /// Returns the part of it in the shard of a region; `None` if it is empty.
    pub(crate) fn part(&self, shard: &Region) -> Option<Part> {
        let mut dims = shard.dims.clone();
        let mut first = 0;
        for (dim, list) in dims.iter_mut().enumerate() {
            let extent: usize = list.iter().map(|x| x.len).sum();
            if dim <= self.dim {
                let [only] = self.region.dims[dim][..] else { return None };
                let (before, clipped) = clip(list, only);
                first = first * extent + before;
                *list = clipped;
            } else {
                first *= extent;
            }
            if list.is_empty() {
                return None;
            }
        }
        let region = Region { dims };
        let start = first * self.item_bytes;
        let end = start + region.numel() * self.item_bytes;
        Some(Part { region, bytes: start..end })
    }
}

/// Returns the number of indices of a list before an interval, and the indices in it.
fn clip(list: &Intervals, only: Interval) -> (usize, Intervals) {
    let end = only.start + only.len;
    let mut before = 0;
    let mut clipped = Intervals::default();
    for x in list {
        let (low, high) = (x.start.max(only.start), (x.start + x.len).min(end));
        before += (x.start + x.len).min(only.start).saturating_sub(x.start);
        if low < high {
            clipped.push(Interval { start: low, len: high - low });
        }
    }
    (before, clipped)
}

#[cfg(test)]
mod tests {
    use reshard_sharding::{Mesh, Region, Sharding};

    use super::Slabs;

    fn indices(region: &Region, shape: &[usize]) -> Vec<u64> {
        region.runs(shape).unwrap().flat_map(|run| run.indices().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn slabs_are_the_whole_in_order_and_parts_are_stretches_of_shards() {
        let mesh: Mesh = "a=2,b=3".parse().unwrap();
        let texts = ["R,R", "S(0),S(1)", "SS(0,3),S(0)", "BL(1,2),S(0)", "Z(0),R", "S(1),S(1)"];
        for shape in [&[7, 5][..], &[1, 9, 4], &[24], &[], &[3, 0, 2], &[2, 3, 5, 2]] {
            let numel: usize = shape.iter().product();
            for most in [1, 8, 20, 64, 1 << 20] {
                let slabs = Slabs::of(shape, 2, most);
                let all: Vec<_> = (0..slabs.count()).map(|number| slabs.get(number)).collect();
                let covered: Vec<u64> = all.iter().flat_map(|slab| indices(&slab.region, shape)).collect();
                assert!(covered.iter().copied().eq(0..numel as u64), "{shape:?} {most}");
                assert!(all.iter().all(|slab| slab.len <= most.max(2)), "{shape:?} {most}");
                for text in texts {
                    let Ok(sharding) = Sharding::parse(&mesh, shape, text) else { continue };
                    for rank in 0..6 {
                        let region = sharding.region(rank).unwrap();
                        let shard = indices(&region, shape);
                        let mut end = 0;
                        for slab in &all {
                            let inside = indices(&slab.region, shape);
                            let expected: Vec<u64> =
                                shard.iter().copied().filter(|index| inside.contains(index)).collect();
                            let Some(part) = slab.part(&region) else {
                                assert!(expected.is_empty(), "{shape:?} {most} {text} {rank}");
                                continue;
                            };
                            assert_eq!(part.bytes.start, end);
                            end = part.bytes.end;
                            assert_eq!(shard[part.bytes.start / 2..end / 2], expected);
                            assert_eq!(indices(&part.region, shape), expected);
                        }
                        assert_eq!(end, shard.len() * 2);
                    }
                }
            }
        }
    }
}
