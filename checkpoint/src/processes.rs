//! A job where every process of a job holds one rank, and does that rank's part of the run.
//!
//! ```text
//! every rank:   input --open--> tensors --decide--> moves, plans        refusals are told once, by the first rank that has one
//! rank 0:       staging directory, manifest, gathered file              every rank: its own file in the staging directory
//! per tensor:   this rank's shard --exchange--> its new shard --verify against the whole--> its file
//!               --gather: new shards --exchange--> rank 0 --compare with the whole--> gathered file
//! every rank:   its file synced; all have told that they are done
//! rank 0:       renames everything into place, reports
//! ```
//!
//! Input and output are files that all processes see. A rank that fails when others count on it says so and ends the job;
//! what was staged then lies under a hidden name that no reader takes for a result. Only rank 0 reports a success, and
//! only after every rank has verified, written and synced its part.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::time::Instant;

use reshard_collectives::Compiled;
use reshard_collectives::Error as EngineError;
use reshard_sharding::redistribute::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

use super::checkpoint::{Checkpoint, Data};
use super::decision::{self, Move};
use super::exchange::{Way, agrees, moved, opaque, way};
use super::job::Job;
use super::manifest::{MANIFEST_NAME, rank_file_name};
use super::observer::{Observer, told};
use super::outputs::{describe, write_manifest};
use super::report::{Report, TensorReport};
use super::shard_files::{self, ShardFile};
use super::spec::Spec;
use super::staging::{self, Staging};
use super::verify;
use super::wish::Wish;
use crate::error::Error;

/// Why a rank stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// All ranks stop here, and each knows its part of what is to be said.
    Together(Error),
    /// Others wait for this rank, and will in vain.
    Alone(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Alone(error.into())
    }
}

/// A job of processes, and this process as a rank of it.
#[cfg_attr(
    not(any(feature = "mpi", feature = "nccl")),
    allow(dead_code, reason = "tests without engines of processes take no part in how a job ends")
)]
pub(super) trait Crew {
    /// What kind of job it is.
    const NAME: &'static str;

    /// How one of so many processes is started.
    fn launcher(processes: usize) -> String;

    /// This process's rank.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// Every rank's words to every rank, in rank order; nobody returns before all have come.
    fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, EngineError>;

    /// Carries a plan out: this rank's new shard, and the bytes that it received.
    fn redistribute(&mut self, compiled: &Compiled, source: &[u8]) -> Result<(Vec<u8>, u64), EngineError>;

    /// Leaves the job together with all others.
    fn finish(self) -> Result<(), EngineError>;

    /// Leaves the job when others wait for this rank in vain; they fail in time, or with this process.
    fn abort(self);
}

/// Runs this process's part; the report is rank 0's.
#[cfg_attr(
    not(any(feature = "mpi", feature = "nccl")),
    allow(dead_code, reason = "tests without engines of processes take no part in how a job ends")
)]
pub(super) fn run(
    job: &Job,
    mut crew: impl Crew,
    observer: &mut dyn Observer,
) -> Result<Option<Report>, Error> {
    let rank = crew.rank();
    match carry_out(job, &mut crew, observer) {
        Ok(report) => {
            if let Err(error) = crew.finish() {
                return Err(told(error.into(), observer));
            }
            Ok((rank == 0).then_some(report))
        }
        Err(Stop::Together(error)) => {
            // Said before anybody leaves: the launcher may end the job as soon as one has left with such a status.
            let error = told(error, observer);
            match crew.finish() {
                Ok(()) => Err(error),
                Err(left) => Err(told(left.into(), observer)),
            }
        }
        Err(Stop::Alone(error)) => {
            let error = told(error.about(format_args!("rank {rank}")), observer);
            crew.abort();
            Err(error)
        }
    }
}

