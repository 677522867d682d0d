//! `reshard verify`: whether a checkpoint is what was written.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use reshard_checkpoint::{Checkpoint, VerifyReport};

use super::arguments::Format;
use super::console::Console;
use super::error::{CliError, printable};
use super::run::progress::Bar;

/// What the status means.
const AFTER_HELP: &str = "Checksums are in sharding.json, where a run from files to files writes them: of every shard, of the \
header of every file, and of sharding.json itself. Zip archives (.distcp, torch.save, .npz) say those of their entries, unless PyTorch was told to compute none. Files of whole tensors in safetensors have none; of those it is checked that they can be read to the end. \
Status 0: all is well. 1: something is wrong, and what is wrong is printed. 2: it cannot be opened, and why is said.";

/// Arguments of `reshard verify`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct VerifyArgs {
    /// The output of an earlier run, or any other input of `run`
    path: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Reads everything, and prints what is wrong.
pub(crate) fn run(args: &VerifyArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let checkpoint = Checkpoint::open(Some(&args.path)).map_err(|error| CliError::from(&error))?;
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
        0 => "all is well".to_owned(),
        1 => "1 is wrong".to_owned(),
        wrong => format!("{wrong} are wrong"),
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
