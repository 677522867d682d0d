//! Product: a layout repeated after the pattern of another.
//!
//! The complement of `A` gives the positions where copies of `A` fit; `B` gives their order:
//!
//! ```text
//! logical_product(A, B)  =  (A, A* o B)         A* = complement(A, span(A) cosize(B))
//! ```
//!
//! Mode 0 is `A` itself, mode 1 counts the copies. With the bound `size(A) cosize(B)` that CuTe uses, the
//! complement of an `A` whose gaps do not divide may have fewer than `cosize(B)` values; with its span (its
//! greatest stride times the extent there) it never has, and the result is the same where both exist.
//!
//! The variants regroup the modes as those of [division](Layout::logical_divide) do. Blocked and raked
//! products pair the modes of `A` and `B` that have the same number, after padding the shorter with `1:0`:
//!
//! ```text
//! blocked   ((A_0, X_0), (A_1, X_1), ...)      blocks of A, side by side             X = A* o B
//! raked     ((X_0, A_0), (X_1, A_1), ...)      elements of the copies interleaved
//! ```

use super::by_mode::{Tiler, by_mode, unzip};
use super::complement::sort_leaves;
use super::divide::{flat, tiled};
use crate::layout::Tuple;
use crate::modes::Modes;
use crate::{Error, Layout, Operation, Quantity};

/// Returns `A*`, the positions of at least `reach` copies of `A`.
pub(crate) fn room_for_copies(layout: &Layout, reach: i64) -> Result<Layout, Error> {
    let mut sorted = Modes::new();
    sort_leaves(layout, Operation::Complement, &mut sorted)?;
    let bound = match sorted.last() {
        None => Some(reach),
        Some(last) => last.stride.checked_mul(last.extent).and_then(|span| span.checked_mul(reach)),
    };
    // One copy needs no extra space.
    let bound = if reach == 1 { Some(1) } else { bound };
    let bound =
        bound.ok_or(Error::Overflow { quantity: Quantity::Span, left: layout.max_value(), right: reach })?;
    layout.complement(bound)
}

/// Returns `A* o B`, the positions of the copies of `A`.
fn copies(layout: &Layout, pattern: &Layout) -> Result<Layout, Error> {
    room_for_copies(layout, pattern.cosize())?.compose(pattern)
}

/// Returns `A (x) B` for one layout.
fn product(layout: &Layout, pattern: &Layout) -> Result<Layout, Error> {
    let mut both = Tuple::new();
    both.push(layout)?;
    both.push(&copies(layout, pattern)?)?;
    both.finish()
}

/// Pairs mode `k` of `A` with mode `k` of its copies, after padding the shorter of `A` and `B` with `1:0`.
fn pair_modes(
    layout: &Layout,
    pattern: &Layout,
    pair: impl Fn(Layout, Layout) -> [Layout; 2],
) -> Result<Layout, Error> {
    let rank = layout.rank().max(pattern.rank());
    let padded = |layout: &Layout| -> Result<Layout, Error> {
        Tuple::collect(layout.modes().chain(std::iter::repeat_with(Layout::unit)).take(rank).map(Ok))
    };
    let (layout, copies) = (padded(layout)?, copies(layout, &padded(pattern)?)?);
    Tuple::collect(layout.modes().zip(copies.modes()).map(|(block, copy)| Layout::concat(&pair(block, copy))))
}

impl Layout {
    /// Returns `(A, copies of A after the pattern B)`, or so for every mode that the tiler names.
    ///
    /// Requires: the modes of `A` do not overlap and have no negative strides. Ensures: mode 0 is `A`; if `A`
    /// and `B` are injective, so is the product.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,2):(4,1)".parse()?;
    /// assert_eq!(a.logical_product(&"6:1".parse()?)?.to_string(), "((2,2),(2,3)):((4,1),(2,8))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible`, `not_representable`, `out_of_domain` if `B` has negative values, `overflow`,
    /// `no_such_mode`.
    pub fn logical_product(&self, tiler: &Tiler) -> Result<Self, Error> {
        by_mode(self, tiler, &product)
    }

    /// Multiplies to `((all modes of A), (all copies))`.
    ///
    /// For a layout as tiler this equals [`logical_product`](Self::logical_product).
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,2):(1,2)".parse()?;
    /// assert_eq!(a.zipped_product(&"<3:1>".parse()?)?.to_string(), "((2,),(3,2)):((1,),(2,2))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`logical_product`](Self::logical_product).
    pub fn zipped_product(&self, tiler: &Tiler) -> Result<Self, Error> {
        let (tile, rest) = unzip(&self.logical_product(tiler)?, tiler)?;
        Self::concat(&[tile, rest])
    }

    /// Returns `(A, copies, copies, ...)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,2):(1,2)".parse()?;
    /// let b: Layout = "(3,4):(4,1)".parse()?;
    /// assert_eq!(a.tiled_product(&b.into())?.to_string(), "((2,2),3,4):((1,2),16,4)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`logical_product`](Self::logical_product).
    pub fn tiled_product(&self, tiler: &Tiler) -> Result<Self, Error> {
        let (tile, rest) = unzip(&self.logical_product(tiler)?, tiler)?;
        tiled(tile, &rest)
    }

    /// `(modes of A..., copies, copies, ...)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,2):(1,2)".parse()?;
    /// let b: Layout = "(3,4):(4,1)".parse()?;
    /// assert_eq!(a.flat_product(&b.into())?.to_string(), "(2,2,3,4):(1,2,16,4)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`logical_product`](Self::logical_product).
    pub fn flat_product(&self, tiler: &Tiler) -> Result<Self, Error> {
        let (tile, rest) = unzip(&self.logical_product(tiler)?, tiler)?;
        flat(&tile, &rest)
    }

    /// Blocks of `A` side by side: mode `k` is `(A_k, copies along k)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,5):(5,1)".parse()?;
    /// let b: Layout = "(3,4):(1,3)".parse()?;
    /// assert_eq!(a.blocked_product(&b)?.to_string(), "((2,3),(5,4)):((5,10),(1,30))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`logical_product`](Self::logical_product).
    pub fn blocked_product(&self, pattern: &Self) -> Result<Self, Error> {
        pair_modes(self, pattern, |block, copy| [block, copy])
    }

    /// Returns the copies of `A` interleaved element by element: mode `k` is `(copies along k, A_k)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(2,5):(5,1)".parse()?;
    /// let b: Layout = "(3,4):(1,3)".parse()?;
    /// assert_eq!(a.raked_product(&b)?.to_string(), "((3,2),(4,5)):((10,5),(30,1))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`logical_product`](Self::logical_product).
    pub fn raked_product(&self, pattern: &Self) -> Result<Self, Error> {
        pair_modes(self, pattern, |block, copy| [copy, block])
    }
}
