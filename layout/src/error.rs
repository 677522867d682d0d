//! What can go wrong, as values that carry their operands.

use std::fmt;

use crate::algebra::Outer;
use crate::{IntTuple, Layout};

/// The kind of an [`Error`], the part of it that programs match on.
///
/// ```
/// use reshard_layout::{ErrorKind, Layout};
///
/// let error = Layout::from_modes(&[(0, 1)]).unwrap_err();
/// assert_eq!(error.error_kind(), ErrorKind::BadExtent);
/// assert_eq!(error.kind(), "bad_extent");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The text is not in the notation, or an expression calls a function with arguments it does not take.
    Parse,
    /// A number does not fit in 64 bits.
    Overflow,
    /// An extent, a bound or another number that must be positive is not.
    BadExtent,
    /// Two tuples that must have the same nesting do not.
    NotCongruent,
    /// A value lies outside the domain of the layout it is given to.
    OutOfDomain,
    /// The function asked for exists, and is proved not to be a layout of the shape asked for.
    NotRepresentable,
    /// The operand does not satisfy the precondition of the operation.
    Inadmissible,
    /// The question has an answer that was not found within the stated budget.
    Undecided,
    /// Nesting is deeper than [`MAX_DEPTH`](crate::MAX_DEPTH).
    TooDeep,
    /// Something is larger than a stated limit.
    TooLarge,
    /// A mode or a coordinate is asked for that the layout does not have.
    NoSuchMode,
}

impl ErrorKind {
    /// The kind in `snake_case`, as the command line prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Overflow => "overflow",
            Self::BadExtent => "bad_extent",
            Self::NotCongruent => "not_congruent",
            Self::OutOfDomain => "out_of_domain",
            Self::NotRepresentable => "not_representable",
            Self::Inadmissible => "inadmissible",
            Self::Undecided => "undecided",
            Self::TooDeep => "too_deep",
            Self::TooLarge => "too_large",
            Self::NoSuchMode => "no_such_mode",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An operation of the algebra, as errors name it.
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
        })
    }
}

/// What there is too much of.
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
        }
    }
}

/// The place in a text that could not be read, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParseError {
    kind: ErrorKind,
    offset: usize,
    message: String,
    /// The part of the line around the place, and the column of the place within it.
    window: String,
    column: usize,
}

impl ParseError {
    /// How much of a long line is kept on either side of the place.
    const MARGIN: usize = 60;

    pub(crate) fn new(kind: ErrorKind, text: &str, offset: usize, message: String) -> Self {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line_start = text[..offset].rfind('\n').map_or(0, |at| at + 1);
        let before: Vec<char> = text[line_start..offset].chars().rev().take(Self::MARGIN).collect();
        let after = text[offset..].chars().take_while(|c| *c != '\n').take(Self::MARGIN);
        // A control character would move the caret away from its place.
        let window =
            before.iter().rev().copied().chain(after).map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self { kind, offset, message, window, column: before.len() }
    }

    /// The byte offset of the place in the text.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The line of the text with a caret under the place; of a long line, the part around the place.
    ///
    /// ```
    /// use reshard_layout::{Error, Layout};
    ///
    /// let Err(Error::Parse(error)) = "(4,2:(1,4)".parse::<Layout>() else { panic!() };
    /// assert_eq!(error.offset(), 4);
    /// assert_eq!(error.caret(), "(4,2:(1,4)\n    ^");
    /// ```
    pub fn caret(&self) -> String {
        format!("{}\n{}^", self.window, " ".repeat(self.column))
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.message, self.offset)
    }
}

/// Why an operation on layouts has no answer, with its operands.
///
/// `Display` is one sentence; [`render`](Self::render) adds the input line and a caret where there is one.
///
/// ```
/// use reshard_layout::Layout;
///
/// let a: Layout = "(4,3):(1,10)".parse()?;
/// let error = a.compose(&"6:1".parse()?).unwrap_err();
/// assert_eq!(error.kind(), "not_representable");
/// assert_eq!(
///     error.to_string(),
///     "(4,3):(1,10) o 6:1 is not a layout: leaf 0 of the inner layout crosses a boundary of the outer one after \
///      4 steps, which does not divide 6"
/// );
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The text is not in the notation.
    Parse(Box<ParseError>),
    /// A quantity does not fit in 64 bits.
    Overflow {
        /// The quantity.
        quantity: Quantity,
        /// An operand of the product or sum that did not fit.
        left: i64,
        /// The other operand.
        right: i64,
    },
    /// A number that must be at least 1 is not.
    BadExtent {
        /// The number.
        extent: i64,
    },
    /// Shape and stride do not have the same nesting.
    NotCongruent {
        /// The shape.
        shape: Box<IntTuple>,
        /// The stride.
        stride: Box<IntTuple>,
    },
    /// A value lies outside `[0, size)`.
    OutOfDomain {
        /// The operation that needed the value.
        operation: Operation,
        /// The value.
        value: i64,
        /// The size of the domain.
        size: i64,
    },
    /// `outer o inner` is proved not to be a layout whose shape refines that of `inner`.
    NotRepresentable {
        /// What is applied last, and the inner layout.
        operands: Box<(Outer, Layout)>,
        /// Why.
        obstacle: Obstacle,
    },
    /// An operand does not satisfy the precondition of the operation.
    Inadmissible {
        /// The operation.
        operation: Operation,
        /// The operand.
        operand: Box<Layout>,
        /// What is wrong with it.
        defect: Defect,
    },
    /// The closed form does not decide whether `outer o inner` is a layout, and enumerating it is over the budget.
    Undecided {
        /// What is applied last, and the inner layout.
        operands: Box<(Outer, Layout)>,
        /// The greatest number of indices that are enumerated.
        budget: i64,
    },
    /// Nesting is deeper than `limit`.
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// More than `limit` of something.
    TooLarge {
        /// Of what.
        what: Counted,
        /// The limit.
        limit: usize,
    },
    /// There is no mode of this number.
    NoSuchMode {
        /// The number asked for, from 0.
        mode: usize,
        /// How many modes there are.
        rank: usize,
    },
}

