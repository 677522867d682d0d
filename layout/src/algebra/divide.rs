//! Division: a layout split into tiles.
//!
//! A tile `T` picks `size(T)` of the indices of `A`; its complement gives the starts of the tiles:
//!
//! ```text
//! logical_divide(A, T)  =  A o (T, complement(T, size(A)))         mode 0: index in a tile, mode 1: tile
//! ```
//!
//! If `T` tiles `[0, size(A))`, this is a permutation of the values of `A`. The complement is bounded by the
//! size of the mode that is divided. CuTe C++ bounds it by the shape of `A` padded to a multiple of the tile
//! and lets the last mode of `A` continue without end, so that 10 elements divided by a tile of 4 are three
//! tiles, the last of which extends past the end. Here that is `out_of_domain`, because the result would have
//! values that `A` has not; the forms called `extended` are CuTe's,
//! [`compose_extended`](Layout::compose_extended) in place of `compose`.
//!
//! The variants only regroup the modes. With `A` divided by mode, by `<T_0, T_1>`, and `(t_k, r_k)` the
//! result of mode `k`:
//!
//! ```text
//! logical   ((t_0, r_0), (t_1, r_1), A_2, ...)          zipped    ((t_0, t_1), (r_0, r_1, A_2, ...))
//! tiled     ((t_0, t_1), r_0, r_1, A_2, ...)            flat      (t_0, t_1, r_0, r_1, A_2, ...)
//! ```

use super::by_mode::{Tiler, by_mode, unzip};
use crate::layout::Tuple;
use crate::{Error, Layout};

/// Returns `(T, T*)`, the tile and its starts.
fn tile_and_rest(layout: &Layout, tile: &Layout) -> Result<Layout, Error> {
    let rest = tile.complement(layout.size())?;
    let mut both = Tuple::new();
    both.push(tile)?;
    both.push(&rest)?;
    both.finish()
}

/// Returns `A / T` for one layout.
fn divide(layout: &Layout, tile: &Layout) -> Result<Layout, Error> {
    layout.compose(&tile_and_rest(layout, tile)?)
}

/// Returns the same where `A` has no end.
fn divide_extended(layout: &Layout, tile: &Layout) -> Result<Layout, Error> {
    layout.compose_extended(&tile_and_rest(layout, tile)?)
}

/// Returns `(tile, rest modes...)`.
pub(crate) fn tiled(tile: Layout, rest: &Layout) -> Result<Layout, Error> {
    Tuple::collect(std::iter::once(tile).chain(rest.modes()).map(Ok))
}

/// Returns `(tile modes..., rest modes...)`.
pub(crate) fn flat(tile: &Layout, rest: &Layout) -> Result<Layout, Error> {
    Tuple::collect(tile.modes().chain(rest.modes()).map(Ok))
}

impl Layout {
    /// Divides into `((within a tile), (which tile))`, or so for every mode that the tiler names.
    ///
    /// Requires: the tile has no overlapping modes, and it and its complement stay within `A`. Ensures: mode
    /// 0 is `A o T`; a permutation of the values of `A` if the tile [`tiles`](Layout::tiles) its size.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(4,2,3):(2,1,8)".parse()?;
    /// assert_eq!(a.logical_divide(&"4:2".parse()?)?.to_string(), "((2,2),(2,3)):((4,1),(2,8))");
    /// let a: Layout = "(9,(4,8)):(59,(13,1))".parse()?;
    /// let tiled = a.logical_divide(&"<3:3, (2,4):(1,8)>".parse()?)?;
    /// assert_eq!(tiled.to_string(), "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible`, `out_of_domain`, `not_representable`, `no_such_mode`.
    pub fn logical_divide(&self, tiler: &Tiler) -> Result<Self, Error> {
        by_mode(self, tiler, &divide)
    }

