//! What can be wrong with a program: one sentence with the values, and a kind for machines.

use core::fmt;

/// Why a program cannot be.
///
/// `Display` is one sentence with the offending values; [`Error::kind`] is the word that machines read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An error of an op, a sharding or a plan underneath, and the value that it is about, if it is about one.
    Ops {
        /// The value or statement.
        at: Option<String>,
        /// What is wrong with it.
        error: reshard_ops::Error,
    },
    /// A text that is no program.
    Parse {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A graph that cannot be.
    Graph {
        /// The reason, with the values.
        reason: String,
    },
    /// An op that takes its operands only after a move that is not written.
    NeedsRedistribute {
        /// Whether values fit, and only gradients do not.
        gradient_only: bool,
        /// What stands in the way.
        reason: String,
        /// What to write, cheapest first.
        fixes: String,
    },
    /// A schedule that cannot be.
    Schedule {
        /// The reason, with the values.
        reason: String,
    },
    /// What a region gives back is not what it is claimed to be.
    OutSpecMismatch {
        /// The reason, with what to write.
        reason: String,
    },
    /// What is the same on ranks by its type and was not, when a program ran.
    Replicas {
        /// The reason, with the value, the axis and the ranks.
        reason: String,
    },
    /// A gradient that is asked of what has none.
    NoGradient {
        /// The reason, with the way out.
        reason: String,
    },
}

impl Error {
    /// The kind of the error in one word, as machines read it.
    ///
    /// ```
    /// let e = "mesh tp=2\ny = relu(x)".parse::<reshard_program::Graph>().unwrap_err();
    /// assert_eq!((e.kind(), e.to_string().as_str()), ("parse", "line 2: there is no value x"));
    /// ```
    pub fn code(&self) -> &'static str {
        match self {
            Error::Ops { error, .. } => error.code(),
            Error::Parse { .. } => "parse",
            Error::Graph { .. } => "program",
            Error::Schedule { .. } => "schedule",
            Error::NeedsRedistribute { gradient_only: false, .. } => "needs_redistribute",
            Error::NeedsRedistribute { gradient_only: true, .. } => "needs_gradient_redistribute",
            Error::OutSpecMismatch { .. } => "false_claim",
            Error::Replicas { .. } => "replicas",
            Error::NoGradient { .. } => "no_gradient",
        }
    }

    /// The same, said of a value or a statement.
    pub(crate) fn of(at: &str, error: impl Into<reshard_ops::Error>) -> Error {
        Error::Ops { at: Some(at.to_owned()), error: error.into() }
    }

    /// The same, said of a line of a text.
    pub(crate) fn on(self, line: usize) -> Error {
        match self {
            Error::Parse { .. } => self,
            other @ (Error::Ops { .. }
            | Error::Graph { .. }
            | Error::Schedule { .. }
            | Error::NeedsRedistribute { .. }
            | Error::OutSpecMismatch { .. }
            | Error::Replicas { .. }
            | Error::NoGradient { .. }) => Error::Parse { line, reason: other.to_string() },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Ops { at: Some(at), error } => write!(f, "{at}: {error}"),
            Error::Ops { at: None, error } => error.fmt(f),
            Error::Parse { line, reason } => write!(f, "line {line}: {reason}"),
            Error::Graph { reason }
            | Error::Schedule { reason }
            | Error::OutSpecMismatch { reason }
            | Error::Replicas { reason }
            | Error::NoGradient { reason } => f.write_str(reason),
            Error::NeedsRedistribute { reason, fixes, .. } => write!(f, "{reason}; {fixes}"),
        }
    }
}

impl core::error::Error for Error {}

impl From<reshard_ops::Error> for Error {
    fn from(error: reshard_ops::Error) -> Error {
        Error::Ops { at: None, error }
    }
}

impl From<reshard_sharding::Error> for Error {
    fn from(error: reshard_sharding::Error) -> Error {
        Error::Ops { at: None, error: error.into() }
    }
}

impl From<reshard_planner::Error> for Error {
    fn from(error: reshard_planner::Error) -> Error {
        Error::Ops { at: None, error: error.into() }
    }
}
