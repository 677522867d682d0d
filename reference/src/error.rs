//! Why an op does not run.

use core::fmt;

/// Why a call does not run: one sentence with the offending values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The table refuses the call, or its arguments.
    Op(reshard_ops::Error),
    /// The op is not here.
    NotHere {
        /// Its name.
        name: String,
    },
    /// The numbers or the shards are not those of the call.
    Input {
        /// The reason, with the call.
        reason: String,
    },
}

impl Error {
    /// The kind of the error in one word, as machines read it.
    ///
    /// ```
    /// use reshard_ops::rules::{Call, Table};
    /// let e = reshard_reference::run::<f64>(&Table::standard(), &Call::new("softmx"), &[]).unwrap_err();
    /// assert_eq!(e.kind(), "rule");
    /// ```
    pub fn code(&self) -> &'static str {
        match self {
            Error::Op(e) => e.code(),
            Error::NotHere { .. } => "unsupported",
            Error::Input { .. } => "input",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Op(e) => e.fmt(f),
            Error::NotHere { name } => {
                write!(f, "the reference has no op {name}: write it as a composite of ops that it has")
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
            | reshard_program::Error::Graph { .. }
            | reshard_program::Error::NeedsRedistribute { .. }
            | reshard_program::Error::Schedule { .. }
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

impl From<reshard_sharding::Error> for Error {
    fn from(e: reshard_sharding::Error) -> Error {
        Error::Op(e.into())
    }
}
