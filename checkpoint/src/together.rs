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
    let status = result.as_ref().err().map_or(0, |error| u64::from(error.status()));
    let all = exchange.share(&[status])?.concat();
    match (all.iter().position(|status| *status != 0), result) {
        (None, result) => result.map_err(Stop::Together),
        (Some(first), Err(error)) if first == exchange.process() => Err(Stop::Together(error)),
        (Some(first), _) => Err(Stop::Together(Error::told_elsewhere(all[first] as u8))),
    }
}
