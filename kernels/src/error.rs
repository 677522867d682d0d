//! What can be wrong with a request to copy or combine, as values with the offending numbers.

use std::fmt;

use reshard_layout::Excerpt;

use crate::DType;

/// Which of the two buffers of a copy is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopySide {
    /// The buffer that is read.
    Source,
    /// The buffer that is written.
    Target,
}

impl CopySide {
    /// This side's part of a (source, target) pair.
    #[inline]
    pub fn of<T>(self, (source, target): (T, T)) -> T {
        match self {
            CopySide::Source => source,
            CopySide::Target => target,
        }
    }
}

impl fmt::Display for CopySide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CopySide::Source => "source",
            CopySide::Target => "target",
        })
    }
}

/// Why a copy or a reduction is refused; displays as one sentence that names the values.
///
/// ```
/// use reshard_kernels::DType;
/// let error = "f33".parse::<DType>().unwrap_err();
/// assert_eq!(error.kind(), "dtype");
/// assert!(error.to_string().starts_with("unknown dtype 'f33': expected one of bool, f4, "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The text names no dtype.
    UnknownDType {
        /// The text as given.
        text: String,
    },
    /// The elements of this dtype are smaller than a byte, so that one of them cannot be moved alone.
    SubByte {
        /// The dtype.
        dtype: DType,
    },
    /// The dtype has no arithmetic of this kind.
    NoArithmetic {
        /// The dtype.
        dtype: DType,
        /// The operation, as a word: `sum`, `avg`, ...
        op: String,
    },
    /// An element of zero bytes.
    ZeroItem,
    /// Two layouts that should have the same size have not.
    SizeMismatch {
        /// Size of the target's layout.
        target: usize,
        /// Size of the source's layout.
        source: usize,
    },
    /// The loops reach outside of the buffer.
    OutOfBounds {
        /// Which buffer.
        side: CopySide,
        /// First byte that is touched, or would be.
        first: i64,
        /// One past the last byte that is touched.
        end: i64,
        /// Length of the buffer in bytes; `None` when no buffer of any length would do.
        length: Option<usize>,
    },
    /// Two iterations write the same element, so that the result would depend on their order.
    Overlap {
        /// The loops as `extent:target_stride`, outermost first.
        loops: String,
    },
    /// A number does not fit 64 bits.
    Overflow {
        /// What was being computed.
        what: &'static str,
    },
    /// A division by zero was asked for.
    ZeroDivisor,
    /// The text names no draw.
    UnknownDraw {
        /// The text as given.
        text: String,
    },
    /// The text is no key.
    UnknownKey {
        /// The text as given.
        text: String,
    },
    /// The text names no generator.
    UnknownGenerator {
        /// The text as given.
        text: String,
    },
    /// The draw is not of this dtype.
    NoDraw {
        /// The dtype.
        dtype: DType,
        /// The draw.
        draw: String,
        /// Of which dtypes it is.
        fits: &'static str,
    },
    /// The numbers of a draw leave nothing to draw from.
    Draw {
        /// The draw.
        draw: String,
        /// What is wrong with them.
        reason: String,
    },
    /// The elements of a tensor have no numbers of 64 bits.
    TooManyElements {
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// A run of indices leaves the tensor.
    OutsideTensor {
        /// The run as `start + len x stride`.
        run: String,
        /// The number of elements of the tensor.
        numel: u128,
    },
    /// The target has room for more or fewer elements than are drawn.
    WrongLength {
        /// How many are drawn.
        elements: u128,
        /// The bytes of all of them.
        bytes: u128,
        /// The bytes of the target.
        length: usize,
    },
}

impl Error {
    /// One stable word for the kind of error.
    pub fn code(&self) -> &'static str {
        match self {
            Error::UnknownDType { .. } | Error::SubByte { .. } | Error::NoDraw { .. } => "dtype",
            Error::UnknownDraw { .. } | Error::UnknownKey { .. } | Error::UnknownGenerator { .. } => "parse",
            Error::Draw { .. } => "draw",
            Error::TooManyElements { .. } => "too_large",
            Error::NoArithmetic { .. } | Error::ZeroDivisor => "arithmetic",
            Error::ZeroItem | Error::SizeMismatch { .. } | Error::WrongLength { .. } => "size",
            Error::OutOfBounds { .. } | Error::OutsideTensor { .. } => "out_of_bounds",
            Error::Overlap { .. } => "overlap",
            Error::Overflow { .. } => "overflow",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownDType { text } => {
                let known = DType::ALL.map(DType::name).join(", ");
                write!(
                    f,
                    "unknown dtype '{text}': expected one of {known}, or its name in NumPy or PyTorch, such as float32"
                )
            }
            Error::SubByte { dtype } => {
                write!(
                    f,
                    "{dtype} has {} bits an element, and what is smaller than a byte is not moved",
                    dtype.bits()
                )
            }
            Error::NoArithmetic { dtype, op } => write!(f, "no {op} of {dtype}"),
            Error::ZeroItem => f.write_str("an element has 0 bytes"),
            Error::SizeMismatch { target, source } => {
                write!(f, "the target's layout has {target} elements and the source's {source}")
            }
            Error::OutOfBounds { side, first, end, length: Some(length) } => {
                write!(f, "the {side} is touched from byte {first} to byte {end} but has {length} bytes")
            }
            Error::OutOfBounds { side, first, end, length: None } => {
                write!(f, "the {side} is touched from byte {first} to byte {end}, before its start")
            }
            Error::Overlap { loops } => {
                write!(f, "loops {loops} write some element of the target more than once")
            }
            Error::Overflow { what } => write!(f, "{what} does not fit 64 bits"),
            Error::ZeroDivisor => f.write_str("division by 0"),
            Error::UnknownDraw { text } => write!(
                f,
                "`{}` is no draw: say bits, uniform(0,1), normal(0,1), truncated_normal(-2,2), bernoulli(0.5), randint(0,2), \
                 exponential or gumbel",
                Excerpt::of(text)
            ),
            Error::UnknownKey { text } => write!(
                f,
                "`{}` is no key: a generator and two words in hexadecimal, like threefry2x32:00000000,0000002a",
                Excerpt::of(text)
            ),
            Error::UnknownGenerator { text } => {
                write!(f, "`{}` is no generator: say threefry or philox", Excerpt::of(text))
            }
            Error::NoDraw { dtype, draw, fits } => write!(f, "no {draw} of {dtype}: it is of {fits}"),
            Error::Draw { draw, reason } => write!(f, "nothing to draw from by {draw}: {reason}"),
            Error::TooManyElements { shape } => {
                write!(f, "a tensor {shape:?} has more than 2^64 elements, and indices have 64 bits")
            }
            Error::OutsideTensor { run, numel } => {
                write!(f, "the indices {run} leave a tensor of {numel} elements")
            }
            Error::WrongLength { elements, bytes, length } => {
                write!(f, "{elements} elements have {bytes} bytes, and the target has {length}")
            }
        }
    }
}

impl std::error::Error for Error {}
