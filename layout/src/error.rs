//! The errors of layouts, as values with their operands.

use std::fmt;

mod code;
mod excerpt;
mod parse;
mod reason;

pub use code::{Counted, ErrorCode, Operation, Quantity};
pub use excerpt::Excerpt;
pub use parse::ParseError;
pub use reason::{Defect, Obstacle};

use crate::algebra::Outer;
use crate::{ErrorKind, IntTuple, Layout};

/// Why an operation on layouts has no answer, with its operands.
///
/// `Display` is one line; [`render`](Self::render) adds the input line and a caret where there is one.
///
/// ```
/// use reshard_layout::Layout;
///
/// let a: Layout = "(4,3):(1,10)".parse()?;
/// let error = a.compose(&"6:1".parse()?).unwrap_err();
/// assert_eq!(error.code(), "not_representable");
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
    /// A value is outside `[0, size)`.
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
        /// The function that is applied last, and the inner layout.
        operands: Box<(Outer, Layout)>,
        /// Why.
        obstacle: Obstacle,
    },
    /// Two shapes have no common refinement.
    NotNesting {
        /// One shape.
        left: Box<IntTuple>,
        /// The other.
        right: Box<IntTuple>,
        /// The number of indices below the boundary of one that does not divide a mode of the other.
        boundary: i64,
    },
    /// An operand does not satisfy the precondition of the operation.
    Inadmissible {
        /// The operation.
        operation: Operation,
        /// The operand.
        operand: Box<Layout>,
        /// The defect of the operand.
        defect: Defect,
    },
    /// The closed form does not decide `outer o inner`, and enumerating it is over the budget.
    Undecided {
        /// The function that is applied last, and the inner layout.
        operands: Box<(Outer, Layout)>,
        /// The greatest number of indices that are enumerated.
        budget: i64,
    },
    /// An operation on a layout with axes has no answer.
    Along {
        /// The code.
        code: ErrorCode,
        /// Why, with the layouts as they were given.
        message: Box<str>,
    },
    /// Nesting is deeper than `limit`.
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// More than `limit` of something.
    TooLarge {
        /// The kind of objects.
        what: Counted,
        /// The limit.
        limit: usize,
    },
    /// A range of modes that is empty, or ends beyond the rank.
    NoSuchRange {
        /// The start of the range.
        begin: usize,
        /// The end of the range, the first mode after it.
        end: usize,
        /// The number of modes.
        rank: usize,
    },
    /// There are more modes than requested.
    TooManyModes {
        /// The requested number of modes.
        asked: usize,
        /// The number of modes.
        rank: usize,
    },
    /// Components that are not one for each mode: another number of them, or a tuple for a mode that is none.
    NotOneEach {
        /// The number of components.
        given: usize,
        /// The number of modes.
        rank: usize,
    },
    /// There is no mode of this number.
    NoSuchMode {
        /// The requested mode, from 0.
        mode: usize,
        /// The number of modes.
        rank: usize,
    },
}

