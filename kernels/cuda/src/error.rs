//! What can go wrong on the way to a device.

use std::fmt;

/// Why a kernel was not selected, compiled or launched; displays as one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The nest or the arithmetic is refused as on the host.
    Kernels(reshard_kernels::Error),
    /// A buffer starts where its elements may not.
    Alignment {
        /// What offsets, strides and addresses are multiples of.
        bytes: usize,
        /// The bytes of an element.
        item: usize,
    },
    /// A batch with more blocks than a grid has.
    TooManyBlocks {
        /// How many copies came so far.
        jobs: usize,
    },
    /// A library of CUDA is not there or does not work.
    Library {
        /// Which one, what was looked for and where.
        reason: String,
    },
    /// A kernel did not compile.
    Compile {
        /// The compiler's log.
        log: String,
    },
    /// The driver refused a call.
    Driver {
        /// The call.
        call: &'static str,
        /// What it said.
        reason: String,
    },
}

impl Error {
    /// A short name for the kind of error, stable across versions.
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kernels(e) => e.fmt(f),
            Error::Alignment { bytes, item } => {
                write!(
                    f,
                    "elements of {item} bytes start at multiples of {bytes}: align the buffers to {item} bytes"
                )
            }
            Error::TooManyBlocks { jobs } => {
                write!(
                    f,
                    "{jobs} copies need more than 2^31 blocks in one launch: launch them in several batches"
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
