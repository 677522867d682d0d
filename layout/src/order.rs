//! The order of linearisation, which nothing else may assume.
//!
//! An index becomes coordinates **colexicographically**: the leftmost coordinate varies fastest. With extents
//! `s_1, ..., s_n` and `P_k = s_1 * ... * s_{k-1}`,
//!
//! ```text
//! coordinate k of index i  =  floor(i / P_k) mod s_k          i  =  sum_k c_k P_k
//! ```
//!
//! Row-major order (NumPy, PyTorch: the *rightmost* coordinate varies fastest) is the reversed list of modes;
//! only [`Layout::row_major`] implements it.

use crate::modes::{Mode, Modes};
use crate::stride::Stride;
use crate::{Defect, Error, IntTuple, Layout, Operation, Quantity};

/// Returns quotient and remainder of non-negative numbers; uses the faster 32-bit division if it suffices.
#[inline]
pub(crate) fn div_rem(dividend: i64, divisor: i64) -> (i64, i64) {
    debug_assert!(dividend >= 0 && divisor > 0);
    if dividend < divisor {
        (0, dividend)
    } else if let (Ok(dividend), Ok(divisor)) = (u32::try_from(dividend), u32::try_from(divisor)) {
        (i64::from(dividend / divisor), i64::from(dividend % divisor))
    } else {
        (dividend / divisor, dividend % divisor)
    }
}

/// Returns the value at `index` in `[0, size)`.
///
/// It is the dot product of the coordinates with the strides.
///
/// The sum may leave the 64 bits in between, and wraps: the result is a value of the layout, which fits.
#[inline]
pub(crate) fn value_at(leaves: &[Mode], index: i64) -> i64 {
    let (mut rest, mut value) = (index, 0_i64);
    for leaf in leaves {
        if rest == 0 {
            break;
        }
        let (quotient, coordinate) = div_rem(rest, leaf.extent);
        value = value.wrapping_add(coordinate.wrapping_mul(leaf.stride));
        rest = quotient;
    }
    value
}

/// Returns the same of strides of any kind.
pub(crate) fn place_at<S: Stride>(modes: &[Mode<S>], index: i64) -> S::Value {
    let (mut rest, mut value) = (index, S::Value::default());
    for mode in modes {
        let (quotient, coordinate) = div_rem(rest, mode.extent);
        mode.stride.add_to(coordinate, &mut value);
        rest = quotient;
    }
    value
}

/// Returns the coordinates of an index in `[0, size)`, nested like the shape.
pub(crate) fn coordinates(layout: &Layout, index: i64) -> IntTuple {
    let mut rest = index;
    let digits = layout.flat().iter().map(|leaf| {
        let (quotient, coordinate) = div_rem(rest, leaf.extent);
        rest = quotient;
        coordinate
    });
    IntTuple::from_parts(digits.collect(), layout.profile().clone())
}

/// Returns the value at `index >= 0` where the last mode is unbounded.
pub(crate) fn value_at_extended(leaves: &[Mode], index: i64) -> Result<i64, Error> {
    let (mut rest, mut value) = (index, 0_i64);
    for (at, leaf) in leaves.iter().enumerate() {
        let (quotient, coordinate) =
            if at + 1 == leaves.len() { (0, rest) } else { div_rem(rest, leaf.extent) };
        let overflow = Error::Overflow { quantity: Quantity::Value, left: coordinate, right: leaf.stride };
        let term = coordinate.checked_mul(leaf.stride).ok_or_else(|| overflow.clone())?;
        value = value.checked_add(term).ok_or(overflow)?;
        rest = quotient;
    }
    Ok(value)
}

impl Layout {
    /// Returns the coordinates of an index in `[0, size)`, nested like the shape: the inverse of indexing.
    ///
    /// Ensures: [`offset_at`](Self::offset_at) of the coordinates is [`at`](Self::at) of the index.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,(2,3)):(2,(1,8))".parse()?;
    /// assert_eq!(layout.coordinates(13)?.to_string(), "(1,(1,1))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out_of_domain`.
    pub fn coordinates(&self, index: i64) -> Result<IntTuple, Error> {
        if !(0..self.size()).contains(&index) {
            let (operation, size) = (Operation::Evaluate, self.size());
            return Err(Error::OutOfDomain { operation, value: index, size });
        }
        Ok(coordinates(self, index))
    }