impl Error {
    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.error_code().kind()
    }

    /// Returns the code, finer than the kind.
    pub(crate) fn error_code(&self) -> ErrorCode {
        match self {
            Self::Parse(error) => error.code,
            Self::Overflow { .. } => ErrorCode::Overflow,
            Self::BadExtent { .. } => ErrorCode::BadExtent,
            Self::NotCongruent { .. } => ErrorCode::NotCongruent,
            Self::OutOfDomain { .. } => ErrorCode::OutOfDomain,
            Self::NotRepresentable { .. } => ErrorCode::NotRepresentable,
            Self::NotNesting { .. } => ErrorCode::NotNesting,
            Self::Inadmissible { .. } => ErrorCode::Inadmissible,
            Self::Undecided { .. } => ErrorCode::Undecided,
            Self::Along { code, .. } => *code,
            Self::TooDeep { .. } => ErrorCode::TooDeep,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::NoSuchRange { .. }
            | Self::TooManyModes { .. }
            | Self::NotOneEach { .. }
            | Self::NoSuchMode { .. } => ErrorCode::NoSuchMode,
        }
    }

    /// Returns the code in `snake_case`, such as `bad_extent`.
    pub fn code(&self) -> &'static str {
        self.error_code().as_str()
    }

    /// Returns the message, followed by the input line and a caret where the error has a position in a text.
    pub fn render(&self) -> String {
        match self {
            Self::Parse(error) => format!("{error}\n{}", error.caret()),
            Self::Overflow { .. }
            | Self::BadExtent { .. }
            | Self::NotCongruent { .. }
            | Self::OutOfDomain { .. }
            | Self::NotRepresentable { .. }
            | Self::NotNesting { .. }
            | Self::Inadmissible { .. }
            | Self::Undecided { .. }
            | Self::Along { .. }
            | Self::TooDeep { .. }
            | Self::TooLarge { .. }
            | Self::NoSuchRange { .. }
            | Self::TooManyModes { .. }
            | Self::NotOneEach { .. }
            | Self::NoSuchMode { .. } => self.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse(error) => error.fmt(f),
            Self::Overflow { quantity, left, right } => {
                write!(f, "{quantity} computed from {left} and {right} does not fit in 64 bits")
            }
            Self::BadExtent { extent } => write!(f, "an extent must be at least 1, not {extent}"),
            Self::NotCongruent { shape, stride } => {
                write!(f, "the shape {shape} and the stride {stride} are nested differently")
            }
            Self::OutOfDomain { operation, value, size } => {
                write!(
                    f,
                    "the {operation} needs the value {value}, which is outside the domain [0, {size})"
                )?;
                // CuTe continues beyond the end; no convention does before the beginning.
                match operation {
                    Operation::Compose if *value >= *size => f.write_str(
                        "; `composition_extended` extends the last leaf of the outer layout beyond it",
                    ),
                    Operation::Compose
                    | Operation::Evaluate
                    | Operation::Complement
                    | Operation::RightInverse
                    | Operation::LeftInverse
                    | Operation::Recast
                    | Operation::TileToShape
                    | Operation::Zip
                    | Operation::ThreadValues => Ok(()),
                }
            }
            Self::NotRepresentable { operands, obstacle: Obstacle::Parts { index } } => write!(
                f,
                "the modes of {} are not additive under {}: at index {index} the value of their sum is not the sum of \
                 their values",
                operands.1, operands.0
            ),
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
                        "the leaves of the inner layout add up to {reach} within a mode of the outer one that ends at \
                         {boundary}, and overflow it"
                    ),
                    Obstacle::Enumeration { index } | Obstacle::Parts { index } => {
                        write!(
                            f,
                            "the value at index {index} is not the sum of the values of its separate coordinates"
                        )
                    }
                }
            }
            Self::NotNesting { left, right, boundary } => match (left.product(), right.product()) {
                (Ok(of_left), Ok(of_right)) if of_left != of_right => write!(
                    f,
                    "the shapes {left} and {right} do not nest: their sizes differ, {of_left} and {of_right}"
                ),
                (_, _) => write!(
                    f,
                    "the shapes {left} and {right} do not nest: after {boundary} indices a mode of one ends inside a \
                     mode of the other that does not divide there"
                ),
            },
            Self::Inadmissible { operation, operand, defect } => {
                write!(f, "{operand} has no {operation}: {defect}")
            }
            Self::Undecided { operands, budget } => write!(
                f,
                "the closed form does not decide whether {} o {} is a layout, and an enumeration takes more than \
                 {budget} evaluations",
                operands.0, operands.1
            ),
            Self::Along { message, .. } => f.write_str(message),
            Self::TooDeep { limit } => write!(f, "nesting is deeper than {limit}"),
            Self::TooLarge { what, limit } => write!(f, "there are more than {limit} {what}"),
            Self::NoSuchRange { begin, end, rank } => write!(
                f,
                "invalid range of modes, {begin} up to {end} (exclusive): the rank is {rank}, and a range must not be \
                 empty"
            ),
            Self::TooManyModes { asked, rank } => {
                write!(f, "cannot pad to {asked} modes: there are already {rank}")
            }
            Self::NotOneEach { given, rank } if given == rank => {
                f.write_str("a tuple is given for a mode that is not a tuple; give an integer")
            }
            Self::NotOneEach { given, rank } => {
                write!(f, "{given} components are given for {rank} modes; give one per mode")
            }
            Self::NoSuchMode { mode, rank } => write!(f, "there is no mode {mode}: the rank is {rank}"),
        }
    }
}

impl std::error::Error for Error {}
