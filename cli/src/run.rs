//! `reshard run`: reshards a checkpoint for real, verifies every byte, and writes the result.

#[path = "run/progress.rs"]
pub(crate) mod progress;
#[path = "run/table.rs"]
mod table;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use reshard_checkpoint::{Engine, JobReport, OutputFormat, ReshardJob};

use super::arguments::Format;
use super::arguments::MeshArg;
use super::console::Console;
use super::error::{CliError, Exit};
use progress::Screen;
use table::table;

/// What the end of a run means.
const AFTER_HELP: &str = "From files to files nobody has to talk: every file is read and written once, checksums are \
written into sharding.json, those of the input are compared, replicas too, and what was written is read back; nothing is planned, and \
nothing received. Without an input, without an output, with --engine and with --through-engine an engine carries plans out. \
An output appears whole or not at all, when every byte has been verified. \
Status 0: it is in place and the report is printed. 2: refused, nothing was written. 1: the run failed, and what was begun \
is removed; only where the message says that the report could not be printed is the output in place. Ctrl-C and kill (130, \
143 in a shell) remove what was begun; what a run leaves that is killed for good (-9) is removed by the next run into the \
same place. \
Entries that are not tensors (steps, learning rates, random states) are carried byte for byte to --format rank-files and dcp; \
safetensors files hold tensors only, and what is left out of them is named. --strict rejects such a run.";

/// Arguments of `reshard run`.
#[derive(Debug, Default, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(mut_arg("mesh", |arg| arg.help("The mesh to shard over, like dp=2,tp=4")), after_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// A .safetensors file, a folder with model.safetensors.index.json, the output of an earlier run, a distributed checkpoint of
    /// PyTorch, or a file of torch.save or of NumPy (.npy, .npz)
    /// [default: a small transformer block made by code]
    input: Option<PathBuf>,
    #[command(flatten)]
    mesh: MeshArg,
    /// The sharding to start from, where the input is whole [default: replicated]
    #[arg(long)]
    from: Option<String>,
    /// The sharding to reach, like `S(0),R`; tensors that lack its dims are replicated [default with --gather: replicated]
    #[arg(long)]
    to: Option<String>,
    /// Reshard only this tensor
    #[arg(long)]
    tensor: Option<String>,
    /// A TOML file of name patterns and their placements; the first match wins over --to
    #[arg(long)]
    spec: Option<PathBuf>,
    /// Ranks of the input that are dead, like 3,5: their files may be missing or damaged, and what other ranks hold as well is used
    #[arg(long, value_name = "RANKS", value_delimiter = ',')]
    dead: Vec<usize>,
    /// Read what only dead ranks held from this checkpoint
    #[arg(long, value_name = "CHECKPOINT", requires = "dead")]
    fill_from: Option<PathBuf>,
    /// Only tensors and other entries whose names this glob matches, or this regular expression between slashes; may be said several times
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Replace a tensor by its parts, like '*.qkv.weight = 4 *.q.weight + *.k.weight + *.v.weight on 0 by 8': of dim 0, in 8 groups
    /// of 4 shares, one and one
    #[arg(long, value_name = "WHOLE = PART + PART")]
    split: Vec<String>,
    /// Replace parts by the tensor that they make, said in the same way
    #[arg(long, value_name = "WHOLE = PART + PART")]
    fuse: Vec<String>,
    /// Give tensors other names, like 's/^model\.(.*)/decoder.$1/'; what comes before speaks of the old names, --to and --spec of the new
    #[arg(long, value_name = "s/OLD/NEW/")]
    rename: Vec<String>,
    /// Round tensors of f64, f32, f16 and bf16 to one of these types, to the nearest, ties to even; others stay as they are
    #[arg(long)]
    dtype: Option<String>,
    /// Write one file per rank and sharding.json into this directory; or whole tensors into this file, if its name ends in .safetensors
    #[arg(long)]
    out: Option<PathBuf>,
    /// What the files in that directory are
    #[arg(long = "format", value_enum, requires = "out")]
    kind: Option<FormatName>,
    /// With --format safetensors: a file has at most so many bytes, or one tensor [default: 5000000000]
    #[arg(long, value_name = "BYTES", requires = "kind")]
    file_bytes: Option<u64>,
    /// Write the whole tensors into this file
    #[arg(long)]
    gather: Option<PathBuf>,
    /// What carries out the plan; from files to files there is none unless an engine is named, or --through-engine
    #[arg(long, value_enum)]
    engine: Option<EngineName>,
    /// Plan and exchange even from files to files, to try plans on real data
    #[arg(long)]
    through_engine: bool,
    /// From files to files: write no checksums, read nothing back, compare no replicas
    #[arg(long, conflicts_with_all = ["engine", "through_engine"])]
    no_verify: bool,
    /// How many seconds a process waits for another that does not come (mpi, nccl) [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time_out: Option<Duration>,
    /// Reject a run that would leave out an entry that is not a tensor, before anything is written
    #[arg(long)]
    strict: bool,
    /// Replace what an earlier run wrote there
    #[arg(long)]
    force: bool,
    /// Go on where a killed run of the same command stopped; this one too leaves what it has done if it does not come to its end
    #[arg(long, conflicts_with_all = ["engine", "through_engine", "no_verify"])]
    resume: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// What is written, as an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatName {
    /// A safetensors file for every rank, and sharding.json with shardings and checksums [default]
    #[default]
    RankFiles,
    /// A distributed checkpoint of PyTorch, which torch.distributed.checkpoint.load reads
    Dcp,
    /// The same in safetensors files, which its HuggingFaceStorageReader reads
    DcpSafetensors,
    /// Whole tensors in files of at most --file-bytes, and model.safetensors.index.json
    Safetensors,
}

