//! Errors of programs: a one-line message with the values, and a kind for machines.

use core::fmt;

use reshard_sharding::ErrorKind;

/// The reason why a program is invalid.
///
/// `Display` is a one-line message with the offending values; [`Error::code`] is for machines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An error of an op, a sharding or a plan underneath, with the value concerned, if any.
    Ops {
        /// The value or statement.
        at: Option<String>,
        /// The underlying error.
        error: reshard_ops::Error,
    },
    /// A text that cannot be parsed as a program.
    Parse {
        /// The reason.
        reason: String,
    },
    /// An error of a line of a text; its kind is that of the error.
    AtLine {
        /// The line, counted from 1.
        line: usize,
        /// The error.
        error: Box<Error>,
    },
    /// An error that axes of one rank hide; its kind is that of the error.
    ///
    /// The program is wrong for more ranks along them, and they are typed like any other axes.
    OneRank {
        /// Sizes of these axes for which the program is invalid, such as `dp=2`.
        sizes: String,
        /// The error with these sizes.
        error: Box<Error>,
    },
    /// An invalid graph.
    Graph {
        /// The reason, with the values.
        reason: String,
    },
    /// An op that needs an input in another type, by a redistribution that the program does not state.
    NeedsRedistribute {
        /// `true` if the values fit, and only the gradients do not.
        gradient_only: bool,
        /// The mismatch, with the values.
        reason: String,
        /// The lines to write, the cheapest first.
        fixes: String,
    },
    /// An invalid schedule.
    Schedule {
        /// The reason, with the values.
        reason: String,
    },
    /// A program that needs more memory per rank than there is.
    Memory {
        /// The least bytes per rank that were found to be enough.
        needed: u64,
        /// The reason, with the limit and the bytes that are needed.
        reason: String,
    },
    /// A result of a shard map that does not match its declared output type.
    OutSpecMismatch {
        /// The reason, with what to write.
        reason: String,
    },
    /// Replicas that differed between ranks when a program ran.
    Replicas {
        /// The reason, with the value, the axis and the ranks.
        reason: String,
    },
    /// A gradient requested of a value that has none.
    NoGradient {
        /// The reason, with a fix.
        reason: String,
    },
}

impl Error {
    /// Returns the kind of the error as one identifier, for machines.
    ///
    /// ```
    /// let e = "mesh tp=2\ny = relu(x)".parse::<reshard_program::Graph>().unwrap_err();
    /// assert_eq!((e.code(), e.to_string().as_str()), ("parse", "line 2: there is no value `x`"));
    /// let e = "mesh tp=2\nx: f32[4] R\nlocal tp\nin x: R\nout y: I = x\nend".parse::<reshard_program::Graph>();
    /// assert_eq!(e.unwrap_err().code(), "out_spec_mismatch");
    /// ```
    pub fn code(&self) -> &'static str {
        match self {
            Error::Ops { error, .. } => error.code(),
            Error::Parse { .. } => "parse",
            Error::AtLine { error, .. } | Error::OneRank { error, .. } => error.code(),
            Error::Graph { .. } => "program",
            Error::Schedule { .. } => "schedule",
            Error::Memory { .. } => "memory",
            Error::NeedsRedistribute { gradient_only: false, .. } => "needs_redistribute",
            Error::NeedsRedistribute { gradient_only: true, .. } => "needs_gradient_redistribute",
            Error::OutSpecMismatch { .. } => "out_spec_mismatch",
            Error::Replicas { .. } => "replicas",
            Error::NoGradient { .. } => "no_gradient",
        }
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Ops { error, .. } => error.kind(),
            Error::Parse { .. } => ErrorKind::Parse,
            Error::AtLine { error, .. } | Error::OneRank { error, .. } => error.kind(),
            Error::NeedsRedistribute { .. } => ErrorKind::NeedsRedistribution,
            Error::Replicas { .. } => ErrorKind::Verification,
            Error::NoGradient { .. } => ErrorKind::Unsupported,
            Error::Graph { .. }
            | Error::Schedule { .. }
            | Error::Memory { .. }
            | Error::OutSpecMismatch { .. } => ErrorKind::InvalidInput,
        }
    }

    /// Wraps an error, with the value or statement concerned.
    pub(crate) fn of(at: &str, error: impl Into<reshard_ops::Error>) -> Error {
        Error::Ops { at: Some(at.to_owned()), error: error.into() }
    }

    /// Returns the error with the line of a text.
    pub(crate) fn on(self, line: usize) -> Error {
        Error::AtLine { line, error: Box::new(self) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Ops { at: Some(at), error } => write!(f, "{at}: {error}"),
            Error::Ops { at: None, error } => error.fmt(f),
            Error::AtLine { line, error } => write!(f, "line {line}: {error}"),
            Error::OneRank { sizes, error } => {
                write!(
                    f,
                    "axes of one rank are typed like others, and with {sizes} the program is wrong: {error}"
                )
            }
            Error::Parse { reason }
            | Error::Graph { reason }
            | Error::Schedule { reason }
            | Error::Memory { reason, .. }
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
