//! `reshard transfer`: plans the transfer of a model between two worlds, and proves exported plans.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use reshard_mapping::Mapping;
use reshard_transfer::{Options, RankPart, Side, Transfer, check};

use super::arguments::Format;
use super::console::Console;
use super::error::CliError;
use super::required;

/// The largest number of bytes of a file.
const MOST_BYTES: u64 = 1 << 30;

/// The help of the subcommand `check` after the options: exit status.
const AFTER_CHECK: &str = "Status 0: each element of each target is written once. 1: it is not, or a file is not valid. 2: the folder cannot be read.";

/// Arguments of `reshard transfer`.
#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    #[command(subcommand)]
    of: Of,
}

#[derive(Debug, Subcommand)]
enum Of {
    /// Plan a transfer, prove it, and show the bytes of each rank next to the bounds
    Plan(PlanArgs),
    /// Prove an exported plan from its files alone
    #[command(after_help = AFTER_CHECK)]
    Check(CheckArgs),
}

#[derive(Debug, Args)]
struct PlanArgs {
    /// JSON file of the tensors that exist: names, dtypes, shapes, placements on a mesh
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
    /// JSON file of the tensors to write
    #[arg(long, value_name = "FILE")]
    target: Option<PathBuf>,
    /// Mapping from source to target: TOML, or the lines of rules alone [default: equal names]
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Prefer senders of the receiver's node, which has this number of ranks [default: balance over all]
    #[arg(long, value_parser = crate::whole::whole::<usize>, allow_negative_numbers = true)]
    ranks_per_node: Option<usize>,
    /// Write one file per rank to this folder, which is new or empty
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// Format of the files
    #[arg(long, value_enum, default_value_t = FileFormat::Json, requires = "export")]
    format: FileFormat,
    #[command(flatten)]
    output: Format,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Folder with one file per rank, as `--export` writes them
    dir: PathBuf,
    #[command(flatten)]
    output: Format,
}

/// The format of the file of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileFormat {
    Json,
    Binary,
}

impl FileFormat {
    fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Binary => "bin",
        }
    }
}

impl TransferArgs {
    /// Returns `true` if the answer is a JSON object.
    pub(crate) fn json(&self) -> bool {
        match &self.of {
            Of::Plan(args) => args.output.json,
            Of::Check(args) => args.output.json,
        }
    }
}

/// Plans or proves, and prints the result.
pub(crate) fn run(args: &TransferArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    match &args.of {
        Of::Plan(args) => planned(args, console),
        Of::Check(args) => checked(args, console),
    }
}

impl From<reshard_transfer::Error> for CliError {
    fn from(error: reshard_transfer::Error) -> Self {
        Self::refused(error.kind().code(), error.to_string())
    }
}

fn planned(args: &PlanArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let side = |key: &str, path: Option<&PathBuf>| {
        let path = required(key, path)?;
        Side::from_json(&text("side", path)?).map_err(|error| CliError::from(error).about(path.display()))
    };
    let (source, target) = (side("source", args.source.as_ref())?, side("target", args.target.as_ref())?);
    let mapping = args.map.as_deref().map_or_else(|| Ok(Mapping::default()), mapping)?;
    let mut options = Options::default();
    if let Some(ranks) = args.ranks_per_node {
        if ranks == 0 {
            return Err(CliError::refused(
                "usage",
                "--ranks-per-node is 0; give at least 1, or leave it out",
            ));
        }
        options = options.with_ranks_per_node(ranks);
    }
    let plan = Transfer::plan(&source, &target, &mapping, &options)?;
    let certificate = plan.certificate()?;
    if let Some(folder) = &args.export {
        export(&plan, folder, args.format)?;
    }
    if args.output.json { console.print_json(&certificate) } else { console.print(&certificate.to_string()) }
}

/// Writes the parts of all ranks.
fn export(plan: &Transfer, folder: &Path, format: FileFormat) -> Result<(), CliError> {
    let failed = |path: &Path, error: &std::io::Error| {
        CliError::failed("io", format!("{} cannot be written: {error}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    if fs::read_dir(folder).map_err(|error| failed(folder, &error))?.next().is_some() {
        let message = format!("--export {}: the folder is not empty; give a new one", folder.display());
        return Err(CliError::refused("exists", message));
    }
    for rank in plan.ranks() {
        let part = plan.part(*rank);
        let path = folder.join(format!("rank_{rank}.{}", format.extension()));
        let bytes = match format {
            FileFormat::Json => (part.to_json() + "\n").into_bytes(),
            FileFormat::Binary => part.to_bytes(),
        };
        fs::write(&path, bytes).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn checked(args: &CheckArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let parts = parts(&args.dir)?;
    let read = |(path, format): &(PathBuf, FileFormat)| {
        let invalid = |error: CliError| CliError::failed(error.code(), error.to_string());
        let in_file = |error: reshard_transfer::Error| invalid(CliError::from(error).about(path.display()));
        match format {
            FileFormat::Json => RankPart::from_json(&text("part", path).map_err(invalid)?).map_err(in_file),
            FileFormat::Binary => {
                RankPart::from_bytes(&bytes("part", path).map_err(invalid)?).map_err(in_file)
            }
        }
    };
    // The proof stops at the first part that cannot be read; its error is the one of the file.
    let mut unread = None;
    let all = parts.iter().map_while(|file| read(file).map_err(|error| unread = Some(error)).ok());
    let proved = check(all.map(Ok));
    if let Some(error) = unread {
        return Err(error);
    }
    let coverage = proved.map_err(|error| CliError::failed(error.kind().code(), error.to_string()))?;
    if args.output.json { console.print_json(&coverage) } else { console.print(&format!("{coverage}\n")) }
}

/// Returns the files of all ranks, by rank.
fn parts(folder: &Path) -> Result<Vec<(PathBuf, FileFormat)>, CliError> {
    let unreadable =
        |error| CliError::refused("input", format!("{} cannot be read: {error}", folder.display()));
    let mut parts = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let formats = [FileFormat::Json, FileFormat::Binary];
        let of_rank = formats.into_iter().find_map(|format| {
            let rank = name.strip_prefix("rank_")?.strip_suffix(format.extension())?.strip_suffix('.')?;
            Some((rank.parse::<usize>().ok()?, format))
        });
        if let Some((rank, format)) = of_rank {
            parts.push((rank, path, format));
        }
    }
    parts.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    if parts.is_empty() {
        let message =
            format!("{} has no file rank_N.json or rank_N.bin; export a plan to it", folder.display());
        return Err(CliError::refused("input", message));
    }
    Ok(parts.into_iter().map(|(_, path, format)| (path, format)).collect())
}

fn mapping(path: &Path) -> Result<Mapping, CliError> {
    let text = text("mapping", path)?;
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let mapping = if is_toml { Mapping::from_toml(&text) } else { text.parse() };
    mapping.map_err(|error| {
        CliError::refused("mapping", error.to_string()).about(format!("the mapping {}", path.display()))
    })
}

fn text(what: &str, path: &Path) -> Result<String, CliError> {
    String::from_utf8(bytes(what, path)?)
        .map_err(|_| CliError::refused("input", format!("the {what} {} is not UTF-8 text", path.display())))
}

fn bytes(what: &str, path: &Path) -> Result<Vec<u8>, CliError> {
    let unreadable = |reason: &dyn std::fmt::Display| {
        CliError::refused("input", format!("the {what} {} cannot be read: {reason}", path.display()))
    };
    let file = fs::File::open(path).map_err(|error| unreadable(&error))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(unreadable(&format!("it is over {MOST_BYTES} bytes")));
    }
    Ok(bytes)
}
