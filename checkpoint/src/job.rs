//! What is to be done with a checkpoint, and what does it.

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

/// Everything that a job may be told; what is left out has the default that is said there.
///
/// ```
/// use reshard_checkpoint::Job;
///
/// let job = Job { mesh: Some("tp=2".into()), to: Some("S(0)".into()), ..Job::default() };
/// let report = job.run(&mut ())?.expect("one process reports");
/// assert!(report.verified && report.written.is_empty());
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct ReshardJob {
    /// A .safetensors file, a folder with an index, the output of an earlier job, or what PyTorch or NumPy wrote; else a small block
    /// made by code.
    pub input: Option<PathBuf>,
    /// The mesh to shard over, like `dp=2,tp=4`; else the input's own.
    pub mesh: Option<String>,
    /// The sharding to start from, where the input is whole; else replicated.
    pub from: Option<String>,
    /// The sharding to reach; a tensor that lacks its dims is replicated. With `gather` it may be left out: replicated.
    pub to: Option<String>,
    /// Only this tensor.
    pub tensor: Option<String>,
    /// A TOML file of name patterns and their placements (see [`Spec`](crate::Spec)); the first match wins over `to`.
    pub spec: Option<PathBuf>,
    /// Ranks of the input whose files are not read: they may be missing or damaged. What other ranks hold as well is read from those.
    pub missing_ranks: Vec<usize>,
    /// Where what only dead ranks held is read from instead: another checkpoint with tensors of the same names, types and shapes.
    pub fill_from: Option<PathBuf>,
    /// Only tensors whose names one of these patterns matches: globs, or regular expressions between slashes; else all.
    pub only: Vec<String>,
    /// Tensors that are replaced by their parts: see [`Fusion`].
    pub split: Vec<String>,
    /// Tensors that are made of parts, which they replace: see [`Fusion`].
    pub fuse: Vec<String>,
    /// New names, `s/EXPRESSION/NEW/`, each for the names that those before it left: see [`Checkpoint::renamed`].
    pub rename: Vec<String>,
    /// The type that tensors of floating point are rounded to: `f16`, `bf16`, `f32` or `f64`; else they stay as they are.
    pub dtype: Option<String>,
    /// Where to write one file per rank and what they are, or, where the name ends in `.safetensors`, one file of whole tensors; else nowhere.
    pub out: Option<PathBuf>,
    /// What the files in `out` are.
    pub format: OutputFormat,
    /// A file of whole tensors in `out` has at most so many bytes, or one tensor; else 5 GB.
    pub file_bytes: Option<u64>,
    /// Where to write the whole tensors, as one file; else nowhere.
    pub gather: Option<PathBuf>,
    /// What carries out the plans, where there are any: see `through_engine`.
    pub engine: Engine,
    /// Whether an engine carries plans out even where tensors go from files to files, which needs none.
    ///
    /// It does anyway where nothing is written, where the input is the block made by code, and where `engine` is no threads.
    pub through_engine: bool,
    /// From files to files: write no checksums, read nothing back, and compare no replicas.
    pub verify: bool,
    /// How long a process waits for another that does not come; else a minute.
    pub timeout: Option<Duration>,
    /// Whether it is refused, before anything is written, if an entry that is not a tensor would not be in the output.
    pub strict: bool,
    /// Whether an output that is there already is replaced.
    pub force: bool,
    /// Whether it goes on with what a run of the same job has done that was killed; then what it has done itself stays too, if it is
    /// ended by a signal or fails in reading or writing. Only from files to files.
    pub resume: bool,
}

/// What the files of an output directory are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputFormat {
    /// A safetensors file for every rank, with `sharding.json`, which has shardings and checksums.
    #[default]
    RankFiles,
    /// A distributed checkpoint of PyTorch: `.metadata`, and `__R_0.distcp` for every rank. It goes from files to files.
    Dcp,
    /// The same in safetensors files, as PyTorch's `HuggingFaceStorageWriter` has it: each says where its chunks begin. It goes from
    /// files to files.
    DcpSafetensors,
    /// Whole tensors in safetensors files of at most [`Job::file_bytes`], with `model.safetensors.index.json`. It goes from files to
    /// files, and has no sharding.
    Safetensors,
}

