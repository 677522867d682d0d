//! The options of a reshard job.

pub(crate) mod carried;
pub(crate) mod decision;
pub(crate) mod input;
pub(crate) mod observer;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod wish;

use std::path::PathBuf;
use std::time::Duration;

/// The options of a reshard job; unset fields take the documented default.
///
/// ```
/// use reshard_checkpoint::ReshardJob;
///
/// let job = ReshardJob { mesh: Some("tp=2".into()), to: Some("S(0)".into()), ..ReshardJob::default() };
/// let report = job.run(&mut ())?.expect("one process reports");
/// assert!(report.verified && report.written.is_empty());
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub struct ReshardJob {
    /// The input; default: a small block made by code.
    ///
    /// It is a file of safetensors, PyTorch or NumPy, a folder of such files, an earlier job's output, or a
    /// checkpoint of PyTorch or Orbax.
    pub input: Option<PathBuf>,
    /// A TOML file that describes the files of the input, if they do not: see
    /// [`SourceSpec`](crate::SourceSpec).
    pub source: Option<PathBuf>,
    /// The mesh to shard over, like `dp=2,tp=4`; default: the input's mesh.
    pub mesh: Option<String>,
    /// The source sharding of an input of whole tensors; default: replicated.
    pub from: Option<String>,
    /// The target sharding; a tensor that lacks its dims is replicated. Optional with `gather`: replicated.
    pub to: Option<String>,
    /// A TOML file of name patterns and placements; a match wins over `to`: see
    /// [`PlacementSpec`](crate::PlacementSpec).
    pub spec: Option<PathBuf>,
    /// Ranks of the input whose files are missing or damaged; they are not read, but their replicas are.
    pub missing_ranks: Vec<usize>,
    /// A checkpoint that replaces data held only by missing ranks; its names, types and shapes must match.
    pub fill_from: Option<PathBuf>,
    /// Name patterns of the tensors to use, see [`Checkpoint::filter`](crate::Checkpoint::filter); default: all.
    pub only: Vec<String>,
    /// A file with a mapping, whose rules make the tensors of the output: see [`Checkpoint::mapped`](crate::Checkpoint::mapped).
    ///
    /// It is TOML if the name ends in `.toml`, and otherwise the lines of the rules alone.
    pub map: Option<PathBuf>,
    /// `true` to read the rules of `map` from right to left.
    pub inverse: bool,
    /// Values of numbers in the rules of `map`: `h=32` for `$h`.
    pub numbers: Vec<String>,
    /// Rules of a mapping that are read backwards, each on the result of the one before: `qkv = 4 q + k + v by 8`.
    pub split: Vec<String>,
    /// Rules of a mapping, each on the result of the one before, after those of `split`.
    pub fuse: Vec<String>,
    /// New names, `s/EXPRESSION/NEW/`, applied in sequence: see [`Checkpoint::renamed`](crate::Checkpoint::renamed).
    pub rename: Vec<String>,
    /// The dtypes for floating-point tensors, `bf16` or `*.bias=keep`, see
    /// [`Checkpoint::cast_each`](crate::Checkpoint::cast_each); default: unchanged.
    pub dtype: Vec<String>,
    /// The output directory, with one file per rank by default; default: nothing is written.
    ///
    /// If the name ends in `.safetensors`, the output is one file of whole tensors.
    pub out: Option<PathBuf>,
    /// The format of the files in `out`.
    pub format: OutputFormat,
    /// The files that hold data of several ranks.
    pub replicas: Replicas,
    /// The most bytes of a file of whole tensors in `out`, unless one tensor is larger; default: 5 GB.
    pub file_bytes: Option<u64>,
    /// The file for the whole tensors; default: none.
    pub gather: Option<PathBuf>,
    /// The engine that executes the plans, if there are any: see `through_engine`.
    pub engine: Engine,
    /// `true` to use an engine even from files to files, where none is needed.
    ///
    /// An engine is always used if there is no output, if the input is the block made by code, or if `engine`
    /// is not `Threads`.
    pub through_engine: bool,
    /// `true`, the default, to write checksums, verify the output and compare replicas, from files to files.
    pub verify: bool,
    /// The time to wait for a peer process; default: one minute.
    pub timeout: Option<Duration>,
    /// `true` to fail before writing if the output would lack an entry that is not a tensor.
    pub strict: bool,
    /// `true` to replace an existing output.
    pub force: bool,
    /// `true` to continue the work of a killed run of the same job; only from files to files.
    ///
    /// The work of this run is then retained too, if a signal ends it or I/O fails.
    pub resume: bool,
}

