//! A process that holds one rank, of a job that has one for each.
//!
//! Each opens the input, plans, moves, verifies and writes its own rank's part. A rank that fails when others count on it
//! says so and ends the job; what was staged then lies under a hidden name that no reader takes for a result. Only rank 0
//! reports a success.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use reshard_collectives::CompiledPlan;
use reshard_collectives::Error as EngineError;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Mesh, Sharding};

use super::decision::Move;
use super::error::Error;
use super::exchange::{Arrived, Exchange, Moved, Way, not_planned, opaque, way};
use super::held::Held;
use super::job::ReshardJob;
use super::observer::{Observer, told};
use super::pipeline;
use super::report::JobReport;
use super::rooms::Rooms;
use super::together::Stop;

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
    fn redistribute(&mut self, compiled: &CompiledPlan, source: &[u8])
    -> Result<(Vec<u8>, u64), EngineError>;

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

/// One rank, with the plans of all tensors, compiled for it where it has a part in them.
pub(super) struct OneRank<C> {
    crew: C,
    plans: HashMap<Way, (Plan, Option<CompiledPlan>)>,
}

impl<C: Crew> OneRank<C> {
    pub(super) fn new(crew: C) -> Self {
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

    /// Carries a way out: this rank's new shard, and the bytes that it received.
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

/// From the new shards to the whole on rank 0.
fn gathering(tensor: &Move<'_>) -> Result<Way, Error> {
    let one = Mesh::new([("one", 1)])?;
    let whole = Sharding::replicated(&one, tensor.unit_to.shape())?;
    Ok((tensor.unit_to.clone(), whole, tensor.units.bytes))
}

/// Every rank of the meshes is a process of the job, and every process is a rank of them.
fn enough_ranks<C: Crew>(moves: &[Move<'_>], processes: usize) -> Result<(), Error> {
    let world =
        |tensor: &Move<'_>| tensor.unit_from.mesh().world_size().max(tensor.unit_to.mesh().world_size());
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
