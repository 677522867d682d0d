//! The elements of a tile that each thread has, as used by copies and matrix instructions of a GPU.
//!
//! A thread-value layout maps a thread and the number of one of its values to the index of an element within
//! a tile, leftmost dim fastest:
//!
//! ```text
//! TV(t, v)  =  index of the element           a bijection onto the tile: every element has one thread and one number
//! ```
//!
//! **Tiled copies.** Threads form a grid, `P(p) = t`, and each has a block of values, `V(q) = v`, next to
//! that of its neighbour:
//!
//! ```text
//! element  =  q + |V| p  along every dim         TV = ((|P| : |V| S) o P^-1, (|V| : S) o V^-1)
//! ```
//!
//! with `S` the strides of the tile, whose extents are those of `P` times those of `V`.
//!  **Tiled matrix instructions.** One instruction, given by a thread-value layout of a smaller tile, is
//!  executed by
//! several adjacent groups of threads, which form a grid `G(g)`:
//!
//! ```text
//! element  =  e + |tile| g  along every dim      TV' = ((inner o TV_t, outer o G^-1), inner o TV_v)
//! ```
//!
//! where `inner` and `outer` map an index within an instruction's tile, and the position of that tile, to the
//! larger tile.
//!
//! **A partition** of a tensor by it: `((thread, value), rests)`, from which one thread is a slice.

use super::by_mode::Tiler;
use crate::error::{Defect, Operation, Quantity};
use crate::{Error, IntTuple, Layout};

/// The threads that own the elements of a tile, and the order of their values.
///
/// ```
/// use reshard_layout::algebra::ThreadValueLayout;
///
/// // 32 x 8 threads, each with four elements of one column.
/// let copy = ThreadValueLayout::of_grid(&"(32,8):(8,1)".parse()?, &"(4,1):(1,1)".parse()?)?;
/// assert_eq!(copy.tile().to_string(), "(128,8)");
/// assert_eq!(copy.layout().to_string(), "((8,32),4):((128,4),1)");
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ThreadValueLayout {
    tile: IntTuple,
    layout: Layout,
}

fn refused(operand: &Layout, defect: Defect) -> Error {
    Error::Inadmissible { operation: Operation::ThreadValues, operand: Box::new(operand.clone()), defect }
}

/// Returns the positions of the values of a permutation.
fn places(layout: &Layout) -> Result<Layout, Error> {
    if layout.is_compact() { layout.right_inverse() } else { Err(refused(layout, Defect::NoPermutation)) }
}

/// Returns the extents of the modes.
fn extents(layout: &Layout) -> Vec<i64> {
    layout.modes().map(|mode| mode.size()).collect()
}

/// Returns the extents, padded with 1 up to `dims`.
fn padded(mut extents: Vec<i64>, dims: usize) -> Vec<i64> {
    extents.resize(dims.max(extents.len()), 1);
    extents
}

/// Returns the maps from `inner` coordinates and from the `outer` ones around them to the common index.
///
/// The leftmost coordinate is the fastest.
fn nested(inner: &[i64], outer: &[i64]) -> Result<(Layout, Layout), Error> {
    let (mut within, mut around) = (Vec::new(), Vec::new());
    let times = |left: i64, right: i64| {
        left.checked_mul(right).ok_or(Error::Overflow { quantity: Quantity::Size, left, right })
    };
    let mut step = 1_i64;
    for (&few, &many) in inner.iter().zip(outer) {
        within.push((few, step));
        let block = times(step, few)?;
        around.push((many, block));
        step = times(block, many)?;
    }
    Ok((Layout::from_modes(&within)?, Layout::from_modes(&around)?))
}

impl ThreadValueLayout {
    /// Returns the assignment of the layout `(thread, value) -> index` to a tile.
    ///
    /// Requires: two modes, and every index of the tile once.
    ///
    /// ```
    /// use reshard_layout::algebra::ThreadValueLayout;
    ///
    /// // The accumulator of a 16 x 8 matrix instruction: 32 threads with four values each.
    /// let c = ThreadValueLayout::new(&"(16,8)".parse()?, &"((4,8),(2,2)):((32,1),(16,8))".parse()?)?;
    /// assert_eq!(c.layout().size(), 128);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible` for other numbers of modes, or where an index of the tile is missing; `bad_extent`,
    /// `overflow`.
    pub fn new(tile: &IntTuple, layout: &Layout) -> Result<Self, Error> {
        let tile = tile.product_each()?;
        let size = Layout::column_major_of(&tile)?.size();
        if layout.is_scalar() || layout.rank() != 2 {
            return Err(refused(layout, Defect::NotThreadsAndValues { rank: layout.rank() }));
        }
        if !layout.is_compact() || layout.size() != size {
            return Err(refused(layout, Defect::NoPermutation));
        }
        Ok(Self { tile, layout: layout.clone() })
    }

