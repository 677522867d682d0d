//! The command line of reshard: `reshard layout`, `shards`, `plan`, `propagate`, `run` and others.

#[cfg(unix)]
mod signals;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use reshard_cli::Console;

fn main() -> ExitCode {
    #[cfg(unix)]
    signals::clean_up();
    // A bar on a terminal only, so that neither files nor pipes ever see it.
    let progress = io::stderr().is_terminal();
    let (mut out, mut err) = (io::stdout(), io::stderr());
    // What the environment says of colours (NO_COLOR, CLICOLOR_FORCE, TERM), and whether it is a terminal.
    let colour = AutoStream::choice(&out) != ColorChoice::Never;
    let mut console =
        Console { input: &mut io::stdin().lock(), out: &mut out, err: &mut err, colour, progress };
    reshard_cli::run(std::env::args_os(), &mut console).into()
}
