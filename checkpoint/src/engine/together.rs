//! Termination of a job's processes: all at a stage that one cannot pass, or one alone during the work.

use crate::engine::exchange::Exchange;
use crate::error::Error;

/// The reason why a process stops.
#[derive(Debug)]
pub(crate) enum Stop {
    /// All processes stop here, and each knows its part of the error.
    Together(Error),
    /// This process stops alone, while others wait for it.
    Alone(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Alone(error.into())
    }
}

impl Stop {
    /// Returns the error, when no other process waits.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Together(error) | Self::Alone(error) => error,
        }
    }
}

/// Succeeds if all processes have; otherwise the first failed one returns its error, others its status.
pub(crate) fn together<T>(exchange: &mut impl Exchange, result: Result<T, Error>) -> Result<T, Stop> {
    let status = result.as_ref().err().map_or(0, Error::status);
    match (failed_elsewhere(exchange, status)?, result) {
        (None, result) => result.map_err(Stop::Together),
        (Some(status), _) => Err(Stop::Together(Error::told_elsewhere(status))),
    }
}

/// Returns the status of the first process that failed, if it is not this one.
fn failed_elsewhere(exchange: &mut impl Exchange, status: u8) -> Result<Option<u8>, Stop> {
    let all = exchange.share(&[status.into()])?.concat();
    let first = all.iter().position(|status| *status != 0);
    Ok(first.filter(|first| *first != exchange.process()).map(|first| all[first] as u8))
}