    /// Returns the digits of a number by the strides.
    ///
    /// A digit is `floor(i / d) mod s` for every leaf, and 0 where the stride is 0.
    ///
    /// Where the layout is a permutation of `[0, size)` by ascending digits, these are the coordinates with
    /// the value `i`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,(2,3)):(6,(3,1))".parse()?;
    /// assert_eq!(layout.digits(16)?.to_string(), "(2,(1,1))");
    /// assert_eq!(layout.offset_at(&layout.digits(16)?)?, 16);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out_of_domain` for a negative number, `inadmissible` for a negative stride.
    #[doc(hidden)]
    pub fn digits(&self, number: i64) -> Result<IntTuple, Error> {
        let operation = Operation::Evaluate;
        if number < 0 {
            return Err(Error::OutOfDomain { operation, value: number, size: i64::MAX });
        }
        let digits = self.flat().iter().map(|leaf| match leaf.stride {
            0 => Ok(0),
            stride if stride < 0 => {
                let defect = Defect::NegativeStride { extent: leaf.extent, stride };
                Err(Error::Inadmissible { operation, operand: Box::new(self.clone()), defect })
            }
            stride => Ok(number / stride % leaf.extent),
        });
        let digits: Result<_, Error> = digits.collect();
        Ok(IntTuple::from_parts(digits?, self.profile().clone()))
    }

    /// Returns the compact layout with the leftmost coordinate fastest,
    /// `(e_0, e_1, ...):(1, e_0, e_0 e_1, ...)`.
    ///
    /// As a function it is the identity on `[0, size)`. Ensures: flat, and `1:0` for no extents.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// assert_eq!(Layout::column_major(&[4, 2, 3])?.to_string(), "(4,2,3):(1,4,8)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`, `too_large`.
    pub fn column_major(extents: &[i64]) -> Result<Self, Error> {
        let mut stride = 1_i64;
        let mut leaves = Modes::new();
        for &extent in extents {
            leaves.push(Mode { extent, stride });
            // A product that does not fit is reported as the size of the layout.
            stride = stride.wrapping_mul(extent);
        }
        Self::from_flat(leaves)
    }

    /// Returns the [`column_major`](Self::column_major) layout of a nested shape, congruent to it.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// assert_eq!(Layout::column_major_of(&"(4,(2,3))".parse()?)?.to_string(), "(4,(2,3)):(1,(4,8))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`.
    pub fn column_major_of(shape: &IntTuple) -> Result<Self, Error> {
        let flat = Self::column_major(shape.leaves())?;
        Self::assemble(Modes::from_slice(flat.flat()), shape.profile().clone())
    }

    /// Returns the memory layout of a row-major tensor with these extents.
    ///
    /// It is the **reversed** list of its dims, so that the last dim is the leftmost mode, and the linear
    /// index runs over the tensor in the order of its memory.
    ///
    /// `row_major(&[N_0, ..., N_{n-1}])` is `(N_{n-1}, ..., N_0):(1, N_{n-1}, ...)`; dim `d` is mode
    /// `n - 1 - d`.
    ///
    /// CuTe's `LayoutRight` of a shape keeps the modes where they are, `(2,4):(4,1)`, so that the linear
    /// index runs over the tensor in another order than its memory; it is [`reversed`](Self::reversed) of
    /// this, here `(4,2):(1,4)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// assert_eq!(Layout::row_major(&[2, 3, 4])?.to_string(), "(4,3,2):(1,4,12)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`, `too_large`.
    pub fn row_major(extents: &[i64]) -> Result<Self, Error> {
        let reversed: smallvec::SmallVec<[i64; 8]> = extents.iter().rev().copied().collect();
        Self::column_major(&reversed)
    }

    /// Returns the [`row_major`](Self::row_major) layout of a nested shape, congruent to its mirror image.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let memory = Layout::row_major_of(&"(4,(2,3))".parse()?)?;
    /// assert_eq!(memory.to_string(), "((3,2),4):((1,3),6)");
    /// assert_eq!(memory.reversed().to_string(), "(4,(2,3)):(6,(3,1))"); // what CuTe calls row-major
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`.
    pub fn row_major_of(shape: &IntTuple) -> Result<Self, Error> {
        Self::column_major_of(&Self::column_major_of(shape)?.mirror().shape())
    }

    /// Returns the same modes from right to left.
    ///
    /// This turns the colexicographic order of this layout into the lexicographic one.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,(2,3)):(1,(4,8))".parse()?;
    /// assert_eq!(layout.reversed().to_string(), "((3,2),4):((8,4),1)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[must_use]
    pub fn reversed(&self) -> Self {
        self.mirror()
    }
}