impl Error {
    /// The kind, to match on.
    pub fn error_kind(&self) -> ErrorKind {
        match self {
            Self::Parse(error) => error.kind,
            Self::Overflow { .. } => ErrorKind::Overflow,
            Self::BadExtent { .. } => ErrorKind::BadExtent,
            Self::NotCongruent { .. } => ErrorKind::NotCongruent,
            Self::OutOfDomain { .. } => ErrorKind::OutOfDomain,
            Self::NotRepresentable { .. } => ErrorKind::NotRepresentable,
            Self::Inadmissible { .. } => ErrorKind::Inadmissible,
            Self::Undecided { .. } => ErrorKind::Undecided,
            Self::TooDeep { .. } => ErrorKind::TooDeep,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::NoSuchMode { .. } => ErrorKind::NoSuchMode,
        }
    }

    /// The kind in `snake_case`.
    pub fn kind(&self) -> &'static str {
        self.error_kind().as_str()
    }

    /// The sentence, followed by the input line and a caret where the error is about a place in a text.
    pub fn render(&self) -> String {
        match self {
            Self::Parse(error) => format!("{error}\n{}", error.caret()),
            Self::Overflow { .. }
            | Self::BadExtent { .. }
            | Self::NotCongruent { .. }
            | Self::OutOfDomain { .. }
            | Self::NotRepresentable { .. }
            | Self::Inadmissible { .. }
            | Self::Undecided { .. }
            | Self::TooDeep { .. }
            | Self::TooLarge { .. }
            | Self::NoSuchMode { .. } => self.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse(error) => error.fmt(f),
            Self::Overflow { quantity, left, right } => {
                write!(f, "{quantity} does not fit in 64 bits: it takes {left} and {right} together")
            }
            Self::BadExtent { extent } => write!(f, "an extent must be at least 1, and {extent} is not"),
            Self::NotCongruent { shape, stride } => {
                write!(f, "the shape {shape} and the stride {stride} are not nested alike")
            }
            Self::OutOfDomain { operation, value, size } => {
                write!(f, "the {operation} needs the value {value}, which is outside the domain [0, {size})")
            }
            Self::NotRepresentable { operands, obstacle } => {
                write!(f, "{} o {} is not a layout: ", operands.0, operands.1)?;
                match obstacle {
                    Obstacle::Divisibility { leaf, extent, run } => write!(
                        f,
                        "leaf {leaf} of the inner layout crosses a boundary of the outer one after {run} steps, \
                         which does not divide {extent}"
                    ),
                    Obstacle::Carry { boundary, reach } => write!(
                        f,
                        "the leaves of the inner layout together reach {reach} within a mode of the outer one that \
                         ends at {boundary}, and carry over it"
                    ),
                    Obstacle::Enumeration { index } => {
                        write!(
                            f,
                            "the value at index {index} is not the sum of what its coordinates give alone"
                        )
                    }
                }
            }
            Self::Inadmissible { operation, operand, defect } => {
                write!(f, "{operand} has no {operation}: {defect}")
            }
            Self::Undecided { operands, budget } => write!(
                f,
                "whether {} o {} is a layout is not decided by the closed form, and takes more than {budget} \
                 evaluations",
                operands.0, operands.1
            ),
            Self::TooDeep { limit } => write!(f, "nesting is deeper than {limit}"),
            Self::TooLarge { what, limit } => write!(f, "there are more than {limit} {what}"),
            Self::NoSuchMode { mode, rank } => write!(f, "there is no mode {mode}, the rank is {rank}"),
        }
    }
}

impl std::error::Error for Error {}
