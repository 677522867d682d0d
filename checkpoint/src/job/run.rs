//! The execution of a reshard job: its options are checked, and it runs through files or an engine.

use std::time::Instant;

use crate::bytes::place;
#[cfg(feature = "mpi")]
use crate::engine::mpi;
#[cfg(feature = "nccl")]
use crate::engine::nccl;
use crate::engine::one_process;
#[cfg(any(feature = "mpi", feature = "nccl"))]
use crate::engine::processes;
use crate::error::Error;
use crate::job::observer::{Observer, told};
use crate::job::report::JobReport;
use crate::job::{Engine, OutputFormat, ReshardJob};
use crate::model::checkpoint::Checkpoint;
use crate::select::spec::PlacementSpec;
use crate::stream;
use crate::write::staging;

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

    /// Runs the job on an opened checkpoint, from files to files; `spec` has placements by name.
    ///
    /// So the options of the input and of engines, and [`ReshardJob::spec`], must have their defaults.
    ///
    /// ```
    /// use reshard_checkpoint::{Checkpoint, PlacementSpec, ReshardJob};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("out");
    /// let block = Checkpoint::open(None)?;
    /// let spec = PlacementSpec::new([("*.weight", "R,S(0)"), ("*", "R,R")])?;
    /// let job = ReshardJob { mesh: Some("dp=2,tp=4".into()), out: Some(out.clone()), ..ReshardJob::default() };
    /// assert!(job.run_on(&block, Some(&spec), &mut ())?.verified);
    /// let sharded = Checkpoint::open(Some(&out))?;
    /// assert_eq!(sharded.tensor("mlp.up.weight")?.sharding().unwrap().to_string(), "R,S(0)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_on(
        &self,
        checkpoint: &Checkpoint,
        spec: Option<&PlacementSpec>,
        observer: &mut dyn Observer,
    ) -> Result<JobReport, Error> {
        let start = Instant::now();
        let mut run = || {
            let whole = self.whole_file()?;
            let job = whole.as_ref().unwrap_or(self);
            job.check_on_opened(spec.is_some())?;
            let input = job.prepared(checkpoint.clone(), Vec::new(), spec.cloned())?;
            stream::carry_out(job, input, start, observer)
        };
        let done = run();
        staging::unless_abandoned();
        done.map_err(|error| told(error, observer))
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
            let start = Instant::now();
            self.open().and_then(|input| stream::carry_out(self, input, start, observer))
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
    /// Checks the options: engines write rank files only.
    fn check(&self) -> Result<(), Error> {
        let refused = |why: String| Err(Error::refused("usage", why));
        if self.resume && !self.is_offline() {
            return refused(
                "`--resume` works from files to files only; pass an input and `--out`, and drop `--engine`"
                    .to_owned(),
            );
        }
        if !self.dtype.is_empty() && !self.is_offline() {
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
        self.check_directory()?;
        if self.format == OutputFormat::Safetensors && (self.to.is_some() || self.spec.is_some()) {
            return refused("whole tensors have no sharding; drop `--to` and `--spec`".to_owned());
        }
        Ok(())
    }

    /// Checks that there is a directory, if the format needs one.
    fn check_directory(&self) -> Result<(), Error> {
        match self.format.made_of_files() {
            Some(what) if self.out.is_none() => {
                let message = format!("{what} needs an output directory; pass `--out DIR`");
                Err(Error::refused("usage", message))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks the options of a job on an opened checkpoint.
    fn check_on_opened(&self, has_spec: bool) -> Result<(), Error> {
        let refused = |why: &str| Err(Error::refused("usage", why));
        let input = self.input.is_some() || self.source.is_some();
        if input || !self.missing_ranks.is_empty() || self.fill_from.is_some() {
            return refused(
                "the job runs on an opened checkpoint; drop `input`, `source`, `missing_ranks` and `fill_from`",
            );
        }
        if has_spec && self.spec.is_some() {
            return refused("both the job and the call have a spec; drop one of them");
        }
        if self.engine != Engine::Threads || self.through_engine {
            return refused("an opened checkpoint is written from files to files; drop the engine");
        }
        if self.out.is_none() && self.gather.is_none() {
            return refused("there is no output; set `out` or `gather`");
        }
        place::is_here(self.out.as_deref())?;
        place::is_here(self.gather.as_deref())?;
        self.check_directory()
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
