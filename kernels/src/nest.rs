//! Loop nests: layouts of pairs, which describe a copy between two memories.
//!
//! A mode `e:(s, t)` iterates `e` times, each time `s` elements on in the source and `t` in the target. A
//! nest with modes `(e_1, ..., e_n):((s_1, t_1), ..., (s_n, t_n))` stands for the pairs, one for every `0 <=
//! i_k < e_k`, leftmost fastest,
//!
//! ```text
//! source element  source_offset + sum_k i_k s_k      ->      target element  target_offset + sum_k i_k t_k
//! ```
//!
//! [`LoopNest::between`] two layouts is their [`zip`]: both are split at each other's boundaries. The order of
//! the pairs is irrelevant as long as no target element occurs twice, so a nest may be rewritten freely.
//! [`LoopNest::reduce`] sorts and coalesces it to the form with the fewest modes, which shows the kind of copy.
//! No mode left is one element; a first mode of strides `(1, 1)` is rows of runs; a first target stride 1
//! with the source stride 1 elsewhere is a transpose.

use reshard_layout::algebra::zip;
use reshard_layout::{Layout, Mode, Modes};

use crate::{CopySide, Error};

/// A copy as a layout of pairs, leftmost mode fastest, counted in elements.
///
/// ```
/// use reshard_kernels::LoopNest;
/// use reshard_layout::Mode;
/// // Rows 1 and 2 of a 4 x 6 matrix into a dense 2 x 6 one.
/// let nest = LoopNest::new(6, 0, [Mode::new(6, (1, 1)), Mode::new(1, (0, 0)), Mode::new(2, (6, 6))]);
/// assert_eq!(nest.len()?, 12);
/// # Ok::<(), reshard_kernels::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoopNest {
    /// Source element of the first pair.
    pub source_offset: i64,
    /// Target element of the first pair.
    pub target_offset: i64,
    /// Extents and strides in the source and in the target, leftmost fastest.
    ///
    /// An extent below 1 makes the whole nest empty. Strides may be negative; a target stride of 0 is an overlap unless
    /// the extent is 1.
    pub modes: Modes<(i64, i64)>,
}

impl LoopNest {
    /// Creates the nest with these offsets and modes, leftmost fastest.
    pub fn new(
        source_offset: i64,
        target_offset: i64,
        modes: impl IntoIterator<Item = Mode<(i64, i64)>>,
    ) -> Self {
        LoopNest { source_offset, target_offset, modes: modes.into_iter().collect() }
    }

    /// Returns the nest that runs over two layouts in parallel: `source(i) -> target(i)` for `0 <= i < size`.
    ///
    /// It is the [`zip`] of the two. If they do not nest it is `None`, and only the definition is left: for
    /// example `(2,3):(3,1)` with `(3,2):(2,1)`.
    ///
    /// Errors: [`Error::SizeMismatch`].
    pub fn between(target: &Layout, source: &Layout) -> Result<Option<LoopNest>, Error> {
        if target.size() != source.size() {
            return Err(Error::SizeMismatch {
                target: target.size() as usize,
                source: source.size() as usize,
            });
        }
        let modes = zip(source.coalesce().flat(), target.coalesce().flat()).ok();
        Ok(modes.map(|modes| LoopNest { source_offset: 0, target_offset: 0, modes }))
    }

    /// Returns the number of pairs.
    ///
    /// Errors: [`Error::Overflow`].
    pub fn len(&self) -> Result<usize, Error> {
        if self.is_empty() {
            return Ok(0);
        }
        let product = self.modes.iter().try_fold(1i64, |n, mode| n.checked_mul(mode.extent));
        let size = product.and_then(|n| usize::try_from(n).ok());
        size.ok_or(Error::Overflow { what: "the size of a copy" })
    }

    /// Returns `true` if some mode has no coordinate.
    pub fn is_empty(&self) -> bool {
        self.modes.iter().any(|mode| mode.extent < 1)
    }

    /// Returns the equal nest with the fewest modes.
    ///
    /// Modes of extent 1 vanish; target strides become positive (a mode may run backwards); modes are sorted by target
    /// stride, least first, and coalesced. An empty nest has one mode of extent 0.
    ///
    /// ```
    /// use reshard_kernels::LoopNest;
    /// use reshard_layout::Mode;
    /// let nest = LoopNest::new(6, 0, [Mode::new(6, (1, 1)), Mode::new(1, (0, 0)), Mode::new(2, (6, 6))]);
    /// assert_eq!(nest.reduce()?, LoopNest::new(6, 0, [Mode::new(12, (1, 1))])); // one run
    /// # Ok::<(), reshard_kernels::Error>(())
    /// ```
    ///
    /// Ensures: the same set of (source, target) pairs. Errors: [`Error::Overflow`].
    #[doc(hidden)]
    pub fn reduce(&self) -> Result<LoopNest, Error> {
        if self.is_empty() {
            return Ok(LoopNest::new(0, 0, [Mode::new(0, (1, 1))]));
        }
        let mut offsets = (self.source_offset, self.target_offset);
        let mut modes = Modes::new();
        for mut mode in self.modes.iter().copied().filter(|mode| mode.extent > 1) {
            if mode.stride.1 < 0 {
                let turned = backwards(offsets, mode);
                (offsets, mode.stride) = turned.ok_or(Error::Overflow { what: "an offset of a copy" })?;
            }
            modes.push(mode);
        }
        modes.sort_by_key(|mode| (mode.stride.1, mode.stride.0));
        Ok(LoopNest { source_offset: offsets.0, target_offset: offsets.1, modes: modes.coalesce() })
    }

