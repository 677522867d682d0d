//! Evenly ascending indices: the elements of a part of a row-major tensor.

/// The `len` indices `start`, `start + stride`, `start + 2 stride`, ..
///
/// A part of a tensor is a list of runs of row-major indices, in the order of its elements.
///
/// ```
/// use reshard_layout::IndexRun;
/// let column = IndexRun { start: 2, len: 3, stride: 4 };
/// assert_eq!(column.indices().collect::<Vec<_>>(), [2, 6, 10]);
/// assert_eq!(IndexRun::all(3).indices().collect::<Vec<_>>(), [0, 1, 2]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexRun {
    /// The first index.
    pub start: u64,
    /// The number of indices.
    pub len: u64,
    /// From one to the next.
    pub stride: u64,
}

impl IndexRun {
    /// Returns all indices of a tensor of `numel` elements.
    #[inline]
    pub const fn all(numel: u64) -> IndexRun {
        IndexRun { start: 0, len: numel, stride: 1 }
    }

    /// Returns the last and greatest index; none where the run is empty or the index does not fit 64 bits.
    ///
    /// ```
    /// use reshard_layout::IndexRun;
    /// assert_eq!(IndexRun { start: 2, len: 3, stride: 4 }.last(), Some(10));
    /// assert_eq!(IndexRun { start: u64::MAX, len: 2, stride: 1 }.last(), None);
    /// ```
    #[doc(hidden)]
    #[inline]
    pub fn last(self) -> Option<u64> {
        self.start.checked_add(self.len.checked_sub(1)?.checked_mul(self.stride)?)
    }

    /// Returns the indices in order; they must fit 64 bits.
    #[inline]
    pub fn indices(self) -> impl Iterator<Item = u64> + Clone {
        (0..self.len).map(move |i| self.start.wrapping_add(i.wrapping_mul(self.stride)))
    }

    /// Returns the first `len` indices.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn take(self, len: u64) -> IndexRun {
        IndexRun { len: self.len.min(len), ..self }
    }
}
