//! Errors of ops and of programs, as those of the command line. The program `reshard-run` has neither.

use super::error::CliError;

impl From<reshard_ops::Error> for CliError {
    fn from(error: reshard_ops::Error) -> Self {
        match error {
            reshard_ops::Error::Sharding(error) => error.into(),
            reshard_ops::Error::Planner(error) => error.into(),
            error @ (reshard_ops::Error::Rule { .. }
            | reshard_ops::Error::NeedsRedistribution { .. }
            | reshard_ops::Error::Unsupported { .. }
            | _) => Self::refused(error.code(), error.to_string()),
        }
    }
}

impl From<reshard_program::Error> for CliError {
    fn from(error: reshard_program::Error) -> Self {
        match error {
            reshard_program::Error::Ops { at: None, error } => error.into(),
            reshard_program::Error::Ops { at: Some(at), error } => Self::from(error).about(at),
            error @ (reshard_program::Error::Parse { .. }
            | reshard_program::Error::AtLine { .. }
            | reshard_program::Error::Graph { .. }
            | reshard_program::Error::Schedule { .. }
            | reshard_program::Error::Memory { .. }
            | reshard_program::Error::NeedsRedistribute { .. }
            | reshard_program::Error::NoGradient { .. }
            | _) => Self::refused(error.code(), error.to_string()),
        }
    }
}

impl From<reshard_reference::Error> for CliError {
    fn from(error: reshard_reference::Error) -> Self {
        match error {
            reshard_reference::Error::Op(error) => error.into(),
            error @ (reshard_reference::Error::NotHere { .. }
            | reshard_reference::Error::Input { .. }
            | _) => Self::refused(error.code(), error.to_string()),
        }
    }
}
