//! The command line: one file per subcommand, one place that prints answers and errors.
//!
//! Data flow of every subcommand but `layout`, which answers for itself:
//!
//! ```text
//! arguments --clap--> request --the library--> answer   --print--> stdout, exit 0
//!     |                  |                        |
//!     '--- usage ---> CliError <--- refused or failed      --report--> stderr (and JSON on stdout), exit 2 or 1
//! ```
//!
//! Nothing here panics: a stdout that is closed early ends the program quietly, and every other failure is one
//! sentence with the values that caused it.

mod batch;
mod element;
mod error;
mod layout;
mod listed;
mod mesh;
mod network;
mod ops;
mod output;
mod plan;
mod propagate;
mod rule;
mod run;
mod shape;
mod shards;
mod view;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use error::CliError;

/// Where is an element, who holds it, and how does it get there: layouts, shardings and redistribution plans.
#[derive(Debug, Parser)]
#[command(name = "reshard", version, about, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Evaluate an expression of the layout algebra
    Layout(layout::LayoutArgs),
    /// Show which indices of a tensor every rank holds
    Shards(shards::ShardsArgs),
    /// Show the cheapest steps from one sharding to another
    Plan(plan::PlanArgs),
    /// List recipes, draw a mesh, show the groups of its axes
    Mesh(mesh::MeshArgs),
    /// Show the sharding of a tensor viewed in another shape
    View(view::ViewArgs),
    /// Show the rule of an op and the strategies of one mesh axis
    Rule(rule::RuleArgs),
    /// Show the cheapest strategy of an op on a mesh, what moves for it, and the runners-up
    Propagate(propagate::PropagateArgs),
    /// Reshard a checkpoint for real and verify every byte
    Run(run::RunArgs),
}

/// Parses the arguments, runs the subcommand and says with which status the process ends.
pub(crate) fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return usage(&error),
    };
    match command {
        Command::Layout(args) => layout::run(&args),
        Command::Shards(args) => finish(shards::run(&args), args.json),
        Command::Plan(args) => finish(plan::run(&args), args.json),
        Command::Mesh(args) => finish(mesh::run(&args), args.json),
        Command::View(args) => finish(view::run(&args), args.json),
        Command::Rule(args) => finish(rule::run(&args), args.json),
        Command::Propagate(args) => finish(propagate::run(&args), args.json),
        Command::Run(args) => finish(run::run(&args), args.json),
    }
}

/// What a subcommand returned, as an exit status; errors are reported on the way.
fn finish(result: Result<(), CliError>, json: bool) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::report(&error, json),
    }
}

/// Help and version go to stdout with status 0; a wrong use of the command line is an error like any other.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return finish(output::print(&format!("{}\n", error.render().to_string().trim_end())), false);
    }
    let json = std::env::args_os().any(|argument| argument == OsStr::new("--json"));
    let sentence = if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        "no subcommand was given: layout, shards, plan, mesh, view, rule, propagate or run".to_owned()
    } else {
        error.render().to_string()
    };
    output::report(&CliError::usage(&sentence), json)
}

/// A value that a request cannot do without, whether it came as a flag or as a key.
fn required<'a, T: ?Sized>(key: &str, value: Option<&'a T>) -> Result<&'a T, CliError> {
    value.ok_or_else(|| CliError::refused("usage", format!("the request lacks `{key}` (see --help)")))
}
