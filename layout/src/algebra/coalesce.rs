//! Coalescing: the shortest flat layout of the same function, which is unique (see [`modes`](crate::modes)).

use crate::Layout;
use crate::modes::{Modes, coalesce_into, coalesced};
use crate::stride::Stride;

impl<S: Stride> Layout<S> {
    /// Returns the shortest flat layout of the same function; it is unique.
    ///
    /// ```text
    /// coalesce(A)(i) = A(i)  for all i
    /// ```
    ///
    /// Ensures: a scalar or a flat tuple without extents of 1, where a leaf never continues its left
    /// neighbour; `1:0` for size 1. Idempotent.
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
        coalesce_into(self.flat(), layout.modes_mut());
        layout.nest_coalesced();
        layout.seal();
        layout
    }

    /// Returns `true` if both layouts are the same function on the same domain, in `O(leaves)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(2,(2,3)):(5,(10,20))".parse()?;
    /// assert!(layout.is_equivalent(&"12:5".parse()?));
    /// assert!(!layout.is_equivalent(&"11:5".parse()?));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let (mut left, mut right) = (Modes::new(), Modes::new());
        self.size() == other.size()
            && coalesced(self.flat(), &mut left) == coalesced(other.flat(), &mut right)
    }
}
