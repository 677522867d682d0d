//! `reshard verify`: checks that a checkpoint has the bytes that were written.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use reshard_checkpoint::VerifyReport;

use super::arguments::{Format, SourceArg};
use super::console::Console;
use super::error::{CliError, printable};
use super::run::progress::Bar;

/// The help after the options: checksums and exit status.
const AFTER_HELP: &str = "A run from file to file writes checksums to sharding.json: of every shard, of the header of every \
file, and of sharding.json itself. Zip archives (.distcp, torch.save, .npz) have checksums of their entries, unless PyTorch was configured \
to write none. Safetensors files of whole tensors have none, and are only read to the end. \
Status 0: no problem was found. 1: problems were found and are printed. 2: the checkpoint cannot be opened.";

/// Arguments of `reshard verify`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct VerifyArgs {
    /// Output of an earlier run, or any other input of `run`
    path: PathBuf,
    #[command(flatten)]
    source: SourceArg,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Reads everything, and prints the problems.
pub(crate) fn run(args: &VerifyArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let checkpoint = args.source.open(&args.path)?;
    let mut bar = Bar::new(console.progress);
    let verified = checkpoint.verify(&mut bar).map_err(|error| CliError::from(&error))?;
    if args.format.json {
        console.print_json(&verified)?;
    } else {
        console.print(&said(&verified))?;
    }
    if verified.problems.is_empty() { Ok(()) } else { Err(CliError::told(1)) }
}

fn said(verified: &VerifyReport) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for problem in &verified.problems {
        let _ = writeln!(text, "{}", printable(&problem.to_string()));
    }
    let VerifyReport { tensors, shards, bytes, others, .. } = verified;
    let compared = if verified.checksums {
        "checksums and replicas compared"
    } else {
        "replicas compared, no checksums"
    };
    let end = match verified.problems.len() {
        0 => "no problems".to_owned(),
        1 => "1 problem".to_owned(),
        wrong => format!("{wrong} problems"),
    };
    let counted = |count: usize, one: &str, many: &str| {
        if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
    };
    let tensors = counted(*tensors, "tensor", "tensors");
    let shards = counted(*shards, "shard", "shards");
    let others = match others {
        0 => String::new(),
        others => format!(" and {}", counted(*others, "other entry", "other entries")),
    };
    let bytes = counted(*bytes as usize, "byte", "bytes");
    let _ = writeln!(text, "{tensors} in {shards}{others}, {bytes}: {compared}, {end}");
    text
}
