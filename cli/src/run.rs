//! `reshard run`: reshards a checkpoint for real, verifies every byte, and writes the result.

#[path = "run/progress.rs"]
pub(crate) mod progress;
#[path = "run/table.rs"]
mod table;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use reshard_checkpoint::{Engine, JobReport, OutputFormat, Replicas, ReshardJob};

use super::arguments::Format;
use super::arguments::{MeshArg, SourceArg};
use super::console::Console;
use super::error::{CliError, Exit};
use progress::Screen;
use table::table;

/// The help after the options: exit status and files.
const AFTER_HELP: &str = "From file to file the ranks do not communicate: every file is read and written once, \
checksums are written to sharding.json, the checksums and replicas of the input are compared, and the output is verified by reading it. \
An engine executes plans if there is no input or no output, and with --engine or --through-engine. \
The output appears only after every byte has been verified. \
Status 0: the output is complete and the report is printed. 2: invalid input, nothing was written. 1: the run failed and its partial output \
was removed; the output is complete only if the error is that the report could not be printed. \
Ctrl-C and kill (status 130 and 143 in a shell) remove partial output; after kill -9 the next run to the same path removes it. \
Entries that are not tensors (steps, learning rates, random states) are copied byte for byte with --format rank-files and dcp. \
Files of safetensors hold tensors only: the report lists the entries left out, and --strict rejects such a run.";

/// Arguments of `reshard run`.
#[derive(Debug, Default, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate flag")]
#[command(mut_arg("mesh", |arg| arg.help("Mesh to shard over, like dp=2,tp=4")), after_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// Checkpoint to reshard: a file of safetensors, torch.save or NumPy, a folder of such files, the output of
    /// an earlier run, or a checkpoint of PyTorch (distributed, or rank files of FSDP) or Orbax [default: a
    /// small generated transformer block]
    input: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArg,
    #[command(flatten)]
    mesh: MeshArg,
    /// Sharding of an input of whole tensors [default: replicated]
    #[arg(long)]
    from: Option<String>,
    /// Sharding of the output, like `S(0),R`; tensors without its dims are replicated [default with --gather:
    /// replicated]
    #[arg(long)]
    to: Option<String>,
    /// TOML file of name patterns and their placements; the first match overrides --to
    #[arg(long)]
    spec: Option<PathBuf>,
    /// Ranks of the input whose files are missing or damaged, like 3,5; replicas are used instead
    #[arg(long, value_name = "RANKS", value_delimiter = ',', value_parser = crate::whole::whole::<usize>, allow_negative_numbers = true)]
    missing_ranks: Vec<usize>,
    /// Read regions that only missing ranks held from this checkpoint
    #[arg(long, value_name = "CHECKPOINT", requires = "missing_ranks")]
    fill_from: Option<PathBuf>,
    /// Select tensors and other entries by a glob, or by a regular expression between slashes; after ! it
    /// excludes; repeatable, and the last match decides
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Make the tensors of the output by the rules of this mapping: TOML, or lines like 'qkv = q + k + v'
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Read the rules of --map from right to left
    #[arg(long)]
    inverse: bool,
    /// Give a number of the mapping a value, like h=32 for $h; repeatable
    #[arg(long = "let", value_name = "NAME=N")]
    numbers: Vec<String>,
    /// Replace a tensor by its parts, by a rule of a mapping that is read from right to left, like '*.qkv = 4 *.q
    /// + *.k + *.v on 0 by 8': dim 0 in 8 groups of 4, 1 and 1 shares; repeatable
    #[arg(long, value_name = "WHOLE = PART + PART")]
    split: Vec<String>,
    /// Replace parts by the tensor that they form, by the same rule read from left to right; repeatable, after
    /// --split
    #[arg(long, value_name = "WHOLE = PART + PART")]
    fuse: Vec<String>,
    /// Rename tensors, like 's/^model\.(.*)/decoder.$1/'; selections and splits use the old names, --to and
    /// --spec the new
    #[arg(long, value_name = "s/OLD/NEW/")]
    rename: Vec<String>,
    /// Convert tensors of f64, f32, f16 and bf16 to one of these dtypes, rounding to nearest, ties to even;
    /// 'PATTERN=DTYPE' for some names, 'PATTERN=keep' for none; repeatable, and the first match decides
    #[arg(long)]
    dtype: Vec<String>,
    /// Write one file per rank and sharding.json to this directory, or whole tensors to this .safetensors
    /// file
    #[arg(long)]
    out: Option<PathBuf>,
    /// Format of the output directory
    #[arg(long = "format", value_enum, requires = "out")]
    kind: Option<FormatName>,
    /// Files that hold data of several ranks: every one, or a part in each (rank-files)
    #[arg(long, value_enum, value_name = "FILES")]
    replicas: Option<ReplicasName>,
    /// Limit each file of --format safetensors to N bytes; a larger tensor has a separate file [default:
    /// 5000000000]
    #[arg(long, value_name = "N", requires = "kind", value_parser = crate::whole::whole::<u64>, allow_negative_numbers = true)]
    file_bytes: Option<u64>,
    /// Write whole tensors to this file
    #[arg(long)]
    gather: Option<PathBuf>,
    /// Execute plans with this engine [default: threads, or none from file to file]
    #[arg(long, value_enum)]
    engine: Option<EngineName>,
    /// Plan and exchange even from file to file, to try plans on real data
    #[arg(long)]
    through_engine: bool,
    /// Skip checksums, the comparison of replicas and the verification of the output (from file to file only)
    #[arg(long, conflicts_with_all = ["engine", "through_engine"])]
    no_verify: bool,
    /// Seconds to wait for a peer (mpi, nccl) [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Reject a run that would leave out an entry that is not a tensor, before anything is written
    #[arg(long)]
    strict: bool,
    /// Replace the output of an earlier run
    #[arg(long)]
    force: bool,
    /// Continue a killed run of the same command; keep the partial output if this run is killed too
    #[arg(long, conflicts_with_all = ["engine", "through_engine", "no_verify"])]
    resume: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The files that hold data of several ranks, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplicasName {
    /// The file of every rank has its whole shard [default]
    Every,
    /// The ranks that hold the same data each write a part of it
    Once,
}

