//! A process that holds one rank, in a job with one process per rank.
//!
//! Each opens the input, plans, redistributes, verifies and writes its rank's part. A rank that fails while
//! others depend on it reports that and ends the job; the staged output then has a hidden name that no reader
//! takes for a result. Only rank 0 reports a success.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use reshard_collectives::CompiledPlan;
use reshard_collectives::Error as EngineError;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

use crate::engine::exchange::{Arrived, Exchange, Moved, Way, not_planned, opaque, way};
use crate::engine::held::Held;
use crate::engine::pipeline;
use crate::engine::together::Stop;
use crate::error::Error;
use crate::job::ReshardJob;
use crate::job::decision::Move;
use crate::job::observer::{Observer, told};
use crate::job::report::JobReport;
use crate::rooms::Rooms;

/// A job of processes, and this process as a rank of it.
#[cfg_attr(
    not(any(feature = "mpi", feature = "nccl")),
    allow(dead_code, reason = "tests without engines of processes take no part in how a job ends")
)]
pub(crate) trait Crew {
    /// The kind of the job, for messages.
    const NAME: &'static str;

    /// Returns the command that starts a job of `processes` processes.
    fn launcher(processes: usize) -> String;

    /// Returns this process's rank.
    fn rank(&self) -> usize;

    /// Returns the number of processes.
    fn size(&self) -> usize;

    /// Sends this rank's words to all; returns every rank's words in rank order, once all have arrived.
    fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, EngineError>;

    /// Executes a plan; returns this rank's new shard, and the bytes that it received.
    fn redistribute(&mut self, compiled: &CompiledPlan, source: &[u8])
    -> Result<(Vec<u8>, u64), EngineError>;

    /// Leaves the job in agreement with all other ranks.
    fn finish(self) -> Result<(), EngineError>;

    /// Leaves the job while others wait for this rank; they fail on timeout, or with this process.
    fn abort(self);
}

/// Runs this process's part; only rank 0 returns the report.
#[cfg_attr(
    not(any(feature = "mpi", feature = "nccl")),
    allow(dead_code, reason = "tests without engines of processes take no part in how a job ends")
)]
pub(crate) fn run(
    job: &ReshardJob,
    crew: impl Crew,
    observer: &mut dyn Observer,
) -> Result<Option<JobReport>, Error> {
    let rank = crew.rank();
    let mut one = OneRank::new(crew);
    let done = pipeline::carry_out(job, &mut one, observer, &|_, _, _| {});
    let crew = one.crew;
    match done {
        Ok(report) => {
            if let Err(error) = crew.finish() {
                return Err(told(error.into(), observer));
            }
            Ok((rank == 0).then_some(report))
        }
        Err(Stop::Together(error)) => {
            // Reported before any rank leaves: the launcher may end the job as soon as one exits with this
            // status.
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

/// One rank, with the plans of all tensors, compiled if the rank participates.
pub(crate) struct OneRank<C> {
    crew: C,
    plans: HashMap<Way, (Plan, Option<CompiledPlan>)>,
}

impl<C: Crew> OneRank<C> {
    pub(crate) fn new(crew: C) -> Self {
        Self { crew, plans: HashMap::new() }
    }

    fn add(&mut self, way: Way) -> Result<(), Error> {
        let rank = self.crew.rank();
        if let Entry::Vacant(slot) = self.plans.entry(way) {
            let (from, to, item_bytes) = slot.key();
            let plan = Planner::new().plan(from, to, opaque(*item_bytes))?;
            let part = from.mesh().contains(rank) || to.mesh().contains(rank);
            let compiled = part.then(|| CompiledPlan::new(&plan, rank)).transpose()?;
            slot.insert((plan, compiled));
        }
        Ok(())
    }

    /// Executes the plan of a key; returns this rank's new shard, and the bytes that it received.
    fn redistribute(&mut self, way: &Way, source: &[u8]) -> Result<(Vec<u8>, u64), Error> {
        let (_, compiled) = self.plans.get(way).ok_or_else(not_planned)?;
        let Some(compiled) = compiled else { return Ok((Vec::new(), 0)) };
        if source.len() != compiled.source_bytes() {
            let (rank, which) = (self.crew.rank(), "source");
            let (needed, given) = (compiled.source_bytes(), source.len());
            return Err(EngineError::Buffer { rank, which, needed, given }.into());
        }
        Ok(self.crew.redistribute(compiled, source)?)
    }
}

impl<C: Crew> Exchange for OneRank<C> {
    fn holds(&self, rank: usize) -> bool {
        rank == self.crew.rank()
    }

    fn process(&self) -> usize {
        self.crew.rank()
    }

    fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, EngineError> {
        self.crew.share(words)
    }

    fn prepare(&mut self, moves: &[Move<'_>], gathers: bool) -> Result<(), Error> {
        enough_ranks::<C>(moves, self.crew.size())?;
        for tensor in moves {
            let about = |error: Error| error.about_tensor(&tensor.tensor.name);
            self.add(way(tensor)).map_err(about)?;
            if gathers {
                self.add(gathering(tensor)?).map_err(about)?;
            }
        }
        Ok(())
    }

    fn batches<'a, 'b>(&self, moves: &'a [Move<'b>]) -> Vec<&'a [Move<'b>]> {
        moves.chunks(1).collect()
    }

    fn exchange(
        &mut self,
        batch: &[Move<'_>],
        held: &[Held<'_>],
        _rooms: &Rooms,
        gathers: bool,
        arrived: Arrived<'_>,
    ) -> Result<Vec<Moved>, Error> {
        let rank = self.crew.rank();
        let mut all = Vec::with_capacity(batch.len());
        for (at, (tensor, held)) in batch.iter().zip(held).enumerate() {
            let (mut shard, received) = self.redistribute(&way(tensor), held.shard(rank))?;
            if tensor.unit_to.mesh().contains(rank) {
                arrived(at, rank, &mut shard)?;
            }
            let gathered =
                if gathers { Some(self.redistribute(&gathering(tensor)?, &shard)?.0) } else { None };
            all.push(Moved { received, gathered: gathered.filter(|_| rank == 0) });
        }
        Ok(all)
    }

    fn plan(&self, tensor: &Move<'_>) -> Result<&Plan, Error> {
        self.plans.get(&way(tensor)).map(|(plan, _)| plan).ok_or_else(not_planned)
    }
}

/// Returns the source and target of the gather from the new shards to the whole on rank 0.
fn gathering(tensor: &Move<'_>) -> Result<Way, Error> {
    let one = Mesh::new([("one", 1)])?;
    let whole = Sharding::replicated(&one, tensor.unit_to.shape())?;
    Ok((tensor.unit_to.clone(), whole, tensor.units.bytes))
}

/// Checks that the meshes have as many ranks as the job has processes.
fn enough_ranks<C: Crew>(moves: &[Move<'_>], processes: usize) -> Result<(), Error> {
    let world =
        |tensor: &Move<'_>| tensor.unit_from.mesh().world_size().max(tensor.unit_to.mesh().world_size());
    let needed = moves.iter().map(world).max().unwrap_or(processes);
    if needed == processes {
        return Ok(());
    }
    let (name, launcher) = (C::NAME, C::launcher(needed));
    let message = format!(
        "the meshes have {needed} ranks, but the {name} job has {processes}; start it with `{launcher}`"
    );
    Err(Error::refused("rank", message))
}