impl Default for ReshardJob {
    fn default() -> Self {
        Self {
            input: None,
            source: None,
            mesh: None,
            from: None,
            to: None,
            spec: None,
            missing_ranks: Vec::new(),
            fill_from: None,
            only: Vec::new(),
            map: None,
            inverse: false,
            numbers: Vec::new(),
            split: Vec::new(),
            fuse: Vec::new(),
            rename: Vec::new(),
            dtype: Vec::new(),
            out: None,
            format: OutputFormat::default(),
            replicas: Replicas::default(),
            file_bytes: None,
            gather: None,
            engine: Engine::default(),
            through_engine: false,
            verify: true,
            timeout: None,
            strict: false,
            force: false,
            resume: false,
        }
    }
}

/// The format of the files of an output directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutputFormat {
    /// A safetensors file for every rank, with `sharding.json`, which has shardings and checksums.
    #[default]
    RankFiles,
    /// A PyTorch distributed checkpoint: `.metadata`, and `__R_0.distcp` per rank. Only from files to files.
    Dcp,
    /// A distributed checkpoint in safetensors files, in the layout of PyTorch's `HuggingFaceStorageWriter`.
    ///
    /// Each file stores the offsets of its chunks. Only from files to files.
    DcpSafetensors,
    /// Whole tensors in safetensors files of at most [`ReshardJob::file_bytes`], with an index.
    ///
    /// The index is `model.safetensors.index.json`. Only from files to files; it has no sharding.
    Safetensors,
}

impl OutputFormat {
    /// Returns `true` if its tensors must have dtypes of PyTorch.
    pub(crate) fn is_of_pytorch(self) -> bool {
        match self {
            Self::Dcp | Self::DcpSafetensors => true,
            Self::RankFiles | Self::Safetensors => false,
        }
    }

    /// Returns the format's name in messages, if only files can be converted to it.
    pub(crate) fn made_of_files(self) -> Option<&'static str> {
        match self {
            Self::RankFiles => None,
            Self::Dcp | Self::DcpSafetensors => Some("a distributed checkpoint"),
            Self::Safetensors => Some("a folder of whole tensors"),
        }
    }
}

/// The files that hold data of several ranks, in a folder of rank files.
///
/// A distributed checkpoint of PyTorch always holds it once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Replicas {
    /// The file of every rank has its whole shard.
    #[default]
    Every,
    /// The ranks that hold the same data each write a part of it.
    Once,
}

impl Replicas {
    /// Returns the choice for the shards of a format; formats of chunks or whole tensors hold all data once anyway.
    pub(crate) fn in_files(self, format: OutputFormat) -> Self {
        match format {
            OutputFormat::RankFiles => self,
            OutputFormat::Dcp | OutputFormat::DcpSafetensors | OutputFormat::Safetensors => Self::Every,
        }
    }
}

/// The engine that executes plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// Ranks run in turns on the threads of this process.
    #[default]
    Threads,
    /// Ranks are processes of an MPI job (feature `mpi`).
    Mpi,
    /// Ranks share one CUDA device (feature `cuda`).
    Cuda,
    /// Ranks are processes with a CUDA device each (feature `nccl`).
    Nccl,
}