    /// Divides into `((all tiles), (all rests))`.
    ///
    /// For a layout as tiler this equals [`logical_divide`](Self::logical_divide).
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(8,6):(6,1)".parse()?;
    /// assert_eq!(a.zipped_divide(&"<4:1, 3:1>".parse()?)?.to_string(), "((4,3),(2,2)):((6,1),(24,3))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`logical_divide`](Self::logical_divide).
    pub fn zipped_divide(&self, tiler: &Tiler) -> Result<Self, Error> {
        let (tile, rest) = unzip(&self.logical_divide(tiler)?, tiler)?;
        Self::concat(&[tile, rest])
    }

    /// Divides into `((all tiles), rest, rest, ...)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(8,6):(6,1)".parse()?;
    /// assert_eq!(a.tiled_divide(&"<4:1, 3:1>".parse()?)?.to_string(), "((4,3),2,2):((6,1),24,3)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`logical_divide`](Self::logical_divide).
    pub fn tiled_divide(&self, tiler: &Tiler) -> Result<Self, Error> {
        let (tile, rest) = unzip(&self.logical_divide(tiler)?, tiler)?;
        tiled(tile, &rest)
    }

    /// Divides into `(tile, tile, ..., rest, rest, ...)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(8,6):(6,1)".parse()?;
    /// assert_eq!(a.flat_divide(&"<4:1, 3:1>".parse()?)?.to_string(), "(4,3,2,2):(6,1,24,3)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`logical_divide`](Self::logical_divide).
    pub fn flat_divide(&self, tiler: &Tiler) -> Result<Self, Error> {
        let (tile, rest) = unzip(&self.logical_divide(tiler)?, tiler)?;
        flat(&tile, &rest)
    }
}

macro_rules! extended {
    ($($name:ident $like:literal $tiler:literal $result:literal |$tile:ident, $rest:ident| $form:expr;)*) => {
        impl Layout {
            $(
                #[doc = concat!("As [`", $like, "`](Self::", $like, "), with the last leaf of the dividend unbounded.")]
                ///
                /// ```
                /// use reshard_layout::Layout;
                ///
                /// let a: Layout = "(10,6):(6,1)".parse()?;
                #[doc = concat!("let tiler = \"", $tiler, "\".parse()?;")]
                #[doc = concat!("assert_eq!(a.", $like, "(&tiler).unwrap_err().code(), \"out_of_domain\");")]
                #[doc = concat!("assert_eq!(a.", stringify!($name), "(&tiler)?.to_string(), \"", $result, "\");")]
                /// # Ok::<(), reshard_layout::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                #[doc = concat!("As [`", $like, "`](Self::", $like, "), and `out_of_domain` only for negative values of a tile.")]
                #[doc(hidden)]
                pub fn $name(&self, tiler: &Tiler) -> Result<Self, Error> {
                    let ($tile, $rest) = unzip(&self.logical_divide_extended(tiler)?, tiler)?;
                    $form
                }
            )*
        }
    };
}

extended! {
    zipped_divide_extended "zipped_divide" "<4:1, 3:1>" "((4,3),(3,2)):((6,1),(24,3))"
        |tile, rest| Self::concat(&[tile, rest]);
    tiled_divide_extended "tiled_divide" "<4:1, 3:1>" "((4,3),3,2):((6,1),24,3)" |tile, rest| tiled(tile, &rest);
    flat_divide_extended "flat_divide" "<4:1, 3:1>" "(4,3,3,2):(6,1,24,3)" |tile, rest| flat(&tile, &rest);
}

impl Layout {
    /// Divides like [`logical_divide`](Self::logical_divide), but the last leaf of the operand has no end.
    ///
    /// This is CuTe's division.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "10:2".parse()?;
    /// assert_eq!(a.logical_divide(&"4:1".parse()?).unwrap_err().code(), "out_of_domain");
    /// assert_eq!(a.logical_divide_extended(&"4:1".parse()?)?.to_string(), "(4,3):(2,8)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`logical_divide`](Self::logical_divide), and `out_of_domain` only for negative values of a tile.
    pub fn logical_divide_extended(&self, tiler: &Tiler) -> Result<Self, Error> {
        by_mode(self, tiler, &divide_extended)
    }
}
