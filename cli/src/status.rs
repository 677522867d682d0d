//! The exit status of the program, and its last messages.

use std::process::ExitCode;

use clap::error::ErrorKind;

use super::console::Console;
use super::error::CliError;

/// The exit status: 0, 1 for a failed run, 2 for invalid input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub(crate) u8);

impl Status {
    /// The number.
    pub fn code(self) -> u8 {
        self.0
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.0)
    }
}

/// Converts the result of a subcommand to a status, and reports an error.
pub(crate) fn finish(done: Result<(), CliError>, json: bool, console: &mut Console<'_>) -> Status {
    match done {
        Ok(()) => Status(0),
        Err(error) => console.report(&error, json),
    }
}

/// Help and version are answers, with status 0; a wrong use of the command line is an error like any other.
pub(crate) fn usage(error: &clap::Error, none_given: &str, json: bool, console: &mut Console<'_>) -> Status {
    if !error.use_stderr() {
        let printed = console.print(&format!("{}\n", error.render().to_string().trim_end()));
        return finish(printed, false, console);
    }
    let sentence = if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        none_given.to_owned()
    } else {
        error.render().to_string()
    };
    console.report(&CliError::usage(&sentence), json)
}

/// Returns a value that a request requires, given as a flag or as a key.
pub(crate) fn required<'a, T: ?Sized>(key: &str, value: Option<&'a T>) -> Result<&'a T, CliError> {
    value.ok_or_else(|| CliError::refused("usage", format!("the request lacks `{key}` (see --help)")))
}
