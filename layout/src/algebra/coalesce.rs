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

use crate::layout::{Leaf, Leaves};
use crate::profile::Profile;
use crate::{Error, Layout};

/// Appends a leaf, merged into the last one beyond `start` where it goes on exactly where that ends.
#[inline]
pub(crate) fn push_coalesced(leaves: &mut Leaves, start: usize, leaf: Leaf) {
    if leaves.len() > start
        && let Some(last) = leaves.last_mut()
        && last.stride.checked_mul(last.extent) == Some(leaf.stride)
    {
        last.extent *= leaf.extent;
    } else {
        leaves.push(leaf);
    }
}

/// The coalesced leaves; none for a layout of size 1.
#[inline]
pub(crate) fn coalesced(leaves: &[Leaf]) -> Leaves {
    let mut merged = Leaves::new();
    for &leaf in leaves {
        if leaf.extent != 1 {
            push_coalesced(&mut merged, 0, leaf);
        }
    }
    merged
}

/// The nesting of coalesced leaves: a scalar for one, and for none, which become `1:0`.
#[inline]
fn coalesced_profile(leaves: &mut Leaves) -> Profile {
    match leaves.len() {
        0 => {
            leaves.push(Leaf { extent: 1, stride: 0 });
            Profile::scalar()
        }
        1 => Profile::scalar(),
        len => Profile::flat(len),
    }
}

/// The layout of coalesced leaves, of which it is known that everything it reaches fits.
#[inline]
pub(crate) fn from_coalesced(mut leaves: Leaves) -> Layout {
    let profile = coalesced_profile(&mut leaves);
    Layout::known(leaves, profile)
}

/// The layout of coalesced leaves, checked.
#[inline]
pub(crate) fn from_coalesced_checked(mut leaves: Leaves) -> Result<Layout, Error> {
    let profile = coalesced_profile(&mut leaves);
    Layout::assemble(leaves, profile)
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
        from_coalesced(coalesced(self.raw_leaves()))
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
        self.size() == other.size() && coalesced(self.raw_leaves()) == coalesced(other.raw_leaves())
    }
}
