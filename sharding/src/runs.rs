//! A region as runs of row-major indices: the indices of a rank in local order.
//!
//! Dims at the end that are whole count as one with the dim before them, so that a run is as long as
//! possible. Where a rank has a single index of the innermost dim, runs go along the dim outside of it, with
//! its stride:
//!
//! ```text
//! f32[4,6] as S(1) over 2      rank 1:   3,4,5   9,10,11   15,16,17   21,22,23      4 runs of stride 1
//! f32[4,2] as S(1) over 2      rank 1:   1,3,5,7                                    1 run of stride 2
//! ```

use reshard_layout::{IndexRun, InlineVec};

use crate::{Error, Interval, Intervals, Region};

/// The runs of a region, in local order.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Runs {
    /// The dims that are counted through, outermost first: where each is, and its stride.
    outer: InlineVec<Dim, 4>,
    /// The intervals of a run, in units of its stride.
    inner: Intervals,
    inner_stride: usize,
    /// The next interval of `inner`, or none where the region is done.
    next: Option<usize>,
}

/// A dim that is counted through.
#[derive(Clone, Debug, Default)]
struct Dim {
    intervals: Intervals,
    stride: usize,
    interval: usize,
    offset: usize,
}

impl Region {
    /// Returns the row-major indices of the elements in a tensor of this shape, in local order.
    ///
    /// Errors: where the shape is not one of the region.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "tp=2".parse()?;
    /// let s = Sharding::parse(&mesh, &[4, 6], "S(1)")?;
    /// let runs: Vec<_> = s.region(1)?.runs(s.shape())?.map(|run| (run.start, run.len, run.stride)).collect();
    /// assert_eq!(runs, [(3, 3, 1), (9, 3, 1), (15, 3, 1), (21, 3, 1)]);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn runs(&self, shape: &[usize]) -> Result<Runs, Error> {
        let fits = |(list, &extent): (&Intervals, &usize)| {
            list.last().is_none_or(|x| x.start.checked_add(x.len).is_some_and(|end| end <= extent))
        };
        if shape.len() != self.dims.len() || !self.dims.iter().zip(shape).all(fits) {
            let reason =
                format!("a region of local shape {:?} is not of a tensor {shape:?}", self.local_shape());
            return Err(Error::Placement { reason });
        }
        crate::sharding::numel(shape)?;
        let nothing = self.dims.iter().any(|list| list.iter().all(|x| x.len == 0));
        let (mut inner, mut extent) = (Intervals::default(), 1);
        inner.push(Interval { start: 0, len: 1 });
        let mut dim = shape.len();
        while dim > 0 && matches!(inner[..], [Interval { start: 0, len }] if len == extent) && !nothing {
            dim -= 1;
            inner = self.dims[dim]
                .iter()
                .map(|x| Interval { start: x.start * extent, len: x.len * extent })
                .collect();
            extent *= shape[dim];
        }
        let mut outer: InlineVec<Dim, 4> = InlineVec::default();
        let mut stride = extent;
        for d in (0..dim).rev() {
            outer.push(Dim { intervals: self.dims[d].clone(), stride, interval: 0, offset: 0 });
            stride = stride.wrapping_mul(shape[d]);
        }
        let mut inner_stride = 1;
        // One element each time: runs go along the next outer dim.
        if let [Interval { start, len: 1 }] = inner[..]
            && !outer.is_empty()
        {
            let along = outer.remove(0);
            inner_stride = along.stride;
            inner = along.intervals;
            let one: Intervals = [Interval { start, len: 1 }].into_iter().collect();
            outer.insert(0, Dim { intervals: one, stride: 1, interval: 0, offset: 0 });
        }
        outer.reverse();
        Ok(Runs { outer, inner, inner_stride, next: (!nothing).then_some(0) })
    }
}

impl Runs {
    /// Returns the next index of the innermost dim that has one more, and the first of all dims inside of it.
    fn step(&mut self) -> bool {
        for dim in self.outer.iter_mut().rev() {
            dim.offset += 1;
            if dim.offset < dim.intervals[dim.interval].len {
                return true;
            }
            (dim.offset, dim.interval) = (0, dim.interval + 1);
            if dim.interval < dim.intervals.len() {
                return true;
            }
            dim.interval = 0;
        }
        false
    }
}

impl Iterator for Runs {
    type Item = IndexRun;

    fn next(&mut self) -> Option<IndexRun> {
        let at = self.next?;
        let base: usize =
            self.outer.iter().map(|dim| (dim.intervals[dim.interval].start + dim.offset) * dim.stride).sum();
        let Interval { start, len } = self.inner[at];
        self.next = if at + 1 < self.inner.len() { Some(at + 1) } else { self.step().then_some(0) };
        let first = base + start * self.inner_stride;
        Some(IndexRun { start: first as u64, len: len as u64, stride: self.inner_stride as u64 })
    }
}
