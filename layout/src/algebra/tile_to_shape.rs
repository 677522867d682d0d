//! Covering a shape with copies of a block.
//!
//! ```text
//! tile_to_shape(A, (N_0, N_1))  =  blocked_product(A, compact layout of (N_0 / size(A_0), N_1 / size(A_1)))
//! ```
//!
//! Of a nested shape the extents are the products of its modes ([`IntTuple::product_each`]), as in CuTe: the
//! block and its copies determine the nesting of a mode of the result, not the shape.

use crate::{Defect, Error, IntTuple, Layout, Operation};

impl Layout {
    /// Returns the layout of extents `shape` made of copies of this block.
    ///
    /// The copies along the leftmost extent come first.
    ///
    /// Requires: the size of each mode of the block divides the extent. Ensures: mode `k` has the size
    /// `shape[k]`, and is coalesced.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let block: Layout = "(4,2):(2,1)".parse()?;
    /// let tiled = block.tile_to_shape(&[8, 6])?;
    /// assert_eq!(tiled.to_string(), "(8,(2,3)):(2,(1,16))");
    /// assert!(tiled.is_compact());
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible` if an extent is not a multiple, `no_such_mode` if the block has more modes than the
    /// shape, and those of [`blocked_product`](Self::blocked_product).
    pub fn tile_to_shape(&self, shape: &[i64]) -> Result<Self, Error> {
        let order: Vec<i64> = (0..).take(shape.len()).collect();
        self.tile_to_shape_ordered(shape, &order)
    }

    /// Works like [`tile_to_shape`](Self::tile_to_shape), with the copies in another order.
    ///
    /// The copies along the extent with the least `order` come first.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let block: Layout = "(4,2):(2,1)".parse()?;
    /// let tiled = block.tile_to_shape_ordered(&[8, 6], &[1, 0])?;
    /// assert_eq!(tiled.to_string(), "((4,2),(2,3)):((2,24),(1,8))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`tile_to_shape`](Self::tile_to_shape); `no_such_mode` if shape and order differ in length.
    pub fn tile_to_shape_ordered(&self, shape: &[i64], order: &[i64]) -> Result<Self, Error> {
        let rank = self.rank();
        if shape.len() < rank || shape.len() != order.len() {
            return Err(Error::NoSuchMode { mode: rank.max(order.len()).max(1) - 1, rank: shape.len() });
        }
        let blocks: Vec<i64> =
            self.modes().map(|mode| mode.size()).chain(std::iter::repeat(1)).take(shape.len()).collect();
        let mut counts = Vec::with_capacity(shape.len());
        for (&extent, &block) in shape.iter().zip(&blocks) {
            if extent < 1 {
                return Err(Error::BadExtent { extent });
            }
            if extent % block != 0 {
                return Err(Error::Inadmissible {
                    operation: Operation::TileToShape,
                    operand: Box::new(self.clone()),
                    defect: Defect::PartialBlock { block, extent },
                });
            }
            counts.push(extent / block);
        }
        let mut sorted: Vec<usize> = (0..shape.len()).collect();
        sorted.sort_by_key(|&at| order[at]);
        let mut modes: Vec<(i64, i64)> = counts.iter().map(|&count| (count, 0)).collect();
        let mut stride = 1_i64;
        for at in sorted {
            modes[at].1 = stride;
            // A product that does not fit is reported as the size of the pattern.
            stride = stride.wrapping_mul(counts[at]);
        }
        let ones = IntTuple::flat(&vec![1; shape.len()])?;
        self.blocked_product(&Self::from_modes(&modes)?)?.coalesce_by(&ones)
    }
}
