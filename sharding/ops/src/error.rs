//! Errors of a rule, an op or its propagation: values with operands, printed on one line.

use core::fmt;

use reshard_layout::ErrorKind;

/// An invalid rule, or operands that an op does not take.
///
/// `Display` is one line with the offending values; [`Error::code`] is the machine-readable identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An error of a mesh or a sharding underneath.
    Sharding(reshard_sharding::Error),
    /// An error of the planner.
    Planner(reshard_planner::Error),
    /// An invalid rule, or one that does not fit its operands.
    Rule {
        /// The reason, with the values.
        reason: String,
    },
    /// An op that takes its inputs only after a redistribution, where implicit ones are not allowed.
    NeedsRedistribution {
        /// The op, its operands, and the reason.
        reason: String,
        /// The redistributions that would help, cheapest first.
        fixes: String,
    },
    /// A strategy that no sharding can express.
    Unsupported {
        /// The reason, with a suggestion.
        reason: String,
    },
}

impl Error {
    /// The machine-readable kind of the error, as one identifier.
    ///
    /// ```
    /// let e = "ij->ij {j: sum}".parse::<reshard_ops::rules::Rule>().unwrap_err();
    /// assert_eq!(e.code(), "rule");
    /// ```
    pub fn code(&self) -> &'static str {
        match self {
            Error::Sharding(e) => e.code(),
            Error::Planner(e) => e.code(),
            Error::Rule { .. } => "rule",
            Error::NeedsRedistribution { .. } => "needs_redistribute",
            Error::Unsupported { .. } => "unsupported",
        }
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Sharding(e) => e.kind(),
            Error::Planner(e) => e.kind(),
            Error::Rule { .. } => ErrorKind::InvalidInput,
            Error::NeedsRedistribution { .. } => ErrorKind::NeedsRedistribution,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
        }
    }

    pub(crate) fn overflow(what: impl Into<String>) -> Error {
        Error::Sharding(reshard_sharding::Error::Overflow { what: what.into() })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Sharding(e) => e.fmt(f),
            Error::Planner(e) => e.fmt(f),
            Error::Rule { reason } | Error::Unsupported { reason } => f.write_str(reason),
            Error::NeedsRedistribution { reason, fixes } => write!(f, "{reason}; {fixes}"),
        }
    }
}

impl core::error::Error for Error {}

impl From<reshard_sharding::Error> for Error {
    fn from(e: reshard_sharding::Error) -> Error {
        Error::Sharding(e)
    }
}

impl From<reshard_planner::Error> for Error {
    fn from(e: reshard_planner::Error) -> Error {
        if let reshard_planner::Error::Sharding(e) = e { Error::Sharding(e) } else { Error::Planner(e) }
    }
}

impl From<reshard_layout::Error> for Error {
    fn from(e: reshard_layout::Error) -> Error {
        Error::Sharding(e.into())
    }
}
