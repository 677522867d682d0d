//! The command line: one file per subcommand, one module that prints answers and errors.
//!
//! Data flow of every subcommand but `layout`, which answers for itself:
//!
//! ```text
//! arguments --clap--> request --the library--> answer   --print--> out, status 0
//!     |                  |                        |
//!     '--- usage ---> CliError <--- rejected or failed     --report--> err (and JSON on out), status 2 or 1
//! ```
//!
//! Nothing here panics, and a panic would be reported as an error too (`internal`). An `out` that is closed
//! early ends the program quietly; every other failure is one line with the values that caused it. [`main`]
//! is the whole program, and [`run`] is the same on a [`Console`] of the caller.
#![forbid(unsafe_code)]

mod arguments;
mod batch;
mod calibrate;
mod check;
mod console;
mod diff;
mod element;
mod error;
mod explicit;
mod grad;
mod guard;
mod inspect;
mod layout;
mod lines;
mod listed;
mod mesh;
mod network;
#[cfg(not(feature = "mpi"))]
mod no_mpi;
mod number;
mod ops;
mod parallelize;
mod pictures;
mod plan;
mod program;
mod program_errors;
mod propagate;
mod random;
mod report;
mod rule;
mod run;
mod shape;
mod shards;
mod status;
mod step;
mod step_inputs;
#[cfg(feature = "mpi")]
mod step_mpi;
mod trace;
mod transfer;
mod verify;
mod view;
mod whole;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{CommandFactory, Parser, Subcommand};

pub use console::Console;
use guard::guarded;
pub use status::Status;
use status::{finish, required, usage};

/// Compute layouts, shardings and redistribution plans of tensors, and execute them
#[derive(Debug, Parser)]
#[command(name = "reshard", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Evaluate an expression of the layout algebra
    Layout(layout::LayoutArgs),
    /// Show the indices of a tensor that each rank holds
    Shards(shards::ShardsArgs),
    /// Show the cheapest steps from one sharding to another
    Plan(plan::PlanArgs),
    /// List mesh recipes, or show a mesh and the groups of its axes
    Mesh(mesh::MeshArgs),
    /// Show the sharding of a tensor viewed in another shape
    View(view::ViewArgs),
    /// Show the sharding rule of an op and its strategies along one mesh axis
    Rule(rule::RuleArgs),
    /// Show the gradient formula of an op and its backward strategies
    Grad(grad::GradArgs),
    /// Check a training program: types, redistributions, cost
    Check(check::CheckArgs),
    /// Choose the open types of a training program under a memory limit
    Parallelize(parallelize::ParallelizeArgs),
    /// Run a training program on random inputs and compare all ranks with one device
    Step(step::StepArgs),
    /// Show the local calls and the exchanges of one rank of a training program
    Trace(trace::TraceArgs),
    /// Show the cheapest strategy of an op on a mesh, its redistributions, and the runners-up
    Propagate(propagate::PropagateArgs),
    /// Show the random numbers of a rank; the global tensor is the same on every mesh
    Random(random::RandomArgs),
    /// Draw a plan, a program, its times or a checkpoint on one offline HTML page
    Report(report::ReportArgs),
    /// Reshard a checkpoint and verify every byte
    Run(run::RunArgs),
    /// Plan the transfer of a model between two worlds, or prove an exported plan
    Transfer(transfer::TransferArgs),
    /// Make a network profile from measured times of collectives, or compare a network with them
    Calibrate(calibrate::CalibrateArgs),
    /// Show the contents of a checkpoint: tensors, types, shapes, shardings
    Inspect(inspect::InspectArgs),
    /// Compare the tensors of two checkpoints, in any file format and sharding
    Diff(diff::DiffArgs),
    /// Read a checkpoint and compare its checksums and replicas
    Verify(verify::VerifyArgs),
}

/// Returns the error for a missing subcommand: of the program, or of the subcommand that has some.
fn no_subcommand(args: &[OsString]) -> String {
    let program = Cli::command();
    let given = args.get(1).and_then(|name| program.find_subcommand(name));
    let names: Vec<&str> = given.unwrap_or(&program).get_subcommands().map(clap::Command::get_name).collect();
    let of = given.map_or_else(String::new, |given| format!(" of `{}`", given.get_name()));
    format!("no subcommand{of} given; expected one of: {}", names.join(", "))
}

