//! The command line of reshard: `reshard layout`, `shards`, `plan`, `propagate`, `run` and others.

#[cfg(unix)]
mod signals;
mod terminal;

use std::process::ExitCode;

use reshard_cli::{Console, Status};

fn main() -> ExitCode {
    #[cfg(unix)]
    signals::clean_up();
    terminal::with_console(reshard_cli::run)
}