    /// Returns a grid of threads, each with a block of values next to that of its neighbour: a tiled copy.
    ///
    /// Requires: `threads` and `values` are permutations of `0 .. size`, from coordinates to numbers.
    ///
    /// # Errors
    ///
    /// `inadmissible` where one of them is not, `overflow`.
    pub fn of_grid(threads: &Layout, values: &Layout) -> Result<Self, Error> {
        let dims = threads.rank().max(values.rank());
        let (block, grid) = (padded(extents(values), dims), padded(extents(threads), dims));
        let (within, around) = nested(&block, &grid)?;
        let layout =
            Layout::concat(&[around.compose(&places(threads)?)?, within.compose(&places(values)?)?])?;
        let tile: Vec<i64> = block.iter().zip(&grid).map(|(few, many)| few * many).collect();
        Ok(Self { tile: IntTuple::flat(&tile)?, layout })
    }

    /// Returns the same for several adjacent groups of threads on a grid: a tiled matrix instruction.
    ///
    /// Requires: `groups` is a permutation of `0 .. size`, from coordinates to the numbers of groups.
    ///
    /// ```
    /// use reshard_layout::algebra::ThreadValueLayout;
    ///
    /// let c = ThreadValueLayout::new(&"(16,8)".parse()?, &"((4,8),(2,2)):((32,1),(16,8))".parse()?)?;
    /// let four = c.on_grid(&"(2,2):(1,2)".parse()?)?; // four warps
    /// assert_eq!(four.tile().to_string(), "(32,16)");
    /// assert_eq!(four.layout().to_string(), "(((4,8),(2,2)),(2,2)):(((64,1),(16,256)),(32,8))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible` where the grid is not a permutation, `not_representable` where the instruction's modes
    /// are not within the dims of its tile, `overflow`.
    pub fn on_grid(&self, groups: &Layout) -> Result<Self, Error> {
        let inner = self.tile.leaves().to_vec();
        let dims = inner.len().max(groups.rank());
        let (inner, outer) = (padded(inner, dims), padded(extents(groups), dims));
        let (within, around) = nested(&inner, &outer)?;
        let threads = within.compose(&self.layout.mode(0)?)?;
        let groups = around.compose(&places(groups)?)?;
        let values = within.compose(&self.layout.mode(1)?)?;
        let tile: Vec<i64> = inner.iter().zip(&outer).map(|(few, many)| few * many).collect();
        Ok(Self {
            tile: IntTuple::flat(&tile)?,
            layout: Layout::concat(&[Layout::concat(&[threads, groups])?, values])?,
        })
    }

    /// Returns the extents of the tile.
    pub fn tile(&self) -> &IntTuple {
        &self.tile
    }

    /// Returns the layout from a thread and the number of one of its values to the index within the tile.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the map from the index within the tile to `thread + threads * value`, as drawings use it.
    ///
    /// # Errors
    ///
    /// `overflow`.
    pub fn owners(&self) -> Result<Layout, Error> {
        let back = self.layout.right_inverse()?;
        back.compose(&Layout::column_major_of(&self.tile)?)
    }

    /// Returns a tensor by thread, value, and tile: `((thread, value), rests)`.
    ///
    /// Requires: the tile divides the tensor.
    ///
    /// ```
    /// use reshard_layout::algebra::ThreadValueLayout;
    ///
    /// let copy = ThreadValueLayout::of_grid(&"(4,2):(1,4)".parse()?, &"(2,1):(1,1)".parse()?)?;
    /// let all = copy.partition(&"(16,8):(8,1)".parse()?)?;
    /// assert_eq!(all.to_string(), "(((4,2),2),(2,4)):(((16,1),8),(64,2))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`zipped_divide`](Layout::zipped_divide) and [`compose`](Layout::compose).
    pub fn partition(&self, tensor: &Layout) -> Result<Layout, Error> {
        let tiles = tensor.zipped_divide(&Tiler::of_shape(&self.tile)?)?;
        Layout::concat(&[tiles.mode(0)?.compose(&self.layout)?, tiles.mode(1)?])
    }

    /// Returns the part of a tensor that one thread owns, `(values, rests)`, and its start offset.
    ///
    /// # Errors
    ///
    /// As [`partition`](Self::partition); `out_of_domain` for a thread that does not exist.
    pub fn of_thread(&self, tensor: &Layout, thread: i64) -> Result<(Layout, i64), Error> {
        let all = self.partition(tensor)?;
        let pair = all.mode(0)?;
        let start = pair.mode(0)?.at(thread)?;
        Ok((Layout::concat(&[pair.mode(1)?, all.mode(1)?])?, start))
    }
}