/// Succeeds if all ranks have; otherwise the first that has not says why, and the others end as it does.
fn together<T>(crew: &mut impl Crew, result: Result<T, Error>) -> Result<T, Stop> {
    let status = result.as_ref().err().map_or(0, |error| u64::from(error.status()));
    let all = crew.share(&[status])?.concat();
    match (all.iter().position(|status| *status != 0), result) {
        (None, result) => result.map_err(Stop::Together),
        (Some(first), Err(error)) if first == crew.rank() => Err(Stop::Together(error)),
        (Some(first), _) => Err(Stop::Together(Error::told_elsewhere(all[first] as u8))),
    }
}

/// The plans of all tensors, compiled for this rank where it has a part in them.
#[derive(Default)]
struct Plans(HashMap<Way, (Plan, Option<Compiled>)>);

impl Plans {
    fn add(&mut self, way: Way, rank: usize) -> Result<(), Error> {
        if let Entry::Vacant(slot) = self.0.entry(way) {
            let (from, to, item_bytes) = slot.key();
            let plan = Planner::new().plan(from, to, *item_bytes)?;
            let part = from.mesh().contains(rank) || to.mesh().contains(rank);
            let compiled = part.then(|| Compiled::new(&plan, rank, opaque(*item_bytes))).transpose()?;
            slot.insert((plan, compiled));
        }
        Ok(())
    }

    /// Carries a way out: this rank's new shard, the plan, and the bytes that this rank received.
    fn run(&self, way: &Way, crew: &mut impl Crew, source: &[u8]) -> Result<(Vec<u8>, &Plan, u64), Error> {
        let Some((plan, compiled)) = self.0.get(way) else {
            return Err(Error::failed("internal", "it was not planned"));
        };
        let Some(compiled) = compiled else { return Ok((Vec::new(), plan, 0)) };
        if source.len() != compiled.source_bytes() {
            let (rank, which) = (crew.rank(), "source");
            let (needed, given) = (compiled.source_bytes(), source.len());
            return Err(EngineError::Buffer { rank, which, needed, given }.into());
        }
        let (target, received) = crew.redistribute(compiled, source)?;
        Ok((target, plan, received))
    }
}

/// From the new shards to the whole on rank 0.
fn gathering(tensor: &Move<'_>) -> Result<Way, Error> {
    let one = Mesh::new([("one", 1)])?;
    let whole = Sharding::replicated(&one, tensor.unit_to.shape())?;
    Ok((tensor.unit_to.clone(), whole, tensor.units.bytes))
}

pub(super) fn carry_out<C: Crew>(
    job: &Job,
    crew: &mut C,
    observer: &mut dyn Observer,
) -> Result<Report, Stop> {
    let start = Instant::now();
    let checkpoint = together(crew, Checkpoint::open(job.input.as_deref()))?;
    let spec = together(crew, job.spec.as_deref().map(Spec::read).transpose())?;
    let wish = together(crew, Wish::of(job, &checkpoint.origin, spec.as_ref()))?;
    let moves = decision::decide(&checkpoint, &wish);
    let mut moves = together(crew, moves)?;
    moves.sort_by(|a, b| {
        shard_files::file_order((&a.tensor.name, a.tensor.dtype), (&b.tensor.name, b.tensor.dtype))
    });
    together(crew, enough_ranks::<C>(&moves, crew.size()))?;
    let plans = together(crew, plan(&moves, crew.rank(), job.gather.is_some()))?;
    let mut files = Files::begin(job, crew, &wish.mesh, &moves, &checkpoint)?;
    let bytes = moves.iter().map(|tensor| tensor.tensor.byte_len()).sum();
    // One process shows how far all are.
    let mut nobody = ();
    let observer = if crew.rank() == 0 { observer } else { &mut nobody };
    observer.begins(bytes);
    let mut received = Vec::with_capacity(moves.len());
    for tensor in &moves {
        observer.reaches(&tensor.tensor.name);
        let got = reshard(tensor, &plans, crew, &mut files)
            .map_err(|error| error.about_tensor(&tensor.tensor.name))?;
        received.push(got);
        observer.moved(tensor.tensor.byte_len());
    }
    observer.ends();
    let everywhere = crew.share(&received)?;
    let worst = |at: usize| everywhere.iter().map(|rank| rank[at]).max().unwrap_or(0);
    let reports = moves.iter().enumerate().map(|(at, tensor)| report(tensor, &plans, worst(at)));
    let reports = together(crew, reports.collect())?;
    let written = files.finish(crew)?;
    Ok(Report::new(reports, written, start.elapsed()))
}

