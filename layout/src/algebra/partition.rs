//! One tile of a layout, and the part of it that one thread has.
//!
//! ```text
//! local_tile(A, T, c)        =  zipped_divide(A, T) at (_, c)              the tile c, all of it
//! local_partition(A, P, t)   =  zipped_divide(A, shape of P) at (c, _)     element c of every tile, P(c) = t
//! ```
//!
//! Both are a layout and the value at its index 0. The tiles of all `c` cover `A` once, and so do the parts
//! of all `t`, if the tile divides `A`: division is a permutation of its values. Of a composition `S o k o B`
//! they are those of `B`, from `k` on.

use super::by_mode::Tiler;
use super::composed::ComposedLayout;
use super::slice::SlicePattern;
use crate::{Error, Layout};

impl Layout {
    /// Returns the tile at a coordinate among the tiles, and the value where it begins.
    ///
    /// Open positions of the coordinate stay modes, after those of the tile.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(8,6):(6,1)".parse()?;
    /// let (tile, start) = a.local_tile(&"<4,3>".parse()?, &"(1,_)".parse()?)?;
    /// assert_eq!((tile.to_string(), start), ("(4,3,2):(6,1,3)".to_owned(), 24));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`zipped_divide`](Self::zipped_divide) and [`slice`](Self::slice).
    pub fn local_tile(&self, tiler: &Tiler, coordinate: &SlicePattern) -> Result<(Self, i64), Error> {
        let tiles = self.zipped_divide(tiler)?;
        let tile = tiles.mode(0)?;
        let whole = if tile.is_scalar() {
            SlicePattern::Any
        } else {
            SlicePattern::Modes(vec![SlicePattern::Any; tile.rank()])
        };
        tiles.slice(&SlicePattern::Modes(vec![whole, coordinate.clone()]))
    }

    /// Returns the part of thread `thread` and its start.
    ///
    /// The threads are laid out on every tile as in `threads`.
    ///
    /// Requires: `threads` is a layout of positive strides from the coordinates within a tile to threads.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(8,6):(6,1)".parse()?;
    /// let (part, start) = a.local_partition(&"(2,3):(3,1)".parse()?, 5)?; // thread 5 is at (1,2) of 2 x 3
    /// assert_eq!((part.to_string(), start), ("(4,2):(12,3)".to_owned(), 8));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`zipped_divide`](Self::zipped_divide); `out_of_domain` for a thread below 0, `inadmissible` for
    /// negative strides.
    pub fn local_partition(&self, threads: &Self, thread: i64) -> Result<(Self, i64), Error> {
        let tiler = Tiler::of_shape(&threads.shape().product_each()?)?;
        let digits = threads.digits(thread)?;
        let within: Result<Vec<SlicePattern>, Error> = threads
            .modes()
            .zip(digits.modes())
            .map(|(mode, digits)| {
                Self::column_major_of(&mode.shape())?.offset_at(&digits).map(SlicePattern::At)
            })
            .collect();
        let within = match within?.as_slice() {
            [SlicePattern::At(index)] if threads.is_scalar() => SlicePattern::At(*index),
            several => SlicePattern::Modes(several.to_vec()),
        };
        let tiles = self.zipped_divide(&tiler)?;
        let rest = tiles.mode(1)?;
        let whole = if rest.is_scalar() {
            SlicePattern::Any
        } else {
            SlicePattern::Modes(vec![SlicePattern::Any; rest.rank()])
        };
        tiles.slice(&SlicePattern::Modes(vec![within, whole]))
    }
}

impl ComposedLayout {
    /// Returns the tile at a coordinate among the tiles: see [`Layout::local_tile`].
    ///
    /// ```
    /// use reshard_layout::algebra::ComposedLayout;
    ///
    /// let a: ComposedLayout = "Sw<2,0,3> o 0 o (8,8):(8,1)".parse()?;
    /// let tile = a.local_tile(&"<4,2>".parse()?, &"(1,3)".parse()?)?;
    /// assert_eq!(tile.to_string(), "Sw<2,0,3> o 38 o (4,2):(8,1)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Layout::local_tile`], `overflow`.
    pub fn local_tile(&self, tiler: &Tiler, coordinate: &SlicePattern) -> Result<Self, Error> {
        self.part(self.inner().local_tile(tiler, coordinate)?)
    }

    /// Returns the part of thread `thread`: see [`Layout::local_partition`].
    ///
    /// # Errors
    ///
    /// As [`Layout::local_partition`], `overflow`.
    pub fn local_partition(&self, threads: &Layout, thread: i64) -> Result<Self, Error> {
        self.part(self.inner().local_partition(threads, thread)?)
    }
}
