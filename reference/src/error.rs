//! Errors of running an op.

use core::fmt;

use reshard_ops::ErrorKind;
use reshard_program::schedule::RunError;

/// The reason why a call does not run, printed on one line with the offending values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The table rejects the call, or its arguments.
    Op(reshard_ops::Error),
    /// The reference does not implement the op.
    NotHere {
        /// Its name.
        name: String,
    },
    /// The numbers or the shards do not fit the call.
    Input {
        /// The reason, with the call.
        reason: String,
    },
}

impl Error {
    /// The machine-readable kind of the error, as one identifier.
    ///
    /// ```
    /// use reshard_ops::rules::{OpCall, OpTable};
    /// let e = reshard_reference::run::<f64>(&OpTable::standard(), &OpCall::new("softmx"), &[]).unwrap_err();
    /// assert_eq!(e.code(), "rule");
    /// ```
    #[doc(hidden)]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Op(e) => e.code(),
            Error::NotHere { .. } => "unsupported",
            Error::Input { .. } => "input",
        }
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Op(e) => e.kind(),
            Error::NotHere { .. } => ErrorKind::Unsupported,
            Error::Input { .. } => ErrorKind::InvalidInput,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Op(e) => e.fmt(f),
            Error::NotHere { name } => {
                write!(
                    f,
                    "the reference does not implement `{name}`; write it as a composite of ops that it implements"
                )
            }
            Error::Input { reason } => f.write_str(reason),
        }
    }
}

impl core::error::Error for Error {}

impl From<reshard_ops::Error> for Error {
    fn from(e: reshard_ops::Error) -> Error {
        Error::Op(e)
    }
}

impl From<reshard_program::Error> for Error {
    fn from(e: reshard_program::Error) -> Error {
        match e {
            reshard_program::Error::Ops { at: None, error } => Error::Op(error),
            e @ (reshard_program::Error::Ops { .. }
            | reshard_program::Error::Parse { .. }
            | reshard_program::Error::AtLine { .. }
            | reshard_program::Error::Graph { .. }
            | reshard_program::Error::NeedsRedistribute { .. }
            | reshard_program::Error::Schedule { .. }
            | reshard_program::Error::Memory { .. }
            | reshard_program::Error::NoGradient { .. }
            | _) => Error::Input { reason: e.to_string() },
        }
    }
}

impl From<reshard_collectives::Error> for Error {
    fn from(e: reshard_collectives::Error) -> Error {
        Error::Input { reason: e.to_string() }
    }
}

impl<X: Into<Error>> From<RunError<Error, X>> for Error {
    fn from(e: RunError<Error, X>) -> Error {
        match e {
            RunError::Kernel(e) => e,
            RunError::Exchange(e) => e.into(),
        }
    }
}

impl From<reshard_sharding::Error> for Error {
    fn from(e: reshard_sharding::Error) -> Error {
        Error::Op(e.into())
    }
}
