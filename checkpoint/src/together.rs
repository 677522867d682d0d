//! How processes of a job stop: all at a stage that one of them cannot pass, or one alone in the middle of the work.

use super::error::Error;
use super::exchange::Exchange;

/// Why a process stops.
#[derive(Debug)]
pub(crate) enum Stop {
    /// All stop here, and each knows its part of what is to be said.
    Together(Error),
    /// Others wait for this one, and will in vain.
    Alone(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Alone(error.into())
    }
}

impl Stop {
    /// What went wrong, where nobody waits.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Together(error) | Self::Alone(error) => error,
        }
    }
}

/// Succeeds if all processes have; otherwise the first that has not says why, and the others end as it does.
pub(crate) fn together<T>(exchange: &mut impl Exchange, result: Result<T, Error>) -> Result<T, Stop> {
    let status = result.as_ref().err().map_or(0, Error::status);
    match (failed_elsewhere(exchange, status)?, result) {
        (None, result) => result.map_err(Stop::Together),
        (Some(status), _) => Err(Stop::Together(Error::told_elsewhere(status))),
    }
}

/// The status of the first process that has not succeeded, where that is another than this one.
fn failed_elsewhere(exchange: &mut impl Exchange, status: u8) -> Result<Option<u8>, Stop> {
    let all = exchange.share(&[status.into()])?.concat();
    let first = all.iter().position(|status| *status != 0);
    Ok(first.filter(|first| *first != exchange.process()).map(|first| all[first] as u8))
}