impl From<ReplicasName> for Replicas {
    fn from(name: ReplicasName) -> Self {
        match name {
            ReplicasName::Every => Self::Every,
            ReplicasName::Once => Self::Once,
        }
    }
}

/// The output format, as an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatName {
    /// A safetensors file per rank, and sharding.json with shardings and checksums [default]
    #[default]
    RankFiles,
    /// A PyTorch distributed checkpoint, for torch.distributed.checkpoint.load
    Dcp,
    /// The same in safetensors files, for HuggingFaceStorageReader
    DcpSafetensors,
    /// Whole tensors in files of at most --file-bytes, and model.safetensors.index.json
    Safetensors,
}

/// The engines, as arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// All ranks on threads of this process
    #[default]
    Threads,
    /// One process of an MPI job per rank
    Mpi,
    /// All ranks on one CUDA device
    Cuda,
    /// One process with one CUDA device per rank
    Nccl,
}

impl EngineName {
    /// Returns the name as an argument.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Mpi => "mpi",
            Self::Cuda => "cuda",
            Self::Nccl => "nccl",
        }
    }
}

/// Runs, and prints the report; in a job of processes the first one prints it.
pub(crate) fn run(args: &RunArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let done = args.job().run(&mut Screen::new(console, args.format.json));
    let Some(report) = done.map_err(|error| CliError::told(error.status()))? else { return Ok(()) };
    let printed = if args.format.json { console.print_json(&report) } else { console.print(&table(&report)) };
    printed.map_err(|error| unsaid(&error, &report))
}

/// Returns the error of a report that could not be printed: then the run failed, even if stdout was closed.
fn unsaid(error: &CliError, report: &JobReport) -> CliError {
    let why = match error.exit() {
        Exit::ReaderGone => "stdout was closed".to_owned(),
        Exit::Refused | Exit::Failed | Exit::Told(_) => error.to_string(),
    };
    let written = match &report.written[..] {
        [] => "no output was requested".to_owned(),
        places => format!("the output is complete: {}", places.join(", ")),
    };
    CliError::failed("io", format!("the report could not be printed: {why}; {written}"))
}

impl RunArgs {
    fn job(&self) -> ReshardJob {
        ReshardJob {
            input: self.input.clone(),
            source: self.source.source.clone(),
            mesh: self.mesh.mesh.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            spec: self.spec.clone(),
            missing_ranks: self.missing_ranks.clone(),
            fill_from: self.fill_from.clone(),
            only: self.only.clone(),
            map: self.map.clone(),
            inverse: self.inverse,
            numbers: self.numbers.clone(),
            split: self.split.clone(),
            fuse: self.fuse.clone(),
            rename: self.rename.clone(),
            dtype: self.dtype.clone(),
            out: self.out.clone(),
            format: self.kind.unwrap_or_default().into(),
            replicas: self.replicas.map_or_else(Replicas::default, Into::into),
            file_bytes: self.file_bytes,
            gather: self.gather.clone(),
            engine: self.engine.unwrap_or_default().into(),
            through_engine: self.through_engine || self.engine.is_some(),
            verify: !self.no_verify,
            timeout: self.timeout,
            strict: self.strict,
            force: self.force,
            resume: self.resume,
        }
    }
}

impl From<FormatName> for OutputFormat {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::RankFiles => Self::RankFiles,
            FormatName::Dcp => Self::Dcp,
            FormatName::DcpSafetensors => Self::DcpSafetensors,
            FormatName::Safetensors => Self::Safetensors,
        }
    }
}

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Threads => Self::Threads,
            EngineName::Mpi => Self::Mpi,
            EngineName::Cuda => Self::Cuda,
            EngineName::Nccl => Self::Nccl,
        }
    }
}

/// A positive number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("`{text}` is not a positive number of seconds"))
}
