//! The complement: the layout that fills the gaps of another one.
//!
//! Of the modes of `A` that have an extent > 1 and a stride other than 0, sorted by stride, each must begin
//! at or beyond the span of those below it. Between the span `u` and the next stride `d` there is space for
//! `floor(d / u)` copies of the modes below, at distance `u`; on top of all of them, for `ceil(M / u)`:
//!
//! ```text
//! complement(A, M)  =  coalesce( (d_1 / u_0, d_2 / u_1, ..., ceil(M / u_n)) : (u_0, u_1, ..., u_n) )
//!                      u_0 = 1,  u_k = s_k d_k
//! ```
//!
//! If all divisions are exact, `(A, complement(A, M))` is a bijection onto `[0, M)`, and it *tiles*.

use crate::modes::{Mode, Modes};
use crate::order::div_rem;
use crate::{Defect, Error, Layout, Operation};

/// Fills `leaves` with those of extent > 1 and a stride other than 0, by stride; equal strides by extent.
#[inline]
pub(crate) fn sort_leaves(layout: &Layout, operation: Operation, leaves: &mut Modes) -> Result<(), Error> {
    for &leaf in layout.flat() {
        if leaf.extent == 1 || leaf.stride == 0 {
            continue;
        }
        if leaf.stride < 0 {
            let defect = Defect::NegativeStride { extent: leaf.extent, stride: leaf.stride };
            return Err(Error::Inadmissible { operation, operand: Box::new(layout.clone()), defect });
        }
        // There are at most 62 such leaves, because their extents multiply to the size.
        leaves.push(leaf);
        let mut at = leaves.len() - 1;
        while at > 0 && (leaf.stride, leaf.extent) < (leaves[at - 1].stride, leaves[at - 1].extent) {
            leaves.swap(at - 1, at);
            at -= 1;
        }
    }
    Ok(())
}

/// Returns the gaps of modes of positive strides in `[0, bound)`, smallest stride first.
///
/// Copies of the lower modes fill each gap.
///
/// ```text
/// (d_1 / u_0, d_2 / u_1, ..., ceil(M / u_n)) : (u_0, u_1, ..., u_n)        u_0 = 1,  u_k = s_k d_k,  coalesced
/// ```
///
/// Requires modes sorted by stride, and `bound >= 1`.
///
/// ```
/// use reshard_layout::{Mode, algebra::gaps};
///
/// // The gaps of 2:4 and 3:16 in 96: the steps below 4, those between, and those above.
/// let left = gaps(&[Mode::new(2, 4), Mode::new(3, 16)], 96).unwrap();
/// assert_eq!(left.as_slice(), [Mode::new(4, 1), Mode::new(2, 8), Mode::new(2, 48)]);
/// assert_eq!(gaps(&[Mode::new(4, 1), Mode::new(2, 2)], 8), Err((2, 4)));
/// ```
///
/// # Errors
///
/// The first stride that is less than the span of the modes below it, and that span.
#[doc(hidden)]
#[inline]
pub fn gaps(sorted: &[Mode], bound: i64) -> Result<Modes, (i64, i64)> {
    let mut gaps = Modes::new();
    let mut span = Some(1_i64);
    for &Mode { extent, stride } in sorted {
        let below = span.ok_or((stride, i64::MAX))?;
        if stride < below {
            return Err((stride, below));
        }
        let (room, _) = div_rem(stride, below);
        if room > 1 {
            gaps.push_coalesced(0, Mode { extent: room, stride: below });
        }
        // The span may leave the 64 bits at the last mode, and then nothing fits beyond.
        span = stride.checked_mul(extent);
    }
    if let Some(below) = span {
        let (room, rest) = div_rem(bound, below);
        let room = room + i64::from(rest != 0);
        if room > 1 {
            gaps.push_coalesced(0, Mode { extent: room, stride: below });
        }
    }
    Ok(gaps)
}

impl Layout {
    /// Returns the layout that fills the gaps of this one up to `bound`, and repeats it beyond.
    ///
    /// ```text
    /// (A, A*)  is injective,   and a bijection onto [0, bound)  if it tiles
    /// ```
    ///
    /// Requires: strides are not negative, modes do not overlap, `bound >= 1`. Modes of stride 0 are ignored.
    /// Ensures: coalesced, strides ascending.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,3):(1,4)".parse()?;
    /// assert_eq!(a.complement(24)?.to_string(), "(2,2):(2,12)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible`, `bad_extent` if `bound < 1`.
    pub fn complement(&self, bound: i64) -> Result<Self, Error> {
        if bound < 1 {
            return Err(Error::BadExtent { extent: bound });
        }
        let operation = Operation::Complement;
        let mut sorted = Modes::new();
        sort_leaves(self, operation, &mut sorted)?;
        let mut layout = Self::blank();
        *layout.modes_mut() = gaps(&sorted, bound).map_err(|(stride, span)| Error::Inadmissible {
            operation,
            operand: Box::new(self.clone()),
            defect: Defect::Overlap { stride, span },
        })?;
        // Checked, because the last mode is rounded up beyond the bound.
        layout.nest_coalesced();
        layout.seal_checked()?;
        Ok(layout)
    }

    /// Returns `true` if this layout and its [`complement`](Self::complement) cover `[0, bound)` exactly.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,3):(1,4)".parse()?;
    /// assert!(a.tiles(24)?);
    /// assert!(!a.tiles(20)?);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`complement`](Self::complement).
    pub fn tiles(&self, bound: i64) -> Result<bool, Error> {
        let complement = self.complement(bound)?;
        // They are jointly injective; they cover [0, bound) if they have as many values and none is beyond.
        let moving = self.flat().iter().filter(|leaf| leaf.stride != 0);
        let size = moving.map(|leaf| leaf.extent).product::<i64>();
        let count = size.checked_mul(complement.size());
        let greatest = self.max_value().checked_add(complement.max_value());
        Ok(count == Some(bound) && greatest == Some(bound - 1) && self.size() == size)
    }
}
