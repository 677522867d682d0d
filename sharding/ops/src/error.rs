//! What can be wrong with a rule, an op or its propagation: values with operands, printed as one sentence.

use core::fmt;

/// Why a rule cannot be, or an op does not take its operands.
///
/// `Display` is one sentence with the offending values; [`Error::kind`] is the word that machines read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An error of a mesh or a sharding underneath.
    Sharding(reshard_sharding::Error),
    /// An error of the planner.
    Planner(reshard_planner::Error),
    /// A rule that cannot be, or does not fit the operands it is given.
    Rule {
        /// The reason, with the values.
        reason: String,
    },
    /// An op that takes its inputs only after a redistribution, where none may be implied.
    NeedsRedistribution {
        /// The op, its operands, and what stands in the way.
        reason: String,
        /// What to redistribute, cheapest first.
        fixes: String,
    },
    /// A strategy that no sharding can say.
    Unsupported {
        /// The reason, with the way out.
        reason: String,
    },
}

impl Error {
    /// The kind of the error in one word, as machines read it.
    ///
    /// ```
    /// let e = "ij->ij {j: sum}".parse::<reshard_ops::rules::Rule>().unwrap_err();
    /// assert_eq!(e.kind(), "rule");
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
