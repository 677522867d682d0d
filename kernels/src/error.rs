//! Errors of copies, reductions and draws, with the offending values.

use std::fmt;

use reshard_layout::{ErrorKind, Excerpt};

use crate::DType;

/// One of the two buffers of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopySide {
    /// The buffer that is read.
    Source,
    /// The buffer that is written.
    Target,
}

impl CopySide {
    /// This side's part of a (source, target) pair.
    #[doc(hidden)]
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

/// The reason why a copy, a reduction or a draw is invalid; displays as one line that names the values.
///
/// ```
/// use reshard_kernels::DType;
/// let error = "f33".parse::<DType>().unwrap_err();
/// assert_eq!(error.code(), "dtype");
/// assert!(error.to_string().starts_with("unknown dtype `f33`; expected one of bool, f4, "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The text is not the name of a dtype.
    UnknownDType {
        /// The text as given.
        text: String,
    },
    /// The elements of this dtype are smaller than a byte, so one element cannot be copied alone.
    SubByte {
        /// The dtype.
        dtype: DType,
    },
    /// The dtype has no arithmetic of this kind.
    NoArithmetic {
        /// The dtype.
        dtype: DType,
        /// The name of the operation: `sum`, `avg`, ...
        op: String,
    },
    /// An element of zero bytes.
    ZeroItem,
    /// Two layouts that must have the same size differ in size.
    SizeMismatch {
        /// Size of the target's layout.
        target: usize,
        /// Size of the source's layout.
        source: usize,
    },
    /// The loops reach outside of the buffer.
    OutOfBounds {
        /// The buffer.
        side: CopySide,
        /// First byte that is touched, or would be.
        first: i64,
        /// One past the last byte that is touched.
        end: i64,
        /// Length of the buffer in bytes; `None` if no length would suffice.
        length: Option<usize>,
    },
    /// Two iterations write the same element, so that the result would depend on their order.
    Overlap {
        /// The loops as `extent:target_stride`, outermost first.
        loops: String,
    },
    /// A number does not fit 64 bits.
    Overflow {
        /// The quantity that overflowed.
        what: &'static str,
    },
    /// The divisor is zero.
    ZeroDivisor,
    /// The text is not the name of a draw.
    UnknownDraw {
        /// The text as given.
        text: String,
    },
    /// The text is not a key.
    UnknownKey {
        /// The text as given.
        text: String,
    },
    /// The text is not the name of a generator.
    UnknownGenerator {
        /// The text as given.
        text: String,
    },
    /// The dtype does not support the draw.
    NoDraw {
        /// The dtype.
        dtype: DType,
        /// The draw.
        draw: String,
        /// The dtypes that support it.
        fits: &'static str,
    },
    /// The parameters of a draw are invalid.
    Draw {
        /// The draw.
        draw: String,
        /// The reason.
        reason: String,
    },
    /// The element indices of a tensor exceed 64 bits.
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
    /// The target is longer or shorter than the drawn elements.
    WrongLength {
        /// The number of drawn elements.
        elements: u128,
        /// The bytes of all of them.
        bytes: u128,
        /// The bytes of the target.
        length: usize,
    },
}

impl Error {
    /// Returns one stable word for the kind of error.
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

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::UnknownDType { .. }
            | Error::UnknownDraw { .. }
            | Error::UnknownKey { .. }
            | Error::UnknownGenerator { .. } => ErrorKind::Parse,
            Error::SubByte { .. } | Error::NoDraw { .. } | Error::NoArithmetic { .. } => {
                ErrorKind::Unsupported
            }
            Error::ZeroItem
            | Error::SizeMismatch { .. }
            | Error::OutOfBounds { .. }
            | Error::Overlap { .. }
            | Error::Overflow { .. }
            | Error::ZeroDivisor
            | Error::Draw { .. }
            | Error::TooManyElements { .. }
            | Error::OutsideTensor { .. }
            | Error::WrongLength { .. } => ErrorKind::InvalidInput,
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
                    "unknown dtype `{text}`; expected one of {known}, or a NumPy or PyTorch name such as float32"
                )
            }
            Error::SubByte { dtype } => {
                write!(
                    f,
                    "{dtype} has {} bits per element; elements smaller than a byte cannot be copied",
                    dtype.bits()
                )
            }
            Error::NoArithmetic { dtype, op } => write!(f, "{op} is not defined for {dtype}"),
            Error::ZeroItem => f.write_str("an element has 0 bytes"),
            Error::SizeMismatch { target, source } => {
                write!(f, "the target's layout has {target} elements and the source's {source}")
            }
            Error::OutOfBounds { side, first, end, length: Some(length) } => {
                write!(f, "the {side} is accessed from byte {first} to byte {end} but has {length} bytes")
            }
            Error::OutOfBounds { side, first, end, length: None } => {
                write!(f, "the {side} is accessed from byte {first} to byte {end}, before its start")
            }
            Error::Overlap { loops } => {
                write!(f, "loops {loops} write some element of the target more than once")
            }
            Error::Overflow { what } => write!(f, "{what} does not fit 64 bits"),
            Error::ZeroDivisor => f.write_str("division by 0"),
            Error::UnknownDraw { text } => write!(
                f,
                "unknown distribution `{}`; expected one of: bits, uniform(0,1), normal(0,1), truncated_normal(-2,2), \
                 bernoulli(0.5), randint(0,2), exponential, gumbel",
                Excerpt::of(text)
            ),
            Error::UnknownKey { text } => write!(
                f,
                "invalid key `{}`; expected a generator and two hexadecimal words, such as threefry2x32:00000000,0000002a",
                Excerpt::of(text)
            ),
            Error::UnknownGenerator { text } => {
                write!(f, "unknown generator `{}`; expected threefry or philox", Excerpt::of(text))
            }
            Error::NoDraw { dtype, draw, fits } => {
                write!(f, "cannot draw {draw} as {dtype}; supported dtypes: {fits}")
            }
            Error::Draw { draw, reason } => write!(f, "invalid distribution {draw}: {reason}"),
            Error::TooManyElements { shape } => {
                write!(
                    f,
                    "a tensor of shape {shape:?} has more than 2^64 elements, the limit of 64-bit indices"
                )
            }
            Error::OutsideTensor { run, numel } => {
                write!(f, "the indices {run} are outside a tensor of {numel} elements")
            }
            Error::WrongLength { elements, bytes, length } => {
                write!(f, "{elements} elements have {bytes} bytes, but the target has {length}")
            }
        }
    }
}

impl std::error::Error for Error {}
