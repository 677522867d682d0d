//! The errors of this crate, each a one-line message.

use core::fmt;

/// The reason for which there is no result.
#[derive(Debug)]
pub enum Error {
    /// An op of candle failed.
    Candle(candle_core::Error),
    /// An exchange failed.
    Exchange(reshard_collectives::Error),
    /// A program or its schedule is invalid.
    Program(reshard_program::Error),
    /// A call lacks arguments that it needs.
    OpCall(reshard_ops::Error),
    /// A rank holds no such part of a tensor.
    Sharding(reshard_sharding::Error),
    /// A call without a kernel, or memory that a kernel does not find.
    Kernel(String),
    /// A checkpoint that lacks the requested data.
    Weights(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Candle(e) => e.fmt(f),
            Error::Exchange(e) => e.fmt(f),
            Error::Program(e) => e.fmt(f),
            Error::OpCall(e) => e.fmt(f),
            Error::Sharding(e) => e.fmt(f),
            Error::Kernel(reason) | Error::Weights(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {}

impl From<candle_core::Error> for Error {
    fn from(e: candle_core::Error) -> Error {
        Error::Candle(e)
    }
}

impl From<reshard_collectives::Error> for Error {
    fn from(e: reshard_collectives::Error) -> Error {
        Error::Exchange(e)
    }
}

impl From<reshard_program::Error> for Error {
    fn from(e: reshard_program::Error) -> Error {
        Error::Program(e)
    }
}

impl From<reshard_ops::Error> for Error {
    fn from(e: reshard_ops::Error) -> Error {
        Error::OpCall(e)
    }
}

impl From<reshard_sharding::Error> for Error {
    fn from(e: reshard_sharding::Error) -> Error {
        Error::Sharding(e)
    }
}
