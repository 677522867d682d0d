//! Loop nests that keep the order of the elements: a region of the source is, as it is, a region of the target.
//!
//! Such a nest takes dims to dims, ascending, and ascending indices to ascending ones: a concatenation, in blocks or not,
//! a stack, a range of indices. Then the bytes of a file need no loops, and the checksum of all of them stays valid:
//!
//! ```text
//! rows 2..6 of `q`, of 4 rows a block  --4 q + 2 k by 2-->  rows 2..4 and 6..8 of the whole
//! ```

use reshard_mapping::Piece;
use reshard_sharding::{Interval, Intervals, Region};

/// The most intervals of a dim that one nest reads.
const MOST_INTERVALS: usize = 1 << 20;

/// A nest that keeps the order of the elements.
pub(crate) struct InOrder {
    /// For each dim of the source: its dim of the target, if it has a loop, and its intervals.
    dims: Vec<(Option<usize>, Vec<Run>)>,
    /// The first index of each dim of the target.
    first: Vec<usize>,
}

/// Consecutive indices of a dim of the source that are consecutive in the target.
#[derive(Clone, Copy)]
struct Run {
    source: usize,
    target: usize,
    len: usize,
}

impl InOrder {
    /// Returns the nest; `None` if it does not keep the order, or merges or splits dims.
    pub(crate) fn of(piece: &Piece) -> Option<Self> {
        // Axes are sorted by target dim, then by descending step.
        let mut last = None;
        for axis in &piece.axes {
            let now = (axis.source_dim?, axis.target_dim, axis.source_step);
            let follows = last.is_none_or(|(source, target, step)| {
                if now.0 == source {
                    now.1 == target && now.2 < step
                } else {
                    now.0 > source && now.1 > target
                }
            });
            if !follows {
                return None;
            }
            last = Some(now);
        }
        let dims = piece.source_offset.iter().enumerate().map(|(dim, offset)| {
            let axes = || piece.axes.iter().filter(|axis| axis.source_dim == Some(dim));
            let to = axes().next().map(|axis| axis.target_dim);
            let first = to.map_or(0, |to| piece.target_offset[to]);
            let mut runs = vec![Run { source: *offset, target: first, len: 1 }];
            for axis in axes() {
                if (axis.source_step, axis.target_step) == (1, 1) {
                    for run in &mut runs {
                        run.len = axis.extent;
                    }
                    continue;
                }
                if runs.len().saturating_mul(axis.extent) > MOST_INTERVALS {
                    return None;
                }
                let step = |run: Run, step| Run {
                    source: run.source + step * axis.source_step,
                    target: run.target + step * axis.target_step,
                    ..run
                };
                runs = runs.iter().flat_map(|run| (0..axis.extent).map(|at| step(*run, at))).collect();
            }
            Some((to, runs))
        });
        Some(Self { dims: dims.collect::<Option<_>>()?, first: piece.target_offset.clone() })
    }

    /// Returns the region of the target that a region of the source is; `None` if the nest lacks a part of it.
    pub(crate) fn image(&self, held: &Region) -> Option<Region> {
        let one = |start: &usize| [Interval { start: *start, len: 1 }].into_iter().collect();
        let mut image = Region { dims: self.first.iter().map(one).collect() };
        for ((to, runs), list) in self.dims.iter().zip(&held.dims) {
            let list = through(runs, list)?;
            if let Some(to) = to {
                image.dims[*to] = list;
            }
        }
        Some(image)
    }
}

/// Takes ascending indices through ascending runs; `None` if one is in no run.
fn through(runs: &[Run], list: &Intervals) -> Option<Intervals> {
    let mut result = Intervals::default();
    for x in list {
        let (mut start, end) = (x.start, x.start + x.len);
        let mut at = runs.partition_point(|run| run.source + run.len <= start);
        while start < end {
            let run = runs.get(at).filter(|run| run.source <= start)?;
            let len = (run.source + run.len).min(end) - start;
            push(&mut result, Interval { start: run.target + start - run.source, len });
            start += len;
            at += 1;
        }
    }
    Some(result)
}

/// Appends an interval, joined with the last one if they touch.
pub(crate) fn push(list: &mut Intervals, x: Interval) {
    match list.last_mut() {
        Some(last) if last.start + last.len == x.start => last.len += x.len,
        Some(_) | None => list.push(x),
    }
}

#[cfg(test)]
mod tests {
    use reshard_mapping::{Dtype, Mapping, SourceTensor};
    use reshard_sharding::{Interval, Region};

    use super::InOrder;

    /// Rows of `q`, of shape `[8, 3]`, in a tensor that a rule makes of it and of `k`, of shape `[4, 3]`.
    fn rows(rule: &str, start: usize, len: usize) -> Option<Vec<(usize, usize)>> {
        let mapping: Mapping = rule.parse().unwrap();
        let sources = [("q", &[8, 3]), ("k", &[4, 3])];
        let sources = sources.map(|(name, shape)| SourceTensor { name, shape, dtype: Dtype::F32 });
        let made = mapping.apply(&sources).unwrap();
        let piece = made.tensors[0].pieces.iter().find(|piece| piece.source == Some(0)).unwrap();
        let dims = [(start, len), (0, 3)];
        let dim = |(start, len)| [Interval { start, len }].into_iter().collect();
        let image = InOrder::of(piece)?.image(&Region { dims: dims.into_iter().map(dim).collect() })?;
        Some(image.dims[0].iter().map(|one| (one.start, one.len)).collect())
    }

    #[test]
    fn rows_land_where_the_rule_has_them_or_it_changes_their_order() {
        assert_eq!(rows("x = 2 q + k by 2", 2, 4).unwrap(), [(2, 2), (6, 2)]);
        assert_eq!(rows("x = 2 q + k by 2", 4, 4).unwrap(), [(6, 4)]);
        assert_eq!(rows("x = k + q", 1, 2).unwrap(), [(5, 2)]);
        assert_eq!(rows("x = q[2:7]", 2, 5).unwrap(), [(0, 5)]);
        assert_eq!(rows("x = q[2:7]", 1, 5), None);
        assert_eq!(rows("x + y = q by 2", 0, 5), None);
        for rule in [
            "x = rearrange(q, 'a b -> b a')",
            "x = rearrange(q, '(a b) c -> (b a) c', a=2)",
            "x = rearrange(q, '(a b) c -> a b c', a=2)",
            "x = rearrange(q, 'a b -> a r b', r=2)",
        ] {
            for (start, stop) in (0..8).flat_map(|start| (start..8).map(move |stop| (start, stop + 1))) {
                assert_eq!(rows(rule, start, stop - start), None, "{rule} {start}..{stop}");
            }
        }
    }
}
