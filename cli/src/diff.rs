//! `reshard diff`: compares the tensors and other entries of two checkpoints.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use reshard_checkpoint::{Checkpoint, DiffReport, diff};

use super::arguments::Format;
use super::console::Console;
use super::error::{CliError, printable};
use super::run::progress::Bar;

/// The most names that are listed.
const NAMED: usize = 8;

/// The help after the options: exit status.
const AFTER_HELP: &str = "Status 0: the checkpoints are equal. 1: they differ, and the differences are printed. 2: one of them cannot be opened.";

/// Arguments of `reshard diff`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DiffArgs {
    /// Checkpoint: a .safetensors file, a folder with model.safetensors.index.json, the output of an earlier
    /// run, a PyTorch distributed checkpoint, or a file of torch.save or NumPy (.npy, .npz)
    first: PathBuf,
    /// Checkpoint to compare with, in any file format and sharding
    second: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Compares, and prints the differences.
pub(crate) fn run(args: &DiffArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let open = |path: &Path| Checkpoint::open(Some(path)).map_err(|error| CliError::from(&error));
    let (first, second) = (open(&args.first)?, open(&args.second)?);
    let mut bar = Bar::new(console.progress);
    let difference = diff(&first, &second, &mut bar).map_err(|error| CliError::from(&error))?;
    if args.format.json {
        console.print_json(&difference)?;
    } else {
        console.print(&said(&difference, &args.first, &args.second))?;
    }
    if difference.equal { Ok(()) } else { Err(CliError::told(1)) }
}

fn said(difference: &DiffReport, first: &Path, second: &Path) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for (names, path) in [(&difference.only_first, first), (&difference.only_second, second)] {
        for name in names {
            let place = path.display().to_string();
            let _ = writeln!(text, "{}: only in {}", printable(name), printable(&place));
        }
    }
    for different in &difference.different {
        let _ = writeln!(text, "{}: {}", printable(&different.name), different.what);
    }
    let tensors = match difference.tensors {
        1 => "1 tensor".to_owned(),
        tensors => format!("{tensors} tensors"),
    };
    let counted = match difference.others {
        0 => format!("{tensors} of both"),
        1 => format!("{tensors} and 1 other entry of both"),
        others => format!("{tensors} and {others} other entries of both"),
    };
    if !difference.not_compared.is_empty() {
        let names: Vec<_> = difference.not_compared.iter().take(NAMED).map(|name| printable(name)).collect();
        let more = if difference.not_compared.len() > NAMED { ", .." } else { "" };
        let names = names.join(", ");
        let _ = writeln!(text, "not compared (entries without separate bytes): {names}{more}");
    }
    let _ = match (difference.equal, difference.different.len()) {
        (true, _) => writeln!(text, "equal: {counted}"),
        (false, different) => writeln!(text, "they differ: {different} of {counted}"),
    };
    text
}
