//! Loop nests: what a copy between two layouts is, once the layouts are cut at each other's boundaries.
//!
//! A nest with loops `(e_k, s_k, t_k)` stands for the pairs, one for every index vector `0 <= i_k < e_k`,
//!
//! ```text
//! source element  source_offset + sum_k i_k s_k      ->      target element  target_offset + sum_k i_k t_k
//! ```
//!
//! The order of the pairs means nothing as long as no target element occurs twice, so a nest may be rewritten freely:
//! [`Nest::reduce`] brings it to the form with the fewest loops, from which the shape of the data movement can be read
//! off: no loop left is one run, an innermost loop of strides 1 and 1 is rows of runs, an innermost target stride 1
//! with the source stride 1 elsewhere is a transpose.

use reshard_layout::Layout;
use smallvec::SmallVec;

use crate::{Error, Side};

/// One loop: how often it runs and by how many elements it advances on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// Number of iterations; 0 makes the whole nest empty.
    pub extent: usize,
    /// Advance in the source; may be 0 or negative.
    pub source_stride: i64,
    /// Advance in the target; negative is fine, 0 is an overlap unless the extent is 1.
    pub target_stride: i64,
}

impl Loop {
    /// A loop of `extent` iterations.
    pub fn new(extent: usize, source_stride: i64, target_stride: i64) -> Self {
        Loop { extent, source_stride, target_stride }
    }
}

/// A loop nest over two buffers, outermost loop first, counted in elements.
///
/// ```
/// use reshard_kernels::{Loop, Nest};
/// // Rows 1 and 2 of a 4 x 6 matrix into a dense 2 x 6 one: the loops merge into a single run of 12.
/// let nest = Nest::new(6, 0, [Loop::new(2, 6, 6), Loop::new(1, 0, 0), Loop::new(6, 1, 1)]);
/// let reduced = nest.reduce()?;
/// assert_eq!(reduced, Nest::new(6, 0, [Loop::new(12, 1, 1)]));
/// assert_eq!(reduced.len()?, 12);
/// # Ok::<(), reshard_kernels::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nest {
    /// Source element of the first iteration.
    pub source_offset: i64,
    /// Target element of the first iteration.
    pub target_offset: i64,
    /// The loops, outermost first.
    pub loops: SmallVec<[Loop; 6]>,
}

impl Nest {
    /// The nest with these offsets and loops, outermost first.
    pub fn new(source_offset: i64, target_offset: i64, loops: impl IntoIterator<Item = Loop>) -> Self {
        Nest { source_offset, target_offset, loops: loops.into_iter().collect() }
    }

    /// The nest that runs over two layouts side by side: `source(i) -> target(i)` for `0 <= i < size`.
    ///
    /// The leaves of both are cut at each other's boundaries, from the fastest on. Where neither of two extents divides
    /// the other there is no nest (`None`), and only the definition is left: `(2,3):(3,1)` beside `(3,2):(2,1)`.
    ///
    /// Errors: [`Error::SizeMismatch`].
    pub fn between(target: &Layout, source: &Layout) -> Result<Option<Nest>, Error> {
        if target.size() != source.size() {
            return Err(Error::SizeMismatch {
                target: target.size() as usize,
                source: source.size() as usize,
            });
        }
        let (target, source) = (target.coalesce(), source.coalesce());
        let (mut target_leaves, mut source_leaves) = (target.leaves(), source.leaves());
        let (mut t, mut s) = ((1, 0), (1, 0));
        let mut loops: SmallVec<[Loop; 6]> = SmallVec::new();
        loop {
            if t.0 == 1 {
                let Some(leaf) = target_leaves.next() else { break };
                t = leaf;
                continue;
            }
            if s.0 == 1 {
                let Some(leaf) = source_leaves.next() else { break };
                s = leaf;
                continue;
            }
            let extent = t.0.min(s.0);
            if t.0 % extent != 0 || s.0 % extent != 0 {
                return Ok(None);
            }
            loops.push(Loop::new(extent as usize, s.1, t.1));
            let advance = |leaf: (i64, i64)| {
                if leaf.0 == extent {
                    return Ok((1, 0));
                }
                let stride = leaf.1.checked_mul(extent).ok_or(Error::Overflow { what: "a stride" })?;
                Ok::<_, Error>((leaf.0 / extent, stride))
            };
            (t, s) = (advance(t)?, advance(s)?);
        }
        loops.reverse();
        Ok(Some(Nest { source_offset: 0, target_offset: 0, loops }))
    }

