//! Why there is no answer: obstacles to a composition, defects of an operand.

use std::fmt;

/// Why `A o B` is not a layout whose shape refines that of `B`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// A leaf of `B` leaves a mode of `A` after `run` steps, which does not divide the rest of its extent.
    Divisibility {
        /// Index of the leaf of `B`, counted from the left.
        leaf: usize,
        /// The rest of the extent of this leaf.
        extent: i64,
        /// The steps after which the boundary is crossed.
        run: i64,
    },
    /// Coordinates of `B` jointly carry over the boundary between two modes of `A`.
    Carry {
        /// The boundary, a product of the leading extents of `A`.
        boundary: i64,
        /// The greatest sum of the remainders below it.
        reach: i64,
    },
    /// The function of a sum of parts is not the sum of its values for the parts.
    Parts {
        /// The first index at which it is not.
        index: i64,
    },
    /// Enumeration found the function is not additive over the leaves of `B`.
    Enumeration {
        /// The first index at which the only candidate has another value.
        index: i64,
    },
}

/// Why an operand does not satisfy a precondition.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// A mode has a negative stride.
    NegativeStride {
        /// The extent of the mode.
        extent: i64,
        /// Its stride.
        stride: i64,
    },
    /// A mode's stride is less than the span of the modes below it.
    Overlap {
        /// The stride.
        stride: i64,
        /// The span of the modes with smaller strides.
        span: i64,
    },
    /// A mode's stride is not a multiple of the stride below it.
    Gap {
        /// The stride.
        stride: i64,
        /// The greatest smaller stride.
        below: i64,
    },
    /// No mode has stride 1, so it is not known which elements are neighbours.
    NoUnitStride,
    /// A mode does not come in whole words.
    BrokenWord {
        /// The extent of the mode.
        extent: i64,
        /// Its stride.
        stride: i64,
        /// The number of elements per word.
        width: i64,
    },
    /// A block does not divide the extent it is to cover.
    PartialBlock {
        /// The size of the mode of the block.
        block: i64,
        /// The extent.
        extent: i64,
    },
    /// A mode that a tiler leaves as it is by `_` is not a tile and a rest.
    NotAPair {
        /// The number of its modes.
        rank: usize,
    },
    /// A layout from threads and values does not have these two modes.
    NotThreadsAndValues {
        /// The number of its modes.
        rank: usize,
    },
    /// A swizzle exchanges bits inside words.
    SwizzledWord {
        /// The number of elements per word.
        width: i64,
    },
    /// A swizzle of bits and a layout cannot be exchanged.
    Entangled,
    /// The two swizzles to be applied do not combine to one.
    TwoSwizzles,
    /// Not every number below the size is a value, once.
    NoPermutation,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NegativeStride { extent, stride } => {
                write!(f, "its mode {extent}:{stride} has a negative stride")
            }
            Self::Overlap { stride, span } => {
                write!(
                    f,
                    "its stride {stride} is less than {span}, the span of the modes below it, so they overlap"
                )
            }
            Self::Gap { stride, below } => {
                write!(f, "its stride {stride} is not a multiple of {below}, the stride of the mode below it")
            }
            Self::NoUnitStride => f.write_str("none of its modes has stride 1"),
            Self::BrokenWord { extent, stride, width } => {
                write!(f, "its mode {extent}:{stride} does not split into whole words of {width}")
            }
            Self::PartialBlock { block, extent } => {
                write!(f, "its mode of size {block} does not divide the extent {extent}")
            }
            Self::NotAPair { rank } => write!(
                f,
                "a mode with `_` must be a pair of tile and rest, and this has {rank} modes; give a tile such as \
                 1:0"
            ),
            Self::NotThreadsAndValues { rank } => {
                write!(f, "it must have 2 modes, threads and values, not {rank}")
            }
            Self::SwizzledWord { width } => write!(
                f,
                "the function applied to its values does not act on whole words of {width}, a power of two up to the \
                 lowest bit that it changes"
            ),
            Self::Entangled => f.write_str(
                "the swizzle applied to its values does not map bits of this layout to bits of it, so it cannot be \
                 applied first",
            ),
            Self::TwoSwizzles => f.write_str(
                "a swizzle is applied before it and another after it, and they do not combine to one swizzle of a \
                 layout; apply them in two steps",
            ),
            Self::NoPermutation => f.write_str("it is not a permutation of the numbers below its size"),
        }
    }
}
