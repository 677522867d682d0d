//! Compact layouts in an order: which of the modes is the fastest in memory.
//!
//! ```text
//! ordered(shape, order)     of the leaf k:   stride  =  product of the extents of the leaves before k in the order
//! ```
//!
//! The order is nested like the shape or less: an integer may stand for a mode of several leaves, which then
//! follow each other, leftmost fastest. Equal numbers are ordered from left to right. So `column_major` is
//! the order `(0, 1, ..., n-1)`, and `(n-1, ..., 1, 0)` has the rightmost mode fastest. As a function of
//! coordinates,
//!
//! ```text
//! R(c)  =  the number of coordinates before c, compared by the leaf that is last in the order, then the one before it,
//!          and so on
//! ```
//!
//! which is a bijection onto `[0, size)`. A leaf of extent 1 has the stride 0, whatever comes before it, as
//! in CuTe.

use smallvec::SmallVec;

use crate::modes::{Mode, Modes};
use crate::profile::Profile;
use crate::{Error, IntTuple, Layout};

/// Returns the leaf `k` of `order`, for every leaf of the shape.
fn spread(shape: &IntTuple, order: &IntTuple, keys: &mut Vec<i64>) -> bool {
    if let Some(key) = order.as_scalar() {
        keys.extend(shape.leaves().iter().map(|_| key));
        return true;
    }
    // Recursion is as deep as the order, which is at most MAX_DEPTH.
    shape.as_scalar().is_none()
        && shape.rank() == order.rank()
        && shape.modes().zip(order.modes()).all(|(shape, order)| spread(&shape, &order, keys))
}

/// Returns the compact layout of these extents, those of the least key fastest.
///
/// Repeating leaves have the stride 0.
fn compact<K: Ord>(
    extents: &[i64],
    profile: &Profile,
    keys: &[K],
    repeats: impl Fn(usize) -> bool,
) -> Result<Layout, Error> {
    let mut sorted: SmallVec<[usize; 8]> = (0..extents.len()).collect();
    sorted.sort_by_key(|&at| &keys[at]);
    let mut modes: Modes = extents.iter().map(|&extent| Mode { extent, stride: 0 }).collect();
    let mut stride = 1_i64;
    for at in sorted {
        let extent = extents[at];
        if extent != 1 && !repeats(at) {
            modes[at].stride = stride;
            // A product that does not fit is reported as the size of the layout, which is at least as large.
            stride = stride.wrapping_mul(extent);
        }
    }
    Layout::assemble(modes, profile.clone())
}

impl Layout {
    /// Returns the compact layout of a shape in which the leaves of the least `order` are the fastest.
    ///
    /// Ensures: a bijection onto `[0, size)`, congruent to the shape.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let ordered = |shape: &str, order: &str| Layout::make_ordered(&shape.parse()?, &order.parse()?);
    /// assert_eq!(ordered("(2,3,4)", "(2,0,1)")?.to_string(), "(2,3,4):(12,1,3)");
    /// assert_eq!(ordered("((2,3),4)", "(1,0)")?.to_string(), "((2,3),4):((4,8),1)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `not_congruent` if the order is nested deeper than the shape or has another number of modes;
    /// `bad_extent`, `overflow`.
    pub fn make_ordered(shape: &IntTuple, order: &IntTuple) -> Result<Self, Error> {
        let mut keys = Vec::with_capacity(shape.leaves().len());
        if !spread(shape, order, &mut keys) {
            let (shape, stride) = (Box::new(shape.clone()), Box::new(order.clone()));
            return Err(Error::NotCongruent { shape, stride });
        }
        compact(shape.leaves(), shape.profile(), &keys, |_| false)
    }

    /// Returns the compact layout of the same shape with the modes in the same order in memory.
    ///
    /// The order is that of the strides, by their absolute value; modes of stride 0 retain it. So it is the
    /// layout that a copy of a tensor should have, and its size without the repeating leaves is its cosize.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let padded: Layout = "(4,(2,3),5):(40,(200,0),8)".parse()?;
    /// assert_eq!(padded.make_like()?.to_string(), "(4,(2,3),5):(5,(20,0),1)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Never fails, since strides do not exceed the size.
    pub fn make_like(&self) -> Result<Self, Error> {
        let extents: SmallVec<[i64; 8]> = self.flat().iter().map(|leaf| leaf.extent).collect();
        let keys: SmallVec<[u64; 8]> = self.flat().iter().map(|leaf| leaf.stride.unsigned_abs()).collect();
        compact(&extents, self.profile(), &keys, |at| self.flat()[at].stride == 0)
    }
}