    /// Number of iterations.
    ///
    /// Errors: [`Error::Overflow`].
    pub fn len(&self) -> Result<usize, Error> {
        if self.is_empty() {
            return Ok(0);
        }
        let product = self.loops.iter().try_fold(1usize, |n, l| n.checked_mul(l.extent));
        product.filter(|n| i64::try_from(*n).is_ok()).ok_or(Error::Overflow { what: "the size of a copy" })
    }

    /// True if some loop has no iteration.
    pub fn is_empty(&self) -> bool {
        self.loops.iter().any(|l| l.extent == 0)
    }

    /// The equal nest with the fewest loops.
    ///
    /// Loops of extent 1 vanish; target strides become positive (a loop may run backwards); loops are sorted by target
    /// stride, greatest first; neighbours that are one loop on both sides merge. An empty nest has one loop of extent 0.
    ///
    /// Ensures: the same set of (source, target) pairs. Errors: [`Error::Overflow`].
    pub fn reduce(&self) -> Result<Nest, Error> {
        if self.is_empty() {
            return Ok(Nest::new(0, 0, [Loop::new(0, 1, 1)]));
        }
        let overflow = Error::Overflow { what: "an offset of a copy" };
        let mut reduced = Nest::new(self.source_offset, self.target_offset, []);
        let mut loops: SmallVec<[Loop; 6]> = SmallVec::new();
        for l in self.loops.iter().filter(|l| l.extent > 1) {
            let mut l = *l;
            if l.target_stride < 0 {
                let last = l.extent as i64 - 1;
                let moved = |offset: i64, stride: i64| offset.checked_add(stride.checked_mul(last)?);
                reduced.source_offset =
                    moved(reduced.source_offset, l.source_stride).ok_or(overflow.clone())?;
                reduced.target_offset =
                    moved(reduced.target_offset, l.target_stride).ok_or(overflow.clone())?;
                l.source_stride = l.source_stride.checked_neg().ok_or(overflow.clone())?;
                l.target_stride = l.target_stride.checked_neg().ok_or(overflow.clone())?;
            }
            loops.push(l);
        }
        loops.sort_by_key(|l| std::cmp::Reverse((l.target_stride, l.source_stride)));
        for l in loops {
            match reduced.loops.last_mut() {
                Some(outer) if is_one_loop(outer, &l) => {
                    let extent = outer.extent.checked_mul(l.extent).ok_or(overflow.clone())?;
                    *outer = Loop::new(extent, l.source_stride, l.target_stride);
                }
                _ => reduced.loops.push(l),
            }
        }
        Ok(reduced)
    }

    /// The same loops counted in units of `1 / factor` elements, e.g. bytes.
    ///
    /// Errors: [`Error::Overflow`].
    pub fn scale(&self, factor: usize) -> Result<Nest, Error> {
        let times = |n: i64| {
            let product = i64::try_from(factor).ok().and_then(|factor| n.checked_mul(factor));
            product.ok_or(Error::Overflow { what: "a byte offset of a copy" })
        };
        let mut scaled = Nest::new(times(self.source_offset)?, times(self.target_offset)?, []);
        for l in &self.loops {
            scaled.loops.push(Loop::new(l.extent, times(l.source_stride)?, times(l.target_stride)?));
        }
        Ok(scaled)
    }

