//! The options of a reshard job, and its execution.

use std::path::PathBuf;
use std::time::Duration;

use super::checkpoint::Checkpoint;
use super::error::Error;
use super::fusion::Fusion;
#[cfg(feature = "mpi")]
use super::mpi;
#[cfg(feature = "nccl")]
use super::nccl;
use super::observer::{Observer, told};
use super::offline;
use super::one_process;
use super::place;
#[cfg(any(feature = "mpi", feature = "nccl"))]
use super::processes;
use super::remains::LostRegion;
use super::report::JobReport;
use super::staging;

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
    /// It is a `.safetensors` file, a folder with an index, an earlier job's output, or a file of PyTorch or
    /// NumPy.
    pub input: Option<PathBuf>,
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
    /// Name patterns of the tensors to use: globs, or regular expressions between slashes; default: all.
    pub only: Vec<String>,
    /// Rules by which tensors are replaced by their parts: see [`Fusion`].
    pub split: Vec<String>,
    /// Rules by which parts are replaced by fused tensors: see [`Fusion`].
    pub fuse: Vec<String>,
    /// New names, `s/EXPRESSION/NEW/`, applied in sequence: see [`Checkpoint::renamed`].
    pub rename: Vec<String>,
    /// The dtype for floating-point tensors: `f16`, `bf16`, `f32` or `f64`; default: unchanged.
    pub dtype: Option<String>,
    /// The output directory, with one file per rank by default; default: nothing is written.
    ///
    /// If the name ends in `.safetensors`, the output is one file of whole tensors.
    pub out: Option<PathBuf>,
    /// The format of the files in `out`.
    pub format: OutputFormat,
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
            mesh: None,
            from: None,
            to: None,
            spec: None,
            missing_ranks: Vec::new(),
            fill_from: None,
            only: Vec::new(),
            split: Vec::new(),
            fuse: Vec::new(),
            rename: Vec::new(),
            dtype: None,
            out: None,
            format: OutputFormat::default(),
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
    fn made_of_files(self) -> Option<&'static str> {
        match self {
            Self::RankFiles => None,
            Self::Dcp | Self::DcpSafetensors => Some("a distributed checkpoint"),
            Self::Safetensors => Some("a folder of whole tensors"),
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

impl ReshardJob {
    /// Runs the whole job; nothing is written before all checks of the input and the options have passed.
    ///
    /// The report is `None` in a process that is not the first of its job. An error has already been passed
    /// to the observer.
    pub fn run(&self, observer: &mut dyn Observer) -> Result<Option<JobReport>, Error> {
        match self.whole_file() {
            Ok(None) => self.run_as_is(observer),
            Ok(Some(job)) => job.run_as_is(observer),
            Err(error) => Err(told(error, observer)),
        }
    }

    /// Returns the equivalent job with `gather`, if `out` is one file of whole tensors.
    fn whole_file(&self) -> Result<Option<Self>, Error> {
        let Some(out) = self.out.as_deref() else { return Ok(None) };
        if !staging::is_whole_file(out)? {
            return Ok(None);
        }
        if self.format == OutputFormat::Dcp || self.gather.is_some() {
            let message = format!(
                "`--out {}` is one file of whole tensors; drop `--gather` and `--format`, or name a directory",
                out.display()
            );
            return Err(Error::refused("usage", message));
        }
        Ok(Some(Self { gather: self.out.clone(), out: None, ..self.clone() }))
    }

    fn run_as_is(&self, observer: &mut dyn Observer) -> Result<Option<JobReport>, Error> {
        if let Err(error) = self.engine.check().and_then(|()| self.check()) {
            return Err(told(error, observer));
        }
        let done = self.carry_out(observer);
        staging::unless_abandoned();
        done
    }

    fn carry_out(&self, observer: &mut dyn Observer) -> Result<Option<JobReport>, Error> {
        #[cfg(feature = "mpi")]
        if self.engine == Engine::Mpi {
            let comm = mpi::comm(self).map_err(|error| told(error, observer))?;
            return processes::run(self, comm, observer);
        }
        #[cfg(feature = "nccl")]
        if self.engine == Engine::Nccl {
            let comm = nccl::comm(self).map_err(|error| told(error, observer))?;
            return processes::run(self, comm, observer);
        }
        let done = if self.is_offline() {
            offline::carry_out(self, observer)
        } else {
            one_process::carry_out(self, observer, &|_, _, _| {})
        };
        match done {
            Ok(report) => Ok(Some(report)),
            Err(error) => Err(told(error, observer)),
        }
    }
}

impl ReshardJob {
    /// Opens the input and applies the selection, splits, fusions, renames and the dtype, in this order.
    ///
    /// So patterns and fusions refer to the names of the input, and `to` and `spec` to the new ones.
    pub(crate) fn open(&self) -> Result<(Checkpoint, Vec<LostRegion>), Error> {
        let (mut checkpoint, lost) = self.living()?;
        if !self.only.is_empty() {
            checkpoint = checkpoint.filter(self.only.iter().map(|pattern| &pattern[..]))?;
        }
        for split in &self.split {
            checkpoint = checkpoint.split(&split.parse::<Fusion>()?)?;
        }
        for fuse in &self.fuse {
            checkpoint = checkpoint.fused(&fuse.parse::<Fusion>()?)?;
        }
        for rename in &self.rename {
            checkpoint = checkpoint.renamed(rename)?;
        }
        if let Some(dtype) = &self.dtype {
            checkpoint = checkpoint.cast(dtype)?;
        }
        Ok((checkpoint, lost))
    }

    /// Opens the input without its missing ranks, and returns the data that was lost with them.
    fn living(&self) -> Result<(Checkpoint, Vec<LostRegion>), Error> {
        if self.missing_ranks.is_empty() {
            return match self.fill_from {
                None => Ok((Checkpoint::open(self.input.as_deref())?, Vec::new())),
                Some(_) => Err(Error::refused("usage", "`--fill-from` needs `--missing-ranks`, e.g. 3,5")),
            };
        }
        let Some(input) = &self.input else {
            let message = "`--missing-ranks` needs an input folder with one file per rank";
            return Err(Error::refused("usage", message));
        };
        let remains = Checkpoint::open_degraded(input, &self.missing_ranks)?;
        let lost = remains.lost().to_vec();
        let checkpoint = match &self.fill_from {
            Some(other) => remains.filled(&Checkpoint::open(Some(other))?)?,
            None => remains.whole()?,
        };
        Ok((checkpoint, lost))
    }

    /// Checks the options: engines write rank files only.
    fn check(&self) -> Result<(), Error> {
        let refused = |why: String| Err(Error::refused("usage", why));
        if self.resume && !self.is_offline() {
            return refused(
                "`--resume` works from files to files only; pass an input and `--out`, and drop `--engine`"
                    .to_owned(),
            );
        }
        if self.dtype.is_some() && !self.is_offline() {
            return refused(
                "`--dtype` works from files to files only; pass an input and `--out`, and drop `--engine`"
                    .to_owned(),
            );
        }
        place::is_here(self.out.as_deref())?;
        place::is_here(self.gather.as_deref())?;
        let Some(what) = self.format.made_of_files() else { return Ok(()) };
        if self.engine != Engine::Threads || self.through_engine {
            return refused(format!("{what} is written from files to files only; drop `--engine`"));
        }
        if self.out.is_none() {
            return refused(format!("{what} needs an output directory; pass `--out DIR`"));
        }
        if self.format == OutputFormat::Safetensors && (self.to.is_some() || self.spec.is_some()) {
            return refused("whole tensors have no sharding; drop `--to` and `--spec`".to_owned());
        }
        Ok(())
    }

    /// Returns `true` if it converts files to files without an engine.
    fn is_offline(&self) -> bool {
        if self.format.made_of_files().is_some() {
            return true;
        }
        let writes = self.out.is_some() || self.gather.is_some();
        self.engine == Engine::Threads && !self.through_engine && self.input.is_some() && writes
    }
}

impl Engine {
    fn check(self) -> Result<(), Error> {
        let feature = match self {
            Self::Threads => return Ok(()),
            Self::Mpi if cfg!(feature = "mpi") => return Ok(()),
            Self::Mpi => "mpi",
            Self::Cuda if cfg!(feature = "cuda") => return Ok(()),
            Self::Cuda => "cuda",
            Self::Nccl if cfg!(feature = "nccl") => return Ok(()),
            Self::Nccl => "nccl",
        };
        let message = format!(
            "engine `{feature}` is not compiled in; rebuild with `--features {feature}`, or use `--engine threads`"
        );
        Err(Error::unsupported("no_such_engine", message))
    }
}
