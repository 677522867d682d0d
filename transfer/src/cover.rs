//! Proves that strided boxes partition a range of elements, without listing elements.
//!
//! Boxes whose spans do not interleave are sorted, and neighbours compared. A group of boxes that interleave is divided
//! by its largest stride `S`: element `q S + r` has the digits `q` and `r`. A box is an interval of `q` times a box of
//! `r`, after it is split where it carries. Between two ends of intervals of `q`, the boxes of `r` are the same, and must
//! partition `0 .. S`: the same problem with smaller strides. Each level costs `O(B log B)` for `B` boxes.

/// A set of elements: all sums of `start` and a multiple below `extent` of each stride.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strided {
    pub(crate) start: u64,
    /// Extent and stride, by descending stride; each stride exceeds the span of the smaller ones.
    pub(crate) loops: Vec<(u64, u64)>,
}

/// The reason why boxes do not partition a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No box has these elements.
    Gap(u64, u64),
    /// Two boxes have this element, or one box has it twice.
    Twice(u64),
    /// A box has this element, which is outside of the range.
    Outside(u64),
    /// The strides of a box do not nest.
    NotNested,
    /// Boxes that do not align need too many splits.
    TooComplex,
}

impl Fault {
    /// Returns the fault in the elements of the whole.
    fn shifted(self, by: u64) -> Self {
        match self {
            Self::Gap(start, stop) => Self::Gap(start + by, stop + by),
            Self::Twice(at) => Self::Twice(at + by),
            Self::Outside(at) => Self::Outside(at + by),
            Self::NotNested | Self::TooComplex => self,
        }
    }
}

impl Strided {
    /// Returns the box of these loops, in any order.
    pub(crate) fn new(start: u64, loops: impl IntoIterator<Item = (u64, u64)>) -> Result<Self, Fault> {
        let mut all: Vec<(u64, u64)> = loops.into_iter().filter(|(extent, _)| *extent != 1).collect();
        all.sort_by_key(|(_, stride)| *stride);
        let mut span: u64 = 0;
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (extent, stride) in all {
            if stride == 0 && extent > 1 {
                return Err(Fault::Twice(start));
            }
            if extent == 0 || stride <= span {
                return Err(Fault::NotNested);
            }
            let steps = extent.saturating_sub(1);
            span = steps
                .checked_mul(stride)
                .and_then(|of_loop| span.checked_add(of_loop))
                .ok_or(Fault::NotNested)?;
            match merged.last_mut() {
                Some(last) if last.0.checked_mul(last.1) == Some(stride) => last.0 *= extent,
                _ => merged.push((extent, stride)),
            }
        }
        start.checked_add(span).and_then(|last| last.checked_add(1)).ok_or(Fault::Outside(start))?;
        merged.reverse();
        Ok(Self { start, loops: merged })
    }

    /// Returns the last element relative to the first.
    fn span(&self) -> u64 {
        self.loops.iter().map(|(extent, stride)| (extent - 1) * stride).sum()
    }

    fn end(&self) -> u64 {
        self.start + self.span() + 1
    }

    /// Returns the number of elements up to the first gap.
    fn dense(&self) -> u64 {
        match self.loops.last() {
            Some((extent, 1)) => *extent,
            Some(_) | None => 1,
        }
    }

    /// Returns the steps `from .. to` of a loop.
    fn narrowed(&self, k: usize, from: u64, to: u64) -> Self {
        let mut part = self.clone();
        part.start += from * part.loops[k].1;
        part.loops[k].0 = to - from;
        part.loops.retain(|(extent, _)| *extent != 1);
        part
    }
}

/// An interval of `q` times a box of `r`.
struct Rows {
    start: u64,
    stop: u64,
    row: Strided,
}

/// The state of a proof.
struct Proof {
    /// The number of splits that are still allowed.
    left: usize,
}

/// Returns an error unless the boxes partition `0 .. count`.
pub(crate) fn partition(boxes: Vec<Strided>, count: u64) -> Result<(), Fault> {
    if let Some(over) = boxes.iter().find(|one| one.end() > count) {
        return Err(Fault::Outside(over.end() - 1));
    }
    let left = boxes.len().saturating_mul(256).saturating_add(1 << 14);
    Proof { left }.cover(boxes, count)
}

impl Proof {
    fn spend(&mut self, splits: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(splits).ok_or(Fault::TooComplex)?;
        Ok(())
    }

    /// Returns an error unless the boxes partition `0 .. stop`.
    fn cover(&mut self, mut boxes: Vec<Strided>, stop: u64) -> Result<(), Fault> {
        self.spend(boxes.len())?;
        boxes.sort_by_key(|one| one.start);
        let (mut first, mut at) = (0, 0);
        while first < boxes.len() {
            let start = boxes[first].start;
            if start != at {
                return Err(if start > at { Fault::Gap(at, start) } else { Fault::Twice(start) });
            }
            let mut end = boxes[first].end();
            let mut next = first + 1;
            while next < boxes.len() && boxes[next].start < end {
                end = end.max(boxes[next].end());
                next += 1;
            }
            if next == first + 1 {
                let dense = boxes[first].dense();
                if start + dense != end {
                    return Err(Fault::Gap(start + dense, start + dense + 1));
                }
            } else {
                self.interleaved(&boxes[first..next], start, end)?;
            }
            (at, first) = (end, next);
        }
        if at < stop {
            return Err(Fault::Gap(at, stop));
        }
        if at > stop { Err(Fault::Outside(at - 1)) } else { Ok(()) }
    }