    /// Least and greatest element that is touched on one side; `None` if the nest is empty.
    ///
    /// Errors: [`Error::Overflow`].
    pub fn extremes(&self, side: Side) -> Result<Option<(i64, i64)>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let offset = match side {
            Side::Source => self.source_offset,
            Side::Target => self.target_offset,
        };
        let (mut least, mut greatest) = (Some(offset), Some(offset));
        for l in &self.loops {
            let stride = match side {
                Side::Source => l.source_stride,
                Side::Target => l.target_stride,
            };
            let span = i64::try_from(l.extent - 1).ok().and_then(|last| stride.checked_mul(last));
            let (Some(span), Some(low), Some(high)) = (span, least, greatest) else {
                return Err(Error::Overflow { what: "an offset of a copy" });
            };
            (least, greatest) = (low.checked_add(span.min(0)), high.checked_add(span.max(0)));
        }
        match (least, greatest) {
            (Some(least), Some(greatest)) => Ok(Some((least, greatest))),
            (_, _) => Err(Error::Overflow { what: "an offset of a copy" }),
        }
    }

    /// Succeeds if no target element is written twice.
    ///
    /// Two iterations meet exactly if `sum_k d_k t_k = 0` for some `|d_k| < e_k` that are not all 0. Sorted by stride,
    /// with each stride above the span of those below, there is none; otherwise the few candidates are tried.
    ///
    /// Errors: [`Error::Overlap`], [`Error::Overflow`].
    pub fn check_target_is_injective(&self) -> Result<(), Error> {
        let reduced = self.reduce()?;
        reduced.extremes(Side::Target)?;
        let loops: SmallVec<[(i128, i128); 6]> =
            reduced.loops.iter().map(|l| (l.extent as i128, i128::from(l.target_stride))).collect();
        if has_zero_difference(&loops, 0, false) {
            let loops: Vec<String> =
                self.loops.iter().map(|l| format!("{}:{}", l.extent, l.target_stride)).collect();
            return Err(Error::Overlap { loops: format!("({})", loops.join(",")) });
        }
        Ok(())
    }
}

/// True if `outer` starts over where `inner` ends, on both sides.
fn is_one_loop(outer: &Loop, inner: &Loop) -> bool {
    let extent = inner.extent as i128;
    i128::from(outer.target_stride) == i128::from(inner.target_stride) * extent
        && i128::from(outer.source_stride) == i128::from(inner.source_stride) * extent
}

