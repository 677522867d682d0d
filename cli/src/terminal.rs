//! The console of a process: its stdin, stdout and stderr.

use std::env::ArgsOs;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};

use super::{Console, Status};

/// Answers the arguments of this process on its own console.
pub(crate) fn with_console(answer: impl FnOnce(ArgsOs, &mut Console<'_>) -> Status) -> ExitCode {
    // A bar on a terminal only, so that neither files nor pipes ever see it.
    let progress = io::stderr().is_terminal();
    let (mut out, mut err) = (io::stdout(), io::stderr());
    // Colours depend on the environment (NO_COLOR, CLICOLOR_FORCE) and on whether stdout is a terminal.
    let colour = AutoStream::choice(&out) != ColorChoice::Never;
    let mut console =
        Console { input: &mut io::stdin().lock(), out: &mut out, err: &mut err, colour, progress };
    answer(std::env::args_os(), &mut console).into()
}
