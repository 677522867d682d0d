//! What can go wrong, as one sentence.

use core::fmt;

/// Why there is no result.
#[derive(Debug)]
pub enum Error {
    /// An op of candle failed.
    Candle(candle_core::Error),
    /// An exchange failed.
    Exchange(reshard_collectives::Error),
    /// A program, or its schedule, cannot be.
    Program(reshard_program::Error),
    /// A call has not the arguments that it should have.
    Call(reshard_ops::Error),
    /// A rank holds no such part of a tensor.
    Sharding(reshard_sharding::Error),
    /// A call for which there is no kernel, or memory that a kernel does not find.
    Kernel(String),
    /// A checkpoint that has not what is asked of it.
    Weights(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Candle(e) => e.fmt(f),
            Error::Exchange(e) => e.fmt(f),
            Error::Program(e) => e.fmt(f),
            Error::Call(e) => e.fmt(f),
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
        Error::Call(e)
    }
}

impl From<reshard_sharding::Error> for Error {
    fn from(e: reshard_sharding::Error) -> Error {
        Error::Sharding(e)
    }
}
