//! Loop nests that copy elements: the result of a mapping, and how they are normalised and narrowed.

use safetensors::Dtype;

/// A loop of a nest: `extent` steps in the target and the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Axis {
    /// Number of steps, at least 2.
    pub extent: usize,
    /// Dim of the target.
    pub target_dim: usize,
    /// Indices of the target dim from one step to the next.
    pub target_step: usize,
    /// Dim of the source; `None` if each step reads the same elements.
    pub source_dim: Option<usize>,
    /// Indices of the source dim from one step to the next; 0 without a source dim.
    pub source_step: usize,
}

/// A set of elements of a target, and the elements of one source that they are copied from.
///
/// With one position `x[k]` per axis, the target index on dim `d` is `target_offset[d]` plus the sum of
/// `x[k] * axes[k].target_step` over the axes of that dim. The source index is defined in the same manner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index in the list of sources; `None` for zeros.
    pub source: Option<usize>,
    /// Types that each element is converted to, in this order, starting from the dtype of the source.
    pub casts: Vec<Dtype>,
    /// First index on each dim of the source; empty for zeros.
    pub source_offset: Vec<usize>,
    /// First index on each dim of the target.
    pub target_offset: Vec<usize>,
    /// The loops, by target dim, then by descending target step; dims of one index have none.
    pub axes: Vec<Axis>,
}

/// The tensor of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The tensor that is made.
    Target,
    /// The tensor that is read.
    Source,
}

impl Axis {
    /// Returns the dim of a side; `None` if each step reads the same elements.
    #[doc(hidden)]
    pub fn dim(&self, side: Side) -> Option<usize> {
        match side {
            Side::Target => Some(self.target_dim),
            Side::Source => self.source_dim,
        }
    }

    /// Returns the indices of the dim of a side from one step to the next.
    #[doc(hidden)]
    pub fn step(&self, side: Side) -> usize {
        match side {
            Side::Target => self.target_step,
            Side::Source => self.source_step,
        }
    }

    pub(crate) fn set(&mut self, side: Side, dim: usize, step: usize) {
        match side {
            Side::Target => (self.target_dim, self.target_step) = (dim, step),
            Side::Source => (self.source_dim, self.source_step) = (Some(dim), step),
        }
    }
}