/// True if `sum + sum_k d_k stride_k = 0` for some `|d_k| < extent_k`, not all 0 unless `moved`.
///
/// Requires strides sorted, greatest first, none negative. The sign of the first difference that is not 0 is free, so
/// only positive ones are tried. With separable strides one candidate is left per loop.
fn has_zero_difference(loops: &[(i128, i128)], sum: i128, moved: bool) -> bool {
    let Some((&(extent, stride), inner)) = loops.split_first() else { return moved && sum == 0 };
    if stride == 0 {
        return extent > 1 && sum == 0;
    }
    let below: i128 = inner.iter().map(|(extent, stride)| (extent - 1) * stride).sum();
    // |sum + d stride| <= below
    let low = (-below - sum).div_euclid(stride) + i128::from((-below - sum).rem_euclid(stride) != 0);
    let high = (below - sum).div_euclid(stride);
    let least = if moved { 1 - extent } else { 0 };
    (low.max(least)..=high.min(extent - 1))
        .any(|d| has_zero_difference(inner, sum + d * stride, moved || d != 0))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use quickcheck::{Arbitrary, Gen, TestResult, quickcheck};

    use super::*;

    #[derive(Clone, Debug)]
    struct SmallNest(Nest);

    impl Arbitrary for SmallNest {
        fn arbitrary(g: &mut Gen) -> Self {
            let mut stride = |from: i64| i64::from(i8::arbitrary(g)) % 9 - from;
            let (source_offset, target_offset) = (stride(0), stride(0));
            let count = u8::arbitrary(g) % 5;
            let loops: Vec<Loop> = (0..count)
                .map(|_| {
                    let strides = [1, 2, 3, 4, 6, 12, -1, -4, 0];
                    let extent = usize::from(u8::arbitrary(g) % 5);
                    let extent = if extent == 0 && bool::arbitrary(g) { 1 } else { extent };
                    Loop::new(extent, *g.choose(&strides).unwrap(), *g.choose(&strides).unwrap())
                })
                .collect();
            SmallNest(Nest::new(source_offset, target_offset, loops))
        }
    }

    fn pairs(nest: &Nest) -> Vec<(i64, i64)> {
        nest.loops.iter().rev().fold(vec![(nest.source_offset, nest.target_offset)], |pairs, l| {
            (0..l.extent as i64)
                .flat_map(|i| {
                    pairs.iter().map(move |p| (p.0 + i * l.source_stride, p.1 + i * l.target_stride))
                })
                .collect()
        })
    }

    quickcheck! {
        fn reduce_keeps_the_pairs(nest: SmallNest) -> bool {
            let reduced = nest.0.reduce().unwrap();
            let sorted = |nest: &Nest| { let mut p = pairs(nest); p.sort_unstable(); p };
            sorted(&nest.0) == sorted(&reduced) && nest.0.len() == reduced.len()
        }

        fn reduce_is_idempotent(nest: SmallNest) -> bool {
            let reduced = nest.0.reduce().unwrap();
            reduced.reduce().unwrap() == reduced
        }

        fn extremes_are_the_extremes(nest: SmallNest) -> bool {
            let all = pairs(&nest.0);
            let source = all.iter().map(|p| p.0).min().zip(all.iter().map(|p| p.0).max());
            let target = all.iter().map(|p| p.1).min().zip(all.iter().map(|p| p.1).max());
            nest.0.extremes(Side::Source) == Ok(source) && nest.0.extremes(Side::Target) == Ok(target)
        }

        fn overlap_is_found_exactly(nest: SmallNest) -> bool {
            let all = pairs(&nest.0);
            let distinct: HashSet<i64> = all.iter().map(|p| p.1).collect();
            nest.0.check_target_is_injective().is_ok() == (distinct.len() == all.len())
        }

        fn between_runs_over_both_layouts(shape: Vec<(u8, i8)>, target: Vec<i8>) -> TestResult {
            let modes: Vec<(i64, i64)> =
                shape.iter().take(4).map(|(e, d)| (i64::from(e % 4) + 1, i64::from(*d) % 7)).collect();
            let other: Vec<(i64, i64)> =
                modes.iter().zip(target.iter().chain(std::iter::repeat(&3))).map(|(m, d)| (m.0, i64::from(*d) % 7)).collect();
            let (source, target) = (Layout::from_modes(&modes).unwrap(), Layout::from_modes(&other).unwrap());
            let Some(nest) = Nest::between(&target, &source).unwrap() else { return TestResult::failed() };
            let expected: BTreeSet<(i64, i64)> =
                (0..source.size()).map(|i| (source.at(i).unwrap(), target.at(i).unwrap())).collect();
            TestResult::from_bool(expected == pairs(&nest).into_iter().collect())
        }
    }

    #[test]
    fn layouts_that_do_not_nest_have_no_nest() {
        let layout = |text: &str| text.parse::<Layout>().unwrap();
        assert_eq!(Nest::between(&layout("(2,3):(3,1)"), &layout("(3,2):(2,1)")), Ok(None));
        assert!(Nest::between(&layout("6:1"), &layout("(3,2):(2,1)")).unwrap().is_some());
        let mismatch = Nest::between(&layout("6:1"), &layout("5:1")).unwrap_err();
        assert_eq!(mismatch.to_string(), "the target's layout has 6 elements and the source's 5");
    }

    #[test]
    fn overflow_is_an_error() {
        let nest = Nest::new(i64::MAX, 0, [Loop::new(2, 1, 1)]);
        assert_eq!(nest.extremes(Side::Source).unwrap_err().kind(), "overflow");
        assert_eq!(Nest::new(0, 0, [Loop::new(usize::MAX, 1, 1)]).len().unwrap_err().kind(), "overflow");
        assert_eq!(Nest::new(0, 0, [Loop::new(3, 1, i64::MAX)]).scale(4).unwrap_err().kind(), "overflow");
    }
}