/// Every rank of the meshes is a process of the job, and every process is a rank of them.
fn enough_ranks<C: Crew>(moves: &[Move<'_>], processes: usize) -> Result<(), Error> {
    let world = |tensor: &Move<'_>| tensor.unit_from.mesh().world().max(tensor.unit_to.mesh().world());
    let needed = moves.iter().map(world).max().unwrap_or(processes);
    if needed == processes {
        return Ok(());
    }
    let (name, launcher) = (C::NAME, C::launcher(needed));
    let message = format!(
        "the meshes have {needed} ranks and the {name} job has {processes}: start it with `{launcher}`"
    );
    Err(Error::refused("rank", message))
}

fn plan(moves: &[Move<'_>], rank: usize, gathers: bool) -> Result<Plans, Error> {
    let mut plans = Plans::default();
    for tensor in moves {
        let about = |error: Error| error.about_tensor(&tensor.tensor.name);
        plans.add(way(tensor), rank).map_err(about)?;
        if gathers {
            plans.add(gathering(tensor)?, rank).map_err(about)?;
        }
    }
    Ok(plans)
}

/// One tensor: exchange, verify, write; returns the bytes that this rank received.
fn reshard(tensor: &Move<'_>, plans: &Plans, crew: &mut impl Crew, files: &mut Files) -> Result<u64, Error> {
    let (rank, item_bytes) = (crew.rank(), tensor.units.bytes);
    let (from, to) = (&tensor.unit_from, &tensor.unit_to);
    let place = from.mesh().ranks().position(|holder| holder == rank);
    let whole;
    let cut;
    let source: &[u8] = match &tensor.tensor.data {
        Data::Whole(bytes) => {
            whole = std::borrow::Cow::Borrowed(bytes.as_slice());
            cut = match place {
                Some(_) => verify::cut_rank(from, item_bytes, rank, bytes.as_slice())?,
                None => std::borrow::Cow::Borrowed(&[][..]),
            };
            &cut
        }
        Data::Shards { shards, .. } => {
            let shards: Vec<&[u8]> = shards.iter().map(super::mapped::Bytes::as_slice).collect();
            whole = verify::assemble(from, item_bytes, &shards)?;
            place.map_or(&[], |place| shards[place])
        }
    };
    let (shard, _, received) = plans.run(&way(tensor), crew, source)?;
    if to.mesh().contains(rank) {
        verify::verify_rank(to, item_bytes, rank, &shard, &whole)?;
        if let Some(file) = &mut files.own {
            file.append(&shard)?;
        }
    }
    if files.gathers {
        let (gathered, ..) = plans.run(&gathering(tensor)?, crew, &shard)?;
        if let Some((_, file)) = &mut files.gathered {
            if gathered != *whole {
                let message = "what was gathered differs from the whole tensor";
                return Err(Error::failed("verification", message));
            }
            file.append(&gathered)?;
        }
    }
    Ok(received)
}

fn report(tensor: &Move<'_>, plans: &Plans, received_bytes: u64) -> Result<TensorReport, Error> {
    let Some((plan, _)) = plans.0.get(&way(tensor)) else {
        return Err(Error::failed("internal", "it was not planned"));
    };
    agrees(received_bytes, plan).map_err(|error| error.about_tensor(&tensor.tensor.name))?;
    Ok(TensorReport::new(tensor, &moved(plan, received_bytes)))
}

/// This rank's part of the outputs.
struct Files {
    /// The directory, on rank 0, which puts it in place; with the number of rank files.
    directory: Option<(Staging, usize)>,
    /// This rank's file in the directory.
    own: Option<ShardFile>,
    /// The gathered file, on rank 0.
    gathered: Option<(Staging, ShardFile)>,
    gathers: bool,
}

impl Files {
    fn begin(
        job: &Job,
        crew: &mut impl Crew,
        mesh: &Mesh,
        moves: &[Move<'_>],
        checkpoint: &Checkpoint,
    ) -> Result<Self, Stop> {
        let first = crew.rank() == 0;
        let staged = if first { stage(job, mesh, moves, checkpoint) } else { Ok((None, None)) };
        let (directory, gathered) = together(crew, staged)?;
        // The staging directory is named after rank 0's process.
        let process = crew.share(&[u64::from(std::process::id())])?.concat()[0];
        let own = match &job.out {
            Some(out) if mesh.contains(crew.rank()) => {
                rank_file(out, process as u32, crew.rank(), mesh, moves, checkpoint).map(Some)
            }
            Some(_) | None => Ok(None),
        };
        let own = together(crew, own)?;
        let directory = directory.map(|staging| (staging, mesh.size()));
        Ok(Self { directory, own, gathered, gathers: job.gather.is_some() })
    }

    /// Syncs this rank's file; when all have, rank 0 puts everything in place.
    fn finish(mut self, crew: &mut impl Crew) -> Result<Vec<String>, Stop> {
        let mut synced = self.own.as_mut().map_or(Ok(()), ShardFile::finish);
        if let (Ok(()), Some((_, file))) = (&synced, &mut self.gathered) {
            synced = file.finish();
        }
        together(crew, synced)?;
        let mut written = Vec::new();
        let mut ready = Vec::new();
        if let Some((staging, count)) = self.directory {
            written.push(format!("{count} rank files and {MANIFEST_NAME} in {}", staging.target().display()));
            ready.push(staging);
        }
        if let Some((staging, _)) = self.gathered {
            written.push(format!("whole tensors in {}", staging.target().display()));
            ready.push(staging);
        }
        together(crew, ready.into_iter().try_for_each(Staging::put_in_place))?;
        Ok(written)
    }
}

/// What rank 0 begins.
type Staged = (Option<Staging>, Option<(Staging, ShardFile)>);

fn stage(job: &Job, mesh: &Mesh, moves: &[Move<'_>], checkpoint: &Checkpoint) -> Result<Staged, Error> {
    let (out, gather) = (job.out.as_deref(), job.gather.as_deref());
    staging::check(out, gather, job.force)?;
    let directory = out.map(|dir| Staging::directory(dir, job.force)).transpose()?;
    if let Some(staging) = &directory {
        write_manifest(staging.path(), mesh, moves)?;
    }
    let gathered = match gather {
        None => None,
        Some(file) => {
            let staging = Staging::file(file, job.force)?;
            let tensors = moves.iter().map(|tensor| describe(tensor, &tensor.tensor.shape));
            let file = ShardFile::create(staging.path(), tensors, checkpoint.free_texts.as_ref())?;
            Some((staging, file))
        }
    };
    Ok((directory, gathered))
}

fn rank_file(
    out: &Path,
    process: u32,
    rank: usize,
    mesh: &Mesh,
    moves: &[Move<'_>],
    checkpoint: &Checkpoint,
) -> Result<ShardFile, Error> {
    let shapes: Vec<_> = moves.iter().map(|tensor| tensor.to.local_shape(rank)).collect::<Result<_, _>>()?;
    let tensors = moves.iter().zip(&shapes).map(|(tensor, shape)| describe(tensor, shape));
    let path = staging::staged_by(out, process)?.join(rank_file_name(rank, mesh.world()));
    ShardFile::create(&path, tensors, checkpoint.free_texts.as_ref())
}
