//! Recasting: the same memory, read as elements of another width.
//!
//! ```text
//! downcast by n   every element becomes n narrow ones:    s:1 -> n s : 1      s:d -> s : n d
//! upcast by n     n neighbours become one wide element:   s:1 -> s/n : 1      s:d -> s : d/n
//! ```
//!
//! The leaf of stride 1 is where neighbours are. An upcast exists only if whole words do: that leaf is a
//! multiple of `n`, and so is every other stride. (CuTe rounds up instead, which reads elements that the
//! layout does not have.)

use crate::modes::{Mode, Modes};
use crate::{Defect, Error, Layout, Operation, Quantity};

impl Layout {
    /// Returns the leaf of stride 1, of extent > 1 if there is one.
    fn unit_leaf(&self) -> Option<usize> {
        let unit = |least| self.flat().iter().position(|leaf| leaf.stride == 1 && leaf.extent >= least);
        unit(2).or_else(|| unit(1))
    }

    /// Returns the layout of elements `1/width` as wide.
    ///
    /// Requires: a leaf of stride 1. Ensures: the values are `width o + k`, `k < width`, for the values `o`
    /// of `A`; congruent to `A`; [`upcast`](Self::upcast) by the same width gives back `A`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let words: Layout = "(4,8):(8,1)".parse()?;
    /// assert_eq!(words.downcast(2)?.to_string(), "(4,16):(16,1)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent` for `width < 1`, `inadmissible`, `overflow`.
    pub fn downcast(&self, width: i64) -> Result<Self, Error> {
        if width < 1 {
            return Err(Error::BadExtent { extent: width });
        }
        let Some(unit) = self.unit_leaf() else {
            return Err(Error::Inadmissible {
                operation: Operation::Recast,
                operand: Box::new(self.clone()),
                defect: Defect::NoUnitStride,
            });
        };
        let times = |factor: i64, quantity| {
            factor.checked_mul(width).ok_or(Error::Overflow { quantity, left: factor, right: width })
        };
        let leaves: Result<Modes, Error> = self
            .flat()
            .iter()
            .enumerate()
            .map(|(at, leaf)| {
                Ok(if at == unit {
                    Mode { extent: times(leaf.extent, Quantity::Size)?, stride: 1 }
                } else {
                    Mode { extent: leaf.extent, stride: times(leaf.stride, Quantity::Stride)? }
                })
            })
            .collect();
        Self::assemble(leaves?, self.profile().clone())
    }

    /// Returns the layout of elements `width` times as wide, each made of `width` neighbours.
    ///
    /// Requires: the leaf of stride 1 has a multiple of `width` elements, all other strides are multiples of
    /// it. Ensures: congruent to `A`; [`downcast`](Self::downcast) by the same width gives back `A`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let bytes: Layout = "(4,16):(16,1)".parse()?;
    /// assert_eq!(bytes.upcast(2)?.to_string(), "(4,8):(8,1)");
    /// assert_eq!(bytes.upcast(3).unwrap_err().code(), "inadmissible");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `bad_extent` for `width < 1`, `inadmissible`.
    pub fn upcast(&self, width: i64) -> Result<Self, Error> {
        if width < 1 {
            return Err(Error::BadExtent { extent: width });
        }
        let inadmissible = |defect| Error::Inadmissible {
            operation: Operation::Recast,
            operand: Box::new(self.clone()),
            defect,
        };
        let unit = self.unit_leaf().ok_or_else(|| inadmissible(Defect::NoUnitStride))?;
        let leaves: Result<Modes, Error> = self
            .flat()
            .iter()
            .enumerate()
            .map(|(at, leaf)| {
                let whole = if at == unit { leaf.extent } else { leaf.stride };
                // A stride that nothing advances along need not be a multiple.
                if (at == unit || leaf.extent > 1) && whole % width != 0 {
                    let Mode { extent, stride } = *leaf;
                    return Err(inadmissible(Defect::BrokenWord { extent, stride, width }));
                }
                Ok(if at == unit {
                    Mode { extent: leaf.extent / width, stride: 1 }
                } else {
                    Mode { extent: leaf.extent, stride: leaf.stride / width }
                })
            })
            .collect();
        Self::assemble(leaves?, self.profile().clone())
    }
}