    /// Returns an error unless boxes that interleave partition `start .. end`.
    fn interleaved(&mut self, boxes: &[Strided], start: u64, end: u64) -> Result<(), Fault> {
        let stride = boxes.iter().filter_map(|one| one.loops.first()).map(|(_, stride)| *stride).max();
        let Some(stride) = stride.filter(|stride| *stride > 1) else {
            // Ranges that overlap.
            return Err(Fault::Twice(boxes[1].start));
        };
        let mut rows = Vec::new();
        for one in boxes {
            let mut one = one.clone();
            one.start -= start;
            self.rows(&one, stride, &mut rows)?;
        }
        rows.sort_by_key(|one| (one.start, one.stop));
        let mut ends: Vec<u64> = rows.iter().flat_map(|one| [one.start, one.stop]).collect();
        ends.sort_unstable();
        ends.dedup();
        let (mut next, mut active): (usize, Vec<Rows>) = (0, Vec::new());
        let mut rows: Vec<Option<Rows>> = rows.into_iter().map(Some).collect();
        for bounds in ends.windows(2) {
            let (from, to) = (bounds[0], bounds[1]);
            active.retain(|one| one.stop > from);
            while let Some(one) =
                rows.get_mut(next).filter(|one| one.as_ref().is_some_and(|x| x.start <= from))
            {
                active.extend(one.take());
                next += 1;
            }
            let rest = (end - start).saturating_sub(from * stride);
            let stop = if to - from == 1 { rest.min(stride) } else { stride };
            let of_row = active.iter().map(|one| one.row.clone()).collect();
            self.cover(of_row, stop).map_err(|fault| fault.shifted(start + from * stride))?;
        }
        Ok(())
    }

    /// Appends a box, whose strides are at most `stride`, as rows of this length.
    fn rows(&mut self, one: &Strided, stride: u64, out: &mut Vec<Rows>) -> Result<(), Fault> {
        self.spend(1)?;
        let inner =
            one.loops.iter().position(|(_, step)| !step.is_multiple_of(stride)).unwrap_or(one.loops.len());
        let (outer, loops) = one.loops.split_at(inner);
        let at = one.start % stride;
        let span: u64 = loops.iter().map(|(extent, step)| (extent - 1) * step).sum();
        if at + span < stride {
            let first = one.start / stride;
            let row = Strided { start: at, loops: loops.to_vec() };
            return match outer {
                [] => self.push(first, 1, row, out),
                [(extent, step)] if *step == stride => self.push(first, *extent, row, out),
                // Rows that are not neighbours are listed, within the limit of splits.
                [(extent, step)] => {
                    (0..*extent).try_for_each(|k| self.push(first + k * (step / stride), 1, row.clone(), out))
                }
                [..] => (0..outer[0].0).try_for_each(|k| self.rows(&one.narrowed(0, k, k + 1), stride, out)),
            };
        }
        // The same steps as for digits of a mapping: up to the first carry, whole periods, then runs within a row.
        let (extent, step) = loops[0];
        let below = span - step * (extent - 1);
        let head = (stride - at).div_ceil(step);
        if at >= step && head < extent {
            self.rows(&one.narrowed(inner, 0, head), stride, out)?;
            return self.rows(&one.narrowed(inner, head, extent), stride, out);
        }
        let period = stride / gcd(step, stride);
        if period < extent {
            let whole = extent - extent % period;
            let mut blocks = one.narrowed(inner, 0, whole);
            let of_loop = [(whole / period, step * period), (period, step)];
            blocks.loops.splice(inner..=inner, of_loop.into_iter().filter(|(extent, _)| *extent != 1));
            self.rows(&blocks, stride, out)?;
            if whole < extent {
                self.rows(&one.narrowed(inner, whole, extent), stride, out)?;
            }
            return Ok(());
        }
        let mut from = 0;
        while from < extent {
            let index = (at + step * from) % stride;
            let length = match (stride - 1).checked_sub(below + index) {
                Some(space) => (space / step + 1).min(extent - from),
                None => 1,
            };
            self.rows(&one.narrowed(inner, from, from + length), stride, out)?;
            from += length;
        }
        Ok(())
    }

