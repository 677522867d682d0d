//! Coalescing: the shortest flat layout of the same function.
//!
//! Two neighbouring leaves are one where the second goes on exactly where the first ends:
//!
//! ```text
//! (s, t):(d, s*d)  =  s*t : d              a leaf of extent 1 contributes nothing
//! ```
//!
//! Doing this from left to right until nothing changes gives a **complete invariant** of the function: two layouts
//! denote the same function exactly if their coalesced forms are equal. For, of a coalesced layout `(s_1, ...):(d_1,
//! ...)` of size > 1, `d_1 = f(1)`, and `s_1` is the greatest `m` with `f(c) = c f(1)` for all `c < m`, because `f(s_1)
//! = d_2`, and `d_2 = s_1 d_1` would have been merged; the rest follows for `i -> f(s_1 i)`. So the function
//! determines the modes.

use crate::Layout;
use crate::layout::{Leaf, Leaves};

/// Appends a leaf, merged into the last one beyond `start` where it goes on exactly where that ends.
#[inline]
pub(crate) fn push_coalesced(leaves: &mut Leaves, start: usize, leaf: Leaf) {
    if leaves.len() > start
        && let Some(last) = leaves.last_mut()
        && last.stride.checked_mul(last.extent) == Some(leaf.stride)
        && let Some(extent) = last.extent.checked_mul(leaf.extent)
    {
        last.extent = extent;
    } else {
        leaves.push(leaf);
    }
}

/// Whether coalescing would change nothing.
#[inline]
fn is_coalesced(leaves: &[Leaf]) -> bool {
    let goes_on = |pair: &[Leaf]| pair[0].stride.checked_mul(pair[0].extent) == Some(pair[1].stride);
    leaves.iter().all(|leaf| leaf.extent != 1) && !leaves.windows(2).any(goes_on)
}

/// The coalesced leaves, none for a layout of size 1: these themselves where nothing changes, else in `storage`.
#[inline]
pub(crate) fn coalesced<'a>(leaves: &'a [Leaf], storage: &'a mut Leaves) -> &'a [Leaf] {
    if is_coalesced(leaves) {
        return leaves;
    }
    coalesce_into(leaves, storage);
    storage
}

#[inline]
fn coalesce_into(leaves: &[Leaf], merged: &mut Leaves) {
    for &leaf in leaves {
        if leaf.extent != 1 {
            push_coalesced(merged, 0, leaf);
        }
    }
}

impl Layout {
    /// The shortest flat layout of the same function; it is unique.
    ///
    /// ```text
    /// coalesce(A)(i) = A(i)  for all i
    /// ```
    ///
    /// Ensures: a scalar or a flat tuple without extents of 1, in which no leaf goes on where its left neighbour
    /// ends; `1:0` for size 1. Idempotent.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "((2,1),(4,3)):((1,7),(2,9))".parse()?;
    /// assert_eq!(layout.coalesce().to_string(), "(8,3):(1,9)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[must_use]
    pub fn coalesce(&self) -> Self {
        let mut layout = Self::blank();
        coalesce_into(self.raw_leaves(), layout.leaves_mut());
        layout.nest_coalesced();
        layout.seal();
        layout
    }

    /// Whether both denote the same function on the same domain, in `O(leaves)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(2,(2,3)):(5,(10,20))".parse()?;
    /// assert!(layout.same_function(&"12:5".parse()?));
    /// assert!(!layout.same_function(&"11:5".parse()?));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn same_function(&self, other: &Self) -> bool {
        let (mut left, mut right) = (Leaves::new(), Leaves::new());
        self.size() == other.size()
            && coalesced(self.raw_leaves(), &mut left) == coalesced(other.raw_leaves(), &mut right)
    }
}
