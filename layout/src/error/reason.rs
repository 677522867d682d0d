//! Why there is no answer: obstacles to a composition, defects of an operand.

use std::fmt;

/// Why `A o B` is not a layout whose shape refines that of `B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// A leaf of `B` leaves a mode of `A` after `run` steps, which does not divide what is left of its extent.
    Divisibility {
        /// Which leaf of `B`, counted from the left.
        leaf: usize,
        /// What is left of the extent of this leaf.
        extent: i64,
        /// The steps after which the boundary is crossed.
        run: i64,
    },
    /// Coordinates of `B` together carry over the boundary between two modes of `A`.
    Carry {
        /// The boundary, a product of the leading extents of `A`.
        boundary: i64,
        /// The greatest sum of the remainders below it.
        reach: i64,
    },
    /// One function applied to the sum of parts is not the sum of what it makes of them.
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
        /// The number of elements in a word.
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
        /// How many modes it has.
        rank: usize,
    },
    /// A layout from threads and values does not have these two modes.
    NotThreadsAndValues {
        /// How many modes it has.
        rank: usize,
    },
    /// A swizzle exchanges bits within a word.
    SwizzledWord {
        /// The number of elements in a word.
        width: i64,
    },
    /// A swizzle of bits and a layout cannot be exchanged.
    Entangled,
    /// Another swizzle is applied to what comes of it than was applied before, and both are no one swizzle.
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
                write!(f, "its mode {extent}:{stride} does not come in whole words of {width}")
            }
            Self::PartialBlock { block, extent } => {
                write!(f, "its mode of size {block} does not divide the extent {extent}")
            }
            Self::NotAPair { rank } => write!(
                f,
                "a mode that _ keeps is taken for a tile and a rest, and this has {rank} modes: name a tile such as 1:0"
            ),
            Self::NotThreadsAndValues { rank } => {
                write!(f, "it has {rank} modes, and threads and values are two")
            }
            Self::SwizzledWord { width } => write!(
                f,
                "what is applied to its values does not act on whole words of {width}, a power of two up to the lowest \
                 bit that it touches"
            ),
            Self::Entangled => f.write_str(
                "the swizzle that is applied to its values does not map bits of this layout to bits of it, so it cannot \
                 be applied first instead",
            ),
            Self::TwoSwizzles => f.write_str(
                "a swizzle is applied before it and another one after it, and both together are no swizzle of a layout: \
                 apply one after the other",
            ),
            Self::NoPermutation => f.write_str("its values are not every number below its size once"),
        }
    }
}
