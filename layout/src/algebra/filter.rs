//! Filtering: the values of a layout, each mode that repeats them left out.
//!
//! ```text
//! filter(A)  =  coalesce(A without the leaves of stride 0 and of extent 1)
//! ```

use crate::Layout;

impl Layout {
    /// Returns the coalesced layout of the leaves that change the value.
    ///
    /// These have an extent > 1 and a stride other than 0.
    ///
    /// Ensures: the same set of values. It is another function on a smaller domain if there was a stride of
    /// 0.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "((2,3),(1,4)):((1,0),(7,2))".parse()?;
    /// assert_eq!(layout.filter().to_string(), "8:1");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[must_use]
    pub fn filter(&self) -> Self {
        let mut layout = Self::blank();
        let leaves = layout.modes_mut();
        for &leaf in self.flat() {
            if leaf.extent != 1 && leaf.stride != 0 {
                leaves.push_coalesced(0, leaf);
            }
        }
        layout.nest_coalesced();
        layout.seal();
        layout
    }

    /// Returns the layout with extent 1 where the stride is 0.
    ///
    /// It has the same set of values, with each mode in its position.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "((2,3),4):((1,0),2)".parse()?;
    /// assert_eq!(layout.filter_zeros().to_string(), "((2,1),4):((1,0),2)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[must_use]
    pub fn filter_zeros(&self) -> Self {
        let mut layout = self.clone();
        for leaf in layout.modes_mut().iter_mut().filter(|leaf| leaf.stride == 0) {
            leaf.extent = 1;
        }
        layout.seal();
        layout
    }
}
