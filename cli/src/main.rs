//! The command line of reshard: `reshard layout`, `shards`, `plan`, `propagate`, `run` and others.

#[cfg(unix)]
mod signals;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use reshard_cli::Console;

fn main() -> ExitCode {
    #[cfg(unix)]
    signals::clean_up();
    // A bar on a terminal only, so that neither files nor pipes ever see it.
    let progress = io::stderr().is_terminal();
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let mut console = Console { input: &mut io::stdin().lock(), out: &mut out, err: &mut err, progress };
    reshard_cli::run(std::env::args_os(), &mut console).into()
}
