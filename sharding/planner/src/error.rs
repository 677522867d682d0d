//! Errors of a request to the planner: values with operands, printed as a message of one line.

use core::fmt;

use reshard_layout::ErrorKind;

/// The reason why there is no plan.
///
/// `Display` is one line with the offending values; [`Error::code`] is the identifier for machines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An error of a mesh or a sharding underneath.
    Sharding(reshard_sharding::Error),
    /// An element type that cannot be transferred alone, or not reduced.
    Kernel(reshard_kernels::Error),
    /// An invalid network.
    Topology {
        /// The reason, with the values.
        reason: String,
    },
    /// No plan stays within the requested memory.
    PeakTooSmall {
        /// The limit, in bytes.
        limit: u64,
        /// The least peak of any plan known.
        least: u64,
    },
    /// Two shardings that no plan can connect.
    Incompatible {
        /// The reason, with the values.
        reason: String,
    },
    /// A request that this planner does not take.
    Unsupported {
        /// The reason, and what to do.
        reason: String,
    },
    /// The caller stopped the request.
    Stopped,
}

impl Error {
    /// Returns the kind of the error as an identifier for machines.
    ///
    /// ```
    /// let e = "nodes:0x1/2".parse::<reshard_planner::Topology>().unwrap_err();
    /// assert_eq!(e.code(), "parse");
    /// ```
    pub fn code(&self) -> &'static str {
        match self {
            Error::Sharding(e) => e.code(),
            Error::Kernel(e) => e.code(),
            Error::Topology { .. } => "topology",
            Error::PeakTooSmall { .. } => "peak_too_small",
            Error::Incompatible { .. } => "incompatible",
            Error::Unsupported { .. } => "unsupported",
            Error::Stopped => "stopped",
        }
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Sharding(e) => e.kind(),
            Error::Kernel(e) => e.kind(),
            Error::PeakTooSmall { .. } => ErrorKind::MemoryLimit,
            Error::Topology { .. } | Error::Incompatible { .. } => ErrorKind::InvalidInput,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::Stopped => ErrorKind::Cancelled,
        }
    }

    /// Returns the error for an identifier that is not one of the known ones.
    pub(crate) fn unknown(what: &'static str, input: &str, expected: &str) -> Error {
        let (input, expected) = (input.to_owned(), expected.to_owned());
        Error::Sharding(reshard_sharding::Error::Parse { what, input, at: 0, expected })
    }

    pub(crate) fn overflow(what: impl Into<String>) -> Error {
        Error::Sharding(reshard_sharding::Error::Overflow { what: what.into() })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Sharding(e) => e.fmt(f),
            Error::Kernel(e) => e.fmt(f),
            Error::Topology { reason } | Error::Incompatible { reason } | Error::Unsupported { reason } => {
                f.write_str(reason)
            }
            Error::Stopped => f.write_str("stopped before a plan was found; plan again"),
            Error::PeakTooSmall { limit, least } => {
                write!(f, "no plan stays within {limit} bytes on every rank: the least peak is {least} bytes")
            }
        }
    }
}

impl core::error::Error for Error {}

impl From<reshard_sharding::Error> for Error {
    fn from(e: reshard_sharding::Error) -> Error {
        Error::Sharding(e)
    }
}

impl From<reshard_kernels::Error> for Error {
    fn from(e: reshard_kernels::Error) -> Error {
        Error::Kernel(e)
    }
}

impl From<reshard_layout::Error> for Error {
    fn from(e: reshard_layout::Error) -> Error {
        Error::Sharding(e.into())
    }
}
