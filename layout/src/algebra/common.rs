//! The common part of two layouts: the number of elements that one vector copy can transfer between them.
//!
//! Two tensors with the same coordinates and different memory layouts `A` and `B`. Elements that are
//! neighbours in both memories, in the same order, beginning at the first, can be copied as one vector:
//!
//! ```text
//! R with  A(R(i)) = i = B(R(i))  for all i < size(R)
//! ```
//!
//! `R` is where the two [right inverses](Layout::right_inverse) agree, the longest common prefix of their
//! modes.

use crate::modes::Mode;
use crate::{Error, Layout};

impl Layout {
    /// Returns the longest `R` with `A(R(i)) = i = B(R(i))` that the right inverses of both begin with.
    ///
    /// Ensures: coalesced; `1:0` if not even two elements are neighbours in both.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(8,4):(1,8)".parse()?;
    /// let b: Layout = "(8,4):(1,16)".parse()?;
    /// assert_eq!(a.max_common_layout(&b)?.to_string(), "8:1");
    /// assert_eq!(a.max_common_layout(&"(8,4):(4,1)".parse()?)?.to_string(), "1:0");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// None today; a `Result` like the rest of the algebra.
    pub fn max_common_layout(&self, other: &Self) -> Result<Self, Error> {
        self.common_up_to(other, i64::MAX)
    }

    /// Returns the beginning of the [common layout](Self::max_common_layout) with at most `most` indices.
    pub(crate) fn common_up_to(&self, other: &Self, most: i64) -> Result<Self, Error> {
        let (left, right) = (self.right_inverse()?, other.right_inverse()?);
        let mut layout = Self::blank();
        let leaves = layout.modes_mut();
        let mut room = most;
        for (a, b) in left.flat().iter().zip(right.flat()) {
            if a.stride != b.stride {
                break;
            }
            let extent = a.extent.min(b.extent).min(room);
            if extent > 1 {
                leaves.push_coalesced(0, Mode { extent, stride: a.stride });
            }
            if (a.extent, b.extent) != (extent, extent) {
                break;
            }
            room /= extent;
        }
        layout.nest_coalesced();
        layout.seal();
        Ok(layout)
    }

    /// Returns the number of elements that one vector copy can transfer between two memory layouts.
    ///
    /// This is the size of [`max_common_layout`](Self::max_common_layout).
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(8,4):(1,8)".parse()?;
    /// assert_eq!(a.max_common_vector(&"(8,4):(1,16)".parse()?)?, 8);
    /// assert_eq!(a.max_common_vector(&a)?, 32);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`max_common_layout`](Self::max_common_layout).
    pub fn max_common_vector(&self, other: &Self) -> Result<i64, Error> {
        self.max_common_layout(other).map(|layout| layout.size())
    }
}