    /// Returns the same modes counted in units of `1 / factor` elements, such as bytes.
    ///
    /// Errors: [`Error::Overflow`].
    #[doc(hidden)]
    pub fn scale(&self, factor: usize) -> Result<LoopNest, Error> {
        let times = |n: i64| {
            let product = i64::try_from(factor).ok().and_then(|factor| n.checked_mul(factor));
            product.ok_or(Error::Overflow { what: "a byte offset of a copy" })
        };
        let mut scaled = LoopNest::new(times(self.source_offset)?, times(self.target_offset)?, []);
        for mode in &self.modes {
            scaled.modes.push(Mode::new(mode.extent, (times(mode.stride.0)?, times(mode.stride.1)?)));
        }
        Ok(scaled)
    }

    /// Returns the least and greatest element that is accessed on one side; `None` if the nest is empty.
    ///
    /// Errors: [`Error::Overflow`].
    #[doc(hidden)]
    pub fn extremes(&self, side: CopySide) -> Result<Option<(i64, i64)>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let offset = side.of((self.source_offset, self.target_offset));
        let reach = |(least, greatest): (i64, i64), mode: &Mode<(i64, i64)>| {
            let span = side.of(mode.stride).checked_mul(mode.extent - 1)?;
            Some((least.checked_add(span.min(0))?, greatest.checked_add(span.max(0))?))
        };
        let all = self.modes.iter().try_fold((offset, offset), reach);
        all.map(Some).ok_or(Error::Overflow { what: "an offset of a copy" })
    }

    /// Succeeds if no target element is written twice.
    ///
    /// Two pairs collide exactly if `sum_k d_k t_k = 0` for some `|d_k| < e_k` that are not all 0. Sorted by
    /// stride, with each stride above the span of those below, there is none; otherwise the few candidates
    /// are checked.
    ///
    /// Errors: [`Error::Overlap`], [`Error::Overflow`].
    #[doc(hidden)]
    pub fn check_target_is_injective(&self) -> Result<(), Error> {
        let reduced = self.reduce()?;
        reduced.extremes(CopySide::Target)?;
        if has_zero_difference(&reduced.modes, 0, false) {
            let loops = self.modes.iter().rev().map(|mode| format!("{}:{}", mode.extent, mode.stride.1));
            return Err(Error::Overlap { loops: format!("({})", loops.collect::<Vec<_>>().join(",")) });
        }
        Ok(())
    }
}

/// Returns offsets and strides of a mode that begins where this one ends, `None` on overflow.
fn backwards((source, target): (i64, i64), mode: Mode<(i64, i64)>) -> Option<((i64, i64), (i64, i64))> {
    let (last, (s, t)) = (mode.extent - 1, mode.stride);
    let offsets = (source.checked_add(s.checked_mul(last)?)?, target.checked_add(t.checked_mul(last)?)?);
    Some((offsets, (s.checked_neg()?, t.checked_neg()?)))
}

