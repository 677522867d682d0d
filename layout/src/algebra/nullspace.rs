//! The null space: the indices that a layout maps to 0 because of its modes of stride 0.
//!
//! ```text
//! A(N(i)) = 0          N = the leaves of stride 0, each with the index step that advances its coordinate
//! ```

use crate::Layout;
use crate::modes::Mode;

impl Layout {
    /// Returns the layout `N` of the indices that differ only in coordinates of stride 0 from index 0.
    ///
    /// Ensures: `A(N(i)) = 0` for all `i`, `N` is injective and coalesced; it is all of the indices that `A`
    /// maps to 0 if the other modes of `A` are jointly injective.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(4,3,2):(1,0,4)".parse()?;
    /// assert_eq!(a.nullspace().to_string(), "3:4");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[must_use]
    pub fn nullspace(&self) -> Self {
        let mut layout = Self::blank();
        let leaves = layout.modes_mut();
        let mut step = 1;
        for &Mode { extent, stride } in self.flat() {
            if stride == 0 && extent > 1 {
                leaves.push_coalesced(0, Mode { extent, stride: step });
            }
            step *= extent;
        }
        layout.nest_coalesced();
        layout.seal();
        layout
    }
}