/// The engines, as arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// Ranks take turns on the threads of this process
    #[default]
    Threads,
    /// Ranks are processes of an MPI job
    Mpi,
    /// Ranks share one CUDA device
    Cuda,
    /// Ranks are processes with a CUDA device each
    Nccl,
}

/// Runs, and prints the report; of a job of processes the first one's.
pub(crate) fn run(args: &RunArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let done = args.job().run(&mut Screen::new(console, args.format.json));
    let Some(report) = done.map_err(|error| CliError::told(error.status()))? else { return Ok(()) };
    let printed = if args.format.json { console.print_json(&report) } else { console.print(&table(&report)) };
    printed.map_err(|error| unsaid(&error, &report))
}

/// A report that nobody got is a run that failed, whoever closed stdout: it may be what the run was for.
fn unsaid(error: &CliError, report: &JobReport) -> CliError {
    let why = match error.exit() {
        Exit::ReaderGone => "whoever read stdout has gone".to_owned(),
        Exit::Refused | Exit::Failed | Exit::Told(_) => error.to_string(),
    };
    let written = match &report.written[..] {
        [] => "nothing was to be written".to_owned(),
        places => format!("the output is complete: {}", places.join(", ")),
    };
    CliError::failed("io", format!("the report could not be printed: {why}; {written}"))
}

impl RunArgs {
    fn job(&self) -> ReshardJob {
        ReshardJob {
            input: self.input.clone(),
            mesh: self.mesh.mesh.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            tensor: self.tensor.clone(),
            spec: self.spec.clone(),
            missing_ranks: self.dead.clone(),
            fill_from: self.fill_from.clone(),
            only: self.only.clone(),
            split: self.split.clone(),
            fuse: self.fuse.clone(),
            rename: self.rename.clone(),
            dtype: self.dtype.clone(),
            out: self.out.clone(),
            format: self.kind.unwrap_or_default().into(),
            file_bytes: self.file_bytes,
            gather: self.gather.clone(),
            engine: self.engine.unwrap_or_default().into(),
            through_engine: self.through_engine || self.engine.is_some(),
            verify: self.no_verify,
            timeout: self.time_out,
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