/// Returns `true` if `sum + sum_k d_k t_k = 0` for some `|d_k| < e_k`, not all 0 unless `moved`.
///
/// Requires target strides sorted, least first, none negative. The sign of the first difference that is not 0 is free, so
/// only positive ones are tried. With separable strides one candidate is left per mode.
fn has_zero_difference(modes: &[Mode<(i64, i64)>], sum: i128, moved: bool) -> bool {
    let Some((slowest, faster)) = modes.split_last() else { return moved && sum == 0 };
    let (last, stride) = (i128::from(slowest.extent - 1), i128::from(slowest.stride.1));
    if stride == 0 {
        return last > 0 && sum == 0;
    }
    let below: i128 = faster.iter().map(|m| i128::from(m.extent - 1) * i128::from(m.stride.1)).sum();
    // |sum + d stride| <= below
    let low = (-below - sum).div_euclid(stride) + i128::from((-below - sum).rem_euclid(stride) != 0);
    let high = (below - sum).div_euclid(stride);
    let least = if moved { -last } else { 0 };
    (low.max(least)..=high.min(last)).any(|d| has_zero_difference(faster, sum + d * stride, moved || d != 0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use reshard_test_support::{Arbitrary, Gen, properties};

    use super::*;
    use crate::reference::pairs;

    #[derive(Clone, Debug)]
    struct SmallNest(LoopNest);

    impl Arbitrary for SmallNest {
        fn arbitrary(g: &mut Gen) -> Self {
            let mut stride = |from: i64| i64::from(i8::arbitrary(g)) % 9 - from;
            let (source_offset, target_offset) = (stride(0), stride(0));
            let count = u8::arbitrary(g) % 5;
            let modes = (0..count).map(|_| {
                let strides = [1, 2, 3, 4, 6, 12, -1, -4, 0];
                let extent = i64::from(u8::arbitrary(g) % 5);
                let extent = if extent == 0 && bool::arbitrary(g) { 1 } else { extent };
                Mode::new(extent, (*g.choose(&strides).unwrap(), *g.choose(&strides).unwrap()))
            });
            SmallNest(LoopNest::new(source_offset, target_offset, modes.collect::<Vec<_>>()))
        }
    }

    properties! {
        fn extremes_are_the_extremes(nest: SmallNest) -> bool {
            let all = pairs(&nest.0);
            let source = all.iter().map(|p| p.0).min().zip(all.iter().map(|p| p.0).max());
            let target = all.iter().map(|p| p.1).min().zip(all.iter().map(|p| p.1).max());
            nest.0.extremes(CopySide::Source) == Ok(source) && nest.0.extremes(CopySide::Target) == Ok(target)
        }

        fn overlap_is_found_exactly(nest: SmallNest) -> bool {
            let all = pairs(&nest.0);
            let distinct: HashSet<i64> = all.iter().map(|p| p.1).collect();
            nest.0.check_target_is_injective().is_ok() == (distinct.len() == all.len())
        }
    }

    #[derive(Clone, Debug)]
    struct AnyNest(LoopNest);

    impl Arbitrary for AnyNest {
        fn arbitrary(g: &mut Gen) -> Self {
            let mut number = || match u8::arbitrary(g) % 4 {
                0 => i64::arbitrary(g),
                1 => *g.choose(&[i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]).unwrap(),
                2 => 1 << (u8::arbitrary(g) % 63),
                _ => i64::from(i8::arbitrary(g)),
            };
            let offsets = (number(), number());
            let modes: Vec<_> =
                (0..number().unsigned_abs() % 5).map(|_| Mode::new(number(), (number(), number()))).collect();
            AnyNest(LoopNest::new(offsets.0, offsets.1, modes))
        }
    }

    properties! {
        // Any numbers are accepted; overflow is an error.
        fn any_numbers_have_an_answer(nest: AnyNest, factor: usize) -> bool {
            let nest = nest.0;
            let sides = [CopySide::Source, CopySide::Target].map(|side| nest.extremes(side).is_ok());
            let (reduced, _) = (nest.reduce(), (nest.scale(factor), nest.check_target_is_injective()));
            // A reduced nest copies as many elements, between the same extremes.
            reduced.is_err()
                || !(sides[0] && sides[1])
                || reduced.is_ok_and(|r| {
                    (nest.len().is_err() || r.len() == nest.len())
                        && r.extremes(CopySide::Source) == nest.extremes(CopySide::Source)
                        && r.extremes(CopySide::Target) == nest.extremes(CopySide::Target)
                })
        }
    }

    #[test]
    fn layouts_that_do_not_nest_have_no_nest() {
        let layout = |text: &str| text.parse::<Layout>().unwrap();
        assert_eq!(LoopNest::between(&layout("(2,3):(3,1)"), &layout("(3,2):(2,1)")), Ok(None));
        assert!(LoopNest::between(&layout("6:1"), &layout("(3,2):(2,1)")).unwrap().is_some());
        let mismatch = LoopNest::between(&layout("6:1"), &layout("5:1")).unwrap_err();
        assert_eq!(mismatch.to_string(), "the target's layout has 6 elements and the source's 5");
    }

    #[test]
    fn overflow_is_an_error() {
        let nest = LoopNest::new(i64::MAX, 0, [Mode::new(2, (1, 1))]);
        assert_eq!(nest.extremes(CopySide::Source).unwrap_err().code(), "overflow");
        let twice = [Mode::new(i64::MAX, (1, 1)), Mode::new(2, (0, 0))];
        assert_eq!(LoopNest::new(0, 0, twice).len().unwrap_err().code(), "overflow");
        assert_eq!(
            LoopNest::new(0, 0, [Mode::new(3, (1, i64::MAX))]).scale(4).unwrap_err().code(),
            "overflow"
        );
        let far = LoopNest::new(0, 0, [Mode::new(2, (0, i64::MIN))]);
        assert_eq!(far.reduce().unwrap_err().code(), "overflow");
    }

    #[test]
    fn extents_below_1_are_empty() {
        for extent in [0, -1, i64::MIN] {
            let nest = LoopNest::new(3, 4, [Mode::new(2, (1, 1)), Mode::new(extent, (2, 2))]);
            assert_eq!((nest.is_empty(), nest.len(), pairs(&nest).len()), (true, Ok(0), 0));
            assert_eq!(
                (nest.extremes(CopySide::Source), nest.check_target_is_injective()),
                (Ok(None), Ok(()))
            );
            assert_eq!(nest.reduce().unwrap(), LoopNest::new(0, 0, [Mode::new(0, (1, 1))]));
        }
    }
}