/// Runs the whole program: the first of `args` is its name; a batch reads the stdin of the process.
///
/// ```
/// let (mut out, mut err) = (Vec::new(), Vec::new());
/// let status = reshard_cli::main(["reshard", "layout", "coalesce((2,3):(1,2))"], &mut out, &mut err);
/// assert_eq!((status.code(), &out[..], &err[..]), (0, &b"6:1\n"[..], &b""[..]));
/// ```
pub fn main<A: Into<OsString>>(
    args: impl IntoIterator<Item = A>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Status {
    run(args, &mut Console { input: &mut io::stdin().lock(), out, err, colour: false, progress: false })
}

/// Parses the arguments, runs the subcommand and returns the exit status.
pub fn run<A: Into<OsString>>(args: impl IntoIterator<Item = A>, console: &mut Console<'_>) -> Status {
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    let command = match Cli::try_parse_from(&args) {
        Ok(cli) => cli.command,
        Err(error) => {
            let json = args.iter().skip(1).any(|argument| argument == "--json");
            return usage(&error, &no_subcommand(&args), json, console);
        }
    };
    let (done, json) = match command {
        Command::Layout(args) => return layout::run(&args, console),
        Command::Shards(args) => (guarded(|| shards::run(&args, console)), args.format.json),
        Command::Plan(args) => (guarded(|| plan::run(&args, console)), args.format.json),
        Command::Mesh(args) => (guarded(|| mesh::run(&args, console)), args.format.json),
        Command::View(args) => (guarded(|| view::run(&args, console)), args.format.json),
        Command::Rule(args) => (guarded(|| rule::run(&args, console)), args.format.json),
        Command::Grad(args) => (guarded(|| grad::run(&args, console)), args.format.json),
        Command::Check(args) => (guarded(|| check::run(&args, console)), args.format.json),
        Command::Parallelize(args) => (guarded(|| parallelize::run(&args, console)), args.format.json),
        Command::Step(args) => (guarded(|| step::run(&args, console)), args.format.json),
        Command::Trace(args) => (guarded(|| trace::run(&args, console)), args.format.json),
        Command::Propagate(args) => (guarded(|| propagate::run(&args, console)), args.format.json),
        Command::Random(args) => (guarded(|| random::run(&args, console)), args.format.json),
        Command::Report(args) => (guarded(|| report::run(&args, console)), args.json()),
        Command::Run(args) => (guarded(|| run::run(&args, console)), args.format.json),
        Command::Transfer(args) => (guarded(|| transfer::run(&args, console)), args.json()),
        Command::Calibrate(args) => (guarded(|| calibrate::run(&args, console)), args.format.json),
        Command::Inspect(args) => (guarded(|| inspect::run(&args, console)), args.format.json),
        Command::Diff(args) => (guarded(|| diff::run(&args, console)), args.format.json),
        Command::Verify(args) => (guarded(|| verify::run(&args, console)), args.format.json),
    };
    finish(done, json, console)
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use clap::{CommandFactory, Parser};

    use super::Cli;

    /// A batch takes its requests from its lines, and none from flags.
    #[test]
    fn no_flag_of_a_request_goes_with_a_batch() {
        let command = Cli::command();
        command.clone().debug_assert();
        let mut tried = 0;
        for sub in command.get_subcommands() {
            let flags: Vec<_> = sub.get_arguments().collect();
            if !flags.iter().any(|flag| flag.get_id() == "batch") {
                continue;
            }
            for flag in flags {
                if ["batch", "json", "help"].contains(&flag.get_id().as_str()) {
                    continue;
                }
                let mut line = vec!["reshard".to_owned(), sub.get_name().to_owned(), "--batch".to_owned()];
                line.extend(flag.get_long().map(|long| format!("--{long}")));
                if flag.get_action().takes_values() {
                    let word = flag.get_possible_values().first().map(|word| word.get_name().to_owned());
                    line.push(word.unwrap_or_else(|| "1".to_owned()));
                }
                let error = Cli::try_parse_from(&line).expect_err("a batch took a flag");
                assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{line:?}: {error}");
                tried += 1;
            }
        }
        assert!(tried > 30, "{tried}");
    }
}
