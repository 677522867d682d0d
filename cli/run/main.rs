//! The command line's `run`, `verify` and `diff`, as a program that compiles in less than half the time of all of it.
//!
//! The files are those of reshard-cli; parts of them are used only by other subcommands.
#![forbid(unsafe_code)]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "other subcommands use the rest of these files, and the library exports it"
)]

#[path = "../src/arguments.rs"]
mod arguments;
#[path = "../src/console.rs"]
mod console;
#[path = "../src/diff.rs"]
mod diff;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/guard.rs"]
mod guard;
#[path = "../src/listed.rs"]
mod listed;
#[path = "../src/run.rs"]
mod run;
#[path = "../src/shape.rs"]
mod shape;
#[cfg(unix)]
#[path = "../src/signals.rs"]
mod signals;
#[path = "../src/status.rs"]
mod status;
#[path = "../src/terminal.rs"]
mod terminal;
#[path = "../src/verify.rs"]
mod verify;
#[path = "../src/whole.rs"]
mod whole;

use std::env::ArgsOs;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use console::Console;
use guard::guarded;
use status::{Status, finish, required, usage};

/// Reshard, verify and compare checkpoints (all subcommands: cargo run --release --bin reshard -- --help)
#[derive(Debug, Parser)]
#[command(name = "reshard-run", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reshard a checkpoint and verify every byte
    Run(Box<run::RunArgs>),
    /// Compare the tensors of two checkpoints, in any file format and sharding
    Diff(diff::DiffArgs),
    /// Read a checkpoint and compare its checksums and replicas
    Verify(verify::VerifyArgs),
    /// Subcommands of the full program
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

fn main() -> ExitCode {
    #[cfg(unix)]
    signals::clean_up();
    terminal::with_console(answer)
}

fn answer(args: ArgsOs, console: &mut Console<'_>) -> Status {
    let args: Vec<OsString> = args.collect();
    let command = match Cli::try_parse_from(&args) {
        Ok(cli) => cli.command,
        Err(error) => {
            let json = args.iter().skip(1).any(|argument| argument == "--json");
            return usage(&error, "no subcommand given; expected one of: run, diff, verify", json, console);
        }
    };
    let (done, json) = match command {
        Command::Run(args) => (guarded(|| run::run(&args, console)), args.format.json),
        Command::Diff(args) => (guarded(|| diff::run(&args, console)), args.format.json),
        Command::Verify(args) => (guarded(|| verify::run(&args, console)), args.format.json),
        Command::Other(args) => {
            let name = args.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let message = format!(
                "unknown subcommand `{name}`; expected one of: run, diff, verify; for all others use `cargo run --release --bin reshard -- {name}`"
            );
            (
                Err(error::CliError::refused("usage", message)),
                args.iter().any(|argument| argument == "--json"),
            )
        }
    };
    finish(done, json, console)
}
