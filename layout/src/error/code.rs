//! The words that errors are made of: codes, operations, quantities.

use std::fmt;

use crate::ErrorKind;

#[cfg(doc)]
use crate::{Error, Layout};

/// The code of an [`Error`], finer than its [`ErrorKind`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The text is not in the notation, or an expression calls a function with arguments it does not take.
    Parse,
    /// A number does not fit in 64 bits.
    Overflow,
    /// An extent, a bound or another number that must be positive is not.
    BadExtent,
    /// Two tuples that must have the same nesting do not.
    NotCongruent,
    /// A value is outside the domain of the layout that it is given to.
    OutOfDomain,
    /// The requested function exists, and is proved not to be a layout of the requested shape.
    NotRepresentable,
    /// Two shapes have no common refinement.
    NotNesting,
    /// The operand does not satisfy the precondition of the operation.
    Inadmissible,
    /// The operation has an answer that was not found within the stated budget.
    Undecided,
    /// Nesting is deeper than 64 levels.
    TooDeep,
    /// Something is larger than a stated limit.
    TooLarge,
    /// The layout does not have the requested mode or coordinate.
    NoSuchMode,
}

impl ErrorCode {
    /// Returns the kind.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::Parse => ErrorKind::Parse,
            Self::NotRepresentable | Self::NotNesting => ErrorKind::NotRepresentable,
            Self::Undecided | Self::TooDeep | Self::TooLarge => ErrorKind::Unsupported,
            Self::Overflow
            | Self::BadExtent
            | Self::NotCongruent
            | Self::OutOfDomain
            | Self::Inadmissible
            | Self::NoSuchMode => ErrorKind::InvalidInput,
        }
    }

    /// Returns the code in `snake_case`, as the command line prints it.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Overflow => "overflow",
            Self::BadExtent => "bad_extent",
            Self::NotCongruent => "not_congruent",
            Self::OutOfDomain => "out_of_domain",
            Self::NotRepresentable => "not_representable",
            Self::NotNesting => "not_nesting",
            Self::Inadmissible => "inadmissible",
            Self::Undecided => "undecided",
            Self::TooDeep => "too_deep",
            Self::TooLarge => "too_large",
            Self::NoSuchMode => "no_such_mode",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An operation of the algebra, as errors name it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Evaluating a layout at an index or a coordinate.
    Evaluate,
    /// [`Layout::compose`].
    Compose,
    /// [`Layout::complement`].
    Complement,
    /// [`Layout::right_inverse`].
    RightInverse,
    /// [`Layout::left_inverse`].
    LeftInverse,
    /// [`Layout::upcast`] and [`Layout::downcast`].
    Recast,
    /// [`Layout::tile_to_shape`].
    TileToShape,
    /// [`Layout::zipped_divide`] and the other forms that put tiles before rests.
    Zip,
    /// [`ThreadValueLayout`](crate::algebra::ThreadValueLayout).
    ThreadValues,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evaluate => "evaluation",
            Self::Compose => "composition",
            Self::Complement => "complement",
            Self::RightInverse => "right inverse",
            Self::LeftInverse => "left inverse",
            Self::Recast => "recast",
            Self::TileToShape => "tiling to that shape",
            Self::Zip => "form with all tiles before all rests",
            Self::ThreadValues => "thread-value layout",
        })
    }
}

/// The objects whose number exceeds a limit.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Leaves of a tuple.
    Leaves,
    /// Bits of a swizzle.
    SwizzleBits,
    /// Cells of a drawing.
    Cells,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leaves => "leaves",
            Self::SwizzleBits => "bits in the swizzle",
            Self::Cells => "cells to draw",
        })
    }
}

/// The quantity that did not fit in 64 bits.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantity {
    /// The product of the extents.
    Size,
    /// The distance between the least and the greatest value.
    Span,
    /// A stride.
    Stride,
    /// A value of the layout.
    Value,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size => "the size",
            Self::Span => "the span of the values",
            Self::Stride => "a stride",
            Self::Value => "a value",
        })
    }
}