    fn push(&mut self, start: u64, extent: u64, row: Strided, out: &mut Vec<Rows>) -> Result<(), Fault> {
        self.spend(1)?;
        out.push(Rows { start, stop: start + extent, row });
        Ok(())
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::{Fault, Strided, partition};
    use reshard_test_support::Random;

    /// The slow definition: counts how often each element occurs.
    fn counts(boxes: &[Strided], count: u64) -> Option<Vec<u32>> {
        let mut counts = vec![0; count as usize];
        for one in boxes {
            let mut all = vec![one.start];
            for (extent, stride) in &one.loops {
                all = all.iter().flat_map(|start| (0..*extent).map(move |k| start + k * stride)).collect();
            }
            for at in all {
                *counts.get_mut(at as usize)? += 1;
            }
        }
        Some(counts)
    }

    /// Returns boxes that partition a random row-major shape: it is split on random dims and digits.
    fn drawn(random: &mut Random) -> (Vec<Strided>, u64) {
        let dims = 1 + random.below(3);
        let shape: Vec<u64> = (0..dims).map(|_| *random.pick(&[1, 2, 3, 4, 5, 6, 8, 12])).collect();
        let count: u64 = shape.iter().product();
        let mut strides = vec![1; dims];
        for dim in (1..dims).rev() {
            strides[dim - 1] = strides[dim] * shape[dim];
        }
        let whole = Strided { start: 0, loops: shape.iter().copied().zip(strides).collect() };
        let mut boxes = vec![whole];
        for _ in 0..random.below(8) {
            let k = random.below(boxes.len());
            let one = boxes.swap_remove(k);
            let long: Vec<usize> = (0..one.loops.len()).filter(|k| one.loops[*k].0 > 1).collect();
            if long.is_empty() {
                boxes.push(one);
                continue;
            }
            let k = *random.pick(&long);
            let (extent, stride) = one.loops[k];
            let low = 2 + random.below(extent as usize - 1) as u64;
            if extent % low == 0 && extent > low && random.below(2) == 0 {
                // Every `extent / low`-th step is one box.
                for first in 0..extent / low {
                    let mut part = one.clone();
                    part.start += first * stride;
                    part.loops[k] = (low, stride * (extent / low));
                    part.loops.sort_by_key(|(_, stride)| u64::MAX - stride);
                    boxes.push(part);
                }
            } else {
                let at = 1 + random.below(extent as usize - 1) as u64;
                for (from, to) in [(0, at), (at, extent)] {
                    let mut part = one.clone();
                    part.start += from * stride;
                    part.loops[k].0 = to - from;
                    boxes.push(part);
                }
            }
        }
        (boxes, count)
    }

    fn proved(boxes: &[Strided], count: u64) -> Result<(), Fault> {
        let boxes = boxes.iter().map(|one| Strided::new(one.start, one.loops.clone()));
        partition(boxes.collect::<Result<_, _>>()?, count)
    }

    #[test]
    fn partitions_and_their_faults_are_those_of_the_definition() {
        let mut random = Random(17);
        let (mut right, mut wrong, mut unknown) = (0, 0, 0);
        for case in 0..20_000 {
            let (mut boxes, count) = drawn(&mut random);
            let k = random.below(boxes.len());
            match random.below(5) {
                0 => drop(boxes.remove(k)),
                1 => boxes.push(boxes[k].clone()),
                2 => boxes[k].start += 1,
                3 if !boxes[k].loops.is_empty() => {
                    let loops = boxes[k].loops.len();
                    boxes[k].loops[random.below(loops)].0 += 1;
                }
                _ => {}
            }
            let counts = counts(&boxes, count);
            let found = proved(&boxes, count);
            let at = |at: u64| counts.as_ref().map(|counts| counts[at as usize]);
            match found {
                Ok(()) => {
                    assert!(counts.is_some_and(|all| all.iter().all(|n| *n == 1)), "{case} {boxes:?}");
                    right += 1;
                    continue;
                }
                Err(Fault::Gap(from, to)) => {
                    assert!(from < to && at(from).is_none_or(|n| n == 0), "{case} {boxes:?} {from}");
                }
                Err(Fault::Twice(index)) => {
                    assert!(at(index).is_none_or(|n| n > 1), "{case} {boxes:?} {index}");
                }
                Err(Fault::Outside(_)) => assert!(counts.is_none(), "{case} {boxes:?}"),
                // Strides that do not nest after a loop became longer.
                Err(Fault::NotNested | Fault::TooComplex) => {
                    unknown += 1;
                    assert!(counts.is_none_or(|all| all.iter().any(|n| *n != 1)), "{case} {boxes:?}");
                    continue;
                }
            }
            wrong += 1;
        }
        assert!(right > 3_500 && wrong > 14_000 && unknown < 1_000, "{right} {wrong} {unknown}");
    }

    #[test]
    fn hostile_boxes_end_soon() {
        let all = [
            Strided::new(0, [(u64::MAX, 1)]),
            Strided::new(u64::MAX, [(2, 1)]),
            Strided::new(0, [(2, u64::MAX)]),
            Strided::new(0, [(1 << 40, 3), (2, 1)]),
            Strided::new(0, [(0, 1)]),
        ];
        for one in all.into_iter().flatten() {
            assert!(partition(vec![one.clone(), one], 1 << 41).is_err());
        }
        // Rows of 7 and of 5 elements that interleave over long ranges are not listed.
        let a = Strided::new(0, [(1 << 30, 7), (3, 1)]).unwrap();
        let b = Strided::new(3, [(1 << 30, 5), (2, 1)]).unwrap();
        assert!(partition(vec![a, b], 1 << 40).is_err());
    }
}