impl Piece {
    /// Returns the number of elements of the target.
    pub fn elements(&self) -> usize {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// Returns the first index on each dim of a side.
    #[doc(hidden)]
    pub fn offsets(&self, side: Side) -> &[usize] {
        match side {
            Side::Target => &self.target_offset,
            Side::Source => &self.source_offset,
        }
    }

    /// Returns the same, to change it.
    #[doc(hidden)]
    pub fn offsets_mut(&mut self, side: Side) -> &mut Vec<usize> {
        match side {
            Side::Target => &mut self.target_offset,
            Side::Source => &mut self.source_offset,
        }
    }

    /// Returns a nest over all of a target; without a source its elements are zeros.
    pub(crate) fn whole(source: Option<usize>, shape: &[usize]) -> Self {
        let axes = shape.iter().enumerate().filter(|(_, extent)| **extent != 1).map(|(dim, extent)| Axis {
            extent: *extent,
            target_dim: dim,
            target_step: 1,
            source_dim: source.map(|_| dim),
            source_step: usize::from(source.is_some()),
        });
        Self {
            source,
            casts: Vec::new(),
            source_offset: source.map_or_else(Vec::new, |_| vec![0; shape.len()]),
            target_offset: vec![0; shape.len()],
            axes: axes.collect(),
        }
    }

    /// Returns the steps `start .. stop` of an axis.
    pub(crate) fn narrowed(&self, axis: usize, start: usize, stop: usize) -> Self {
        let mut piece = self.clone();
        let Axis { target_dim, target_step, source_dim, source_step, .. } = piece.axes[axis];
        piece.target_offset[target_dim] += start * target_step;
        if let Some(dim) = source_dim {
            piece.source_offset[dim] += start * source_step;
        }
        if stop - start == 1 {
            piece.axes.remove(axis);
        } else {
            piece.axes[axis].extent = stop - start;
        }
        piece
    }

    /// Splits an axis into blocks of `inner` steps, whose number is exact.
    pub(crate) fn with_blocks(&self, axis: usize, inner: usize) -> Self {
        let mut piece = self.clone();
        let low = piece.axes[axis].clone();
        let high = Axis {
            extent: low.extent / inner,
            target_step: low.target_step * inner,
            source_step: low.source_step * inner,
            ..low.clone()
        };
        piece.axes[axis] = Axis { extent: inner, ..low };
        piece.axes.insert(axis, high);
        piece.axes.retain(|axis| axis.extent != 1);
        piece
    }

    /// Returns the parts that read a box of the source: those whose source indices are in `start[d] .. stop[d]`.
    ///
    /// They are disjoint in the target. Zeros read no source, so they have none.
    pub fn within_source(&self, start: &[usize], stop: &[usize]) -> Vec<Self> {
        let mut parts: Vec<Self> = self.source.map(|_| self.clone()).into_iter().collect();
        for (dim, (start, stop)) in start.iter().zip(stop).enumerate().take(self.source_offset.len()) {
            let mut narrower = Vec::with_capacity(parts.len());
            for part in parts {
                part.restrict(Side::Source, dim, *start, *stop, &mut narrower);
            }
            parts = narrower;
        }
        parts
    }

    /// Appends the elements whose index on a dim of the target or of the source is in `start .. stop`.
    ///
    /// The steps of the axes of a dim are nested: each exceeds the span of all smaller ones. So at most one step
    /// of an axis is partly in the range at each end, and a nest splits into at most two more nests per axis.
    #[doc(hidden)]
    pub fn restrict(&self, side: Side, dim: usize, start: usize, stop: usize, out: &mut Vec<Self>) {
        let of_dim = |axis: &&Axis| axis.dim(side) == Some(dim);
        let base = self.offsets(side)[dim];
        let span: usize =
            self.axes.iter().filter(of_dim).map(|axis| axis.step(side) * (axis.extent - 1)).sum();
        if base >= stop || base + span < start {
            return;
        }
        if base >= start && base + span < stop {
            out.push(self.clone());
            return;
        }
        let widest = self.axes.iter().enumerate().filter(|(_, axis)| of_dim(axis));
        let Some((k, axis)) = widest.max_by_key(|(_, axis)| axis.step(side)) else { return };
        let (extent, step) = (axis.extent, axis.step(side));
        let inner = span - step * (extent - 1);
        let first = start.saturating_sub(base).div_ceil(step).min(extent);
        let end = stop.saturating_sub(base + inner).div_ceil(step).min(extent);
        let mut partly: Vec<usize> = first.checked_sub(1).into_iter().collect();
        if end < extent && partly.first() != Some(&end) {
            partly.push(end);
        }
        for step in partly {
            self.narrowed(k, step, step + 1).restrict(side, dim, start, stop, out);
        }
        if first < end {
            out.push(self.narrowed(k, first, end));
        }
    }

    /// Sorts the axes and joins those that are one axis.
    pub(crate) fn normalise(&mut self) {
        let mut axes = std::mem::take(&mut self.axes);
        axes.retain(|axis| axis.extent != 1);
        axes.sort_by_key(|axis| (axis.target_dim, usize::MAX - axis.target_step));
        for axis in axes {
            if let Some(outer) = self.axes.last_mut()
                && outer.target_dim == axis.target_dim
                && outer.source_dim == axis.source_dim
                && outer.target_step == axis.extent * axis.target_step
                && outer.source_step == axis.extent * axis.source_step
            {
                *outer = Axis { extent: outer.extent * axis.extent, ..axis };
            } else {
                self.axes.push(axis);
            }
        }
    }
}
