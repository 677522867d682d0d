//! Evaluating a layout: at an index, at coordinates, everywhere.

use super::Layout;
use crate::modes::Mode;
use crate::order::{place_at, value_at, value_at_extended};
use crate::stride::Stride;
use crate::{Error, IntTuple, Operation};

impl Layout {
    /// Returns the value at `index` in `[0, size)`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,2):(2,1)".parse()?;
    /// assert_eq!(layout.at(5)?, 3);
    /// assert_eq!(layout.at(8).unwrap_err().code(), "out_of_domain");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out_of_domain`.
    #[inline]
    pub fn at(&self, index: i64) -> Result<i64, Error> {
        if !(0..self.size).contains(&index) {
            return Err(Error::OutOfDomain { operation: Operation::Evaluate, value: index, size: self.size });
        }
        Ok(value_at(&self.modes, index))
    }

    /// Returns the value at any `index >= 0`, where the last leaf continues without end, as in CuTe.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,2):(2,1)".parse()?;
    /// assert_eq!((layout.at_extended(5)?, layout.at_extended(13)?), (3, 5));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out_of_domain` for a negative index, `overflow`.
    #[doc(hidden)]
    pub fn at_extended(&self, index: i64) -> Result<i64, Error> {
        if index < 0 {
            return Err(Error::OutOfDomain { operation: Operation::Evaluate, value: index, size: i64::MAX });
        }
        value_at_extended(&self.modes, index)
    }

    /// Returns the value at one coordinate per mode, each an index into its mode.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,(2,3)):(2,(1,8))".parse()?;
    /// assert_eq!(layout.offset_of(&[1, 3])?, 2 + (1 + 8));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `no_such_mode` if the number of coordinates is not the rank, `out_of_domain`.
    pub fn offset_of(&self, coordinates: &[i64]) -> Result<i64, Error> {
        let rank = self.rank();
        if coordinates.len() != rank {
            return Err(Error::NotOneEach { given: coordinates.len(), rank });
        }
        let mut value = 0_i64;
        for (range, &coordinate) in self.profile.modes().zip(coordinates) {
            value = value.wrapping_add(offset_in(&self.modes[range], coordinate)?);
        }
        Ok(value)
    }

    /// Returns the value at a coordinate nested like the shape, or less.
    ///
    /// An integer stands for any part of the shape, and is an index into it.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(4,(2,3)):(2,(1,8))".parse()?;
    /// for coordinate in ["13", "(1,3)", "(1,(1,1))"] {
    ///     assert_eq!(layout.offset_at(&coordinate.parse()?)?, 11);
    /// }
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `no_such_mode` if a tuple has more or fewer components than the mode it stands for, `out_of_domain`.
    pub fn offset_at(&self, coordinate: &IntTuple) -> Result<i64, Error> {
        if let Some(index) = coordinate.as_scalar() {
            return self.at(index);
        }
        let (given, rank) = (coordinate.rank(), self.rank());
        if given != rank || self.is_scalar() {
            return Err(Error::NotOneEach { given, rank });
        }
        // Recursion is as deep as the coordinate, which is at most MAX_DEPTH.
        self.modes()
            .zip(coordinate.modes())
            .try_fold(0_i64, |value, (mode, coordinate)| Ok(value.wrapping_add(mode.offset_at(&coordinate)?)))
    }

    /// Returns all values, in the order of the indices.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let layout: Layout = "(2,3):(3,1)".parse()?;
    /// assert_eq!(layout.values().collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn values(&self) -> impl Iterator<Item = i64> + Clone + '_ {
        (0..self.size).map(|index| value_at(&self.modes, index))
    }
}

impl<S: Stride> Layout<S> {
    /// Returns the value at `index` in `[0, size)`, for strides of any kind.
    ///
    /// For integers it equals [`at`](Layout::at).
    ///
    /// ```
    /// use reshard_layout::{AxisStride, Layout};
    ///
    /// let layout: Layout<AxisStride> = "(128,4,2):(1,1@1,1@0)".parse()?;
    /// assert_eq!(layout.value(700)?.to_string(), "60+1@0+1@1");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `out_of_domain`.
    pub fn value(&self, index: i64) -> Result<S::Value, Error> {
        if !(0..self.size).contains(&index) {
            return Err(Error::OutOfDomain { operation: Operation::Evaluate, value: index, size: self.size });
        }
        Ok(place_at(&self.modes, index))
    }
}

fn offset_in(leaves: &[Mode], index: i64) -> Result<i64, Error> {
    let size = leaves.iter().map(|leaf| leaf.extent).product();
    if (0..size).contains(&index) {
        Ok(value_at(leaves, index))
    } else {
        Err(Error::OutOfDomain { operation: Operation::Evaluate, value: index, size })
    }
}
