//! Errors of selecting, compiling and launching kernels.

use std::fmt;

use reshard_kernels::ErrorKind;

/// The reason why a kernel was not selected, compiled or launched; displays as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The nest or the arithmetic is invalid on the host too.
    Kernels(reshard_kernels::Error),
    /// A buffer has an address that is not aligned for its elements.
    Alignment {
        /// The common alignment of offsets, strides and addresses.
        bytes: usize,
        /// The bytes of an element.
        item: usize,
    },
    /// A batch with more blocks than a grid has.
    TooManyBlocks {
        /// The number of copies before the limit.
        jobs: usize,
    },
    /// A library of CUDA is missing or does not work.
    Library {
        /// The library, and the searched name and paths.
        reason: String,
    },
    /// A kernel did not compile.
    Compile {
        /// The compiler's log.
        log: String,
    },
    /// A call of the driver failed.
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's message.
        reason: String,
    },
}

impl Error {
    /// Returns a short name for the kind of error, stable across versions.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Kernels(e) => e.code(),
            Error::Alignment { .. } => "alignment",
            Error::TooManyBlocks { .. } => "too_many_blocks",
            Error::Library { .. } => "library",
            Error::Compile { .. } => "compile",
            Error::Driver { .. } => "driver",
        }
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Kernels(e) => e.kind(),
            Error::Alignment { .. } => ErrorKind::InvalidInput,
            Error::TooManyBlocks { .. } => ErrorKind::Unsupported,
            Error::Library { .. } | Error::Compile { .. } | Error::Driver { .. } => ErrorKind::Io,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kernels(e) => e.fmt(f),
            Error::Alignment { bytes, item } => {
                write!(
                    f,
                    "elements of {item} bytes start at multiples of {bytes} bytes; align the buffers to {item} bytes"
                )
            }
            Error::TooManyBlocks { jobs } => {
                write!(
                    f,
                    "{jobs} copies need more than 2^31 blocks in one launch; launch them in several batches"
                )
            }
            Error::Library { reason } => f.write_str(reason),
            Error::Compile { log } => write!(f, "a kernel did not compile: {log}"),
            Error::Driver { call, reason } => write!(f, "{call} failed: {reason}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<reshard_kernels::Error> for Error {
    fn from(e: reshard_kernels::Error) -> Self {
        Error::Kernels(e)
    }
}