impl OutputFormat {
    /// Whether its tensors are of types that PyTorch has.
    pub(crate) fn is_of_pytorch(self) -> bool {
        match self {
            Self::Dcp | Self::DcpSafetensors => true,
            Self::RankFiles | Self::Safetensors => false,
        }
    }

    /// What it is called in a sentence, where only files are made of files.
    fn made_of_files(self) -> Option<&'static str> {
        match self {
            Self::RankFiles => None,
            Self::Dcp | Self::DcpSafetensors => Some("a distributed checkpoint"),
            Self::Safetensors => Some("a folder of whole tensors"),
        }
    }
}

/// What carries out a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Ranks take turns on the threads of this process.
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
    /// Does the whole job; nothing is written before everything that can be refused has been.
    ///
    /// The report is None in a process that is not the first of its job. An error has been told to the observer.
    pub fn run(&self, observer: &mut dyn Observer) -> Result<Option<JobReport>, Error> {
        match self.whole_file() {
            Ok(None) => self.run_as_is(observer),
            Ok(Some(job)) => job.run_as_is(observer),
            Err(error) => Err(told(error, observer)),
        }
    }

    /// The same job, if `out` is one file of whole tensors.
    fn whole_file(&self) -> Result<Option<Self>, Error> {
        let Some(out) = self.out.as_deref() else { return Ok(None) };
        if !staging::is_whole_file(out)? {
            return Ok(None);
        }
        if self.format == OutputFormat::Dcp || self.gather.is_some() {
            let message = format!(
                "--out {} is one file of whole tensors: leave --gather and --format out, or name a directory",
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
    /// The input, of which only some tensors may be wanted, in other pieces, by other names or of another type: in this order, so that
    /// patterns and fusions speak of the names that the input has, and `to` and `spec` of the new ones.
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

    /// The input without its dead ranks, and what was lost with them.
    fn living(&self) -> Result<(Checkpoint, Vec<LostRegion>), Error> {
        if self.missing_ranks.is_empty() {
            return match self.fill_from {
                None => Ok((Checkpoint::open(self.input.as_deref())?, Vec::new())),
                Some(_) => Err(Error::refused("usage", "say which ranks are dead: --dead 3,5")),
            };
        }
        let Some(input) = &self.input else {
            return Err(Error::refused("usage", "say in which folder of rank files ranks are dead"));
        };
        let remains = Checkpoint::open_degraded(input, &self.missing_ranks)?;
        let lost = remains.lost().to_vec();
        let checkpoint = match &self.fill_from {
            Some(other) => remains.filled(&Checkpoint::open(Some(other))?)?,
            None => remains.whole()?,
        };
        Ok((checkpoint, lost))
    }

    /// Engines write rank files only.
    fn check(&self) -> Result<(), Error> {
        let refused = |why: String| Err(Error::refused("usage", why));
        if self.resume && !self.is_offline() {
            return refused(
                "a run goes on where it stopped only from files to files: with resume say an input and an output, and leave the engine out"
                    .to_owned(),
            );
        }
        if self.dtype.is_some() && !self.is_offline() {
            return refused(
                "an engine moves elements as they are: with a dtype say an input and an output, and leave the engine out"
                    .to_owned(),
            );
        }
        place::is_here(self.out.as_deref())?;
        place::is_here(self.gather.as_deref())?;
        let Some(what) = self.format.made_of_files() else { return Ok(()) };
        if self.engine != Engine::Threads || self.through_engine {
            return refused(format!("{what} is written from files to files: leave the engine out"));
        }
        if self.out.is_none() {
            return refused(format!("say where {what} is to be written: --out DIR"));
        }
        if self.format == OutputFormat::Safetensors && (self.to.is_some() || self.spec.is_some()) {
            return refused("whole tensors have no sharding: leave --to and --spec out".to_owned());
        }
        Ok(())
    }

    /// Whether it goes from files to files without an engine.
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
            "the engine {feature} needs a build with the feature `{feature}`; --engine threads is always there"
        );
        Err(Error::refused("no_such_engine", message))
    }
}
