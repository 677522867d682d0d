//! A process that holds all ranks: they run in turns on its threads, or are slices of one device.
//!
//! Tensors with the same source and target sharding (a checkpoint has many) share a plan.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use reshard_collectives::Error as EngineError;
use reshard_planner::{Plan, Planner};
use reshard_sharding::Sharding;

use crate::check::verify::Assembly;
#[cfg(any(test, feature = "cuda"))]
use crate::engine::device::OnDevice;
use crate::engine::exchange::{Arrived, Exchange, Moved, Way, not_planned, opaque, way};
use crate::engine::held::Held;
use crate::engine::in_turn;
use crate::engine::pipeline::{self, AfterExchange};
use crate::engine::together::Stop;
use crate::error::Error;
use crate::job::decision::Move;
use crate::job::observer::Observer;
use crate::job::report::JobReport;
use crate::job::{Engine, ReshardJob};
use crate::rooms::Rooms;

/// Runs the whole job in this process.
pub(crate) fn carry_out(
    job: &ReshardJob,
    observer: &mut dyn Observer,
    after_exchange: AfterExchange<'_>,
) -> Result<JobReport, Error> {
    let mut all = AllRanks { engine: job.engine, carrier: None, plans: HashMap::new() };
    pipeline::carry_out(job, &mut all, observer, after_exchange).map_err(Stop::into_error)
}

/// The largest batch of tensors, in bytes; the preparation for a rank serves all tensors with the same plan.
const BATCH: u64 = 8 << 20;

/// The largest number of ranks that run in one process.
const MOST_RANKS: usize = 1024;

/// The engine, and the plans of all tensors.
struct AllRanks {
    engine: Engine,
    /// Set once it is known that everything can be done.
    carrier: Option<Carrier>,
    plans: HashMap<Way, Plan>,
}

/// The executor of plans.
enum Carrier {
    /// The threads of this process, on which ranks run in turns.
    Threads,
    #[cfg(any(test, feature = "cuda"))]
    Device(Box<OnDevice<Device>>),
}

#[cfg(all(feature = "cuda", not(test)))]
type Device = reshard_device::Cuda;
/// The simulated device of the tests.
#[cfg(test)]
type Device = reshard_device::Simulated;

#[cfg(all(feature = "cuda", not(test)))]
fn open_device() -> Result<Device, Error> {
    Device::open(0).map_err(|error| Error::failed(error.kind(), error.code(), error.to_string()))
}

#[cfg(test)]
#[expect(clippy::unnecessary_wraps, reason = "a real device may be missing")]
fn open_device() -> Result<Device, Error> {
    Ok(Device::new())
}

impl Exchange for AllRanks {
    fn holds(&self, _rank: usize) -> bool {
        true
    }

    fn process(&self) -> usize {
        0
    }

    fn share(&mut self, words: &[u64]) -> Result<Vec<Vec<u64>>, EngineError> {
        Ok(vec![words.to_vec()])
    }

    fn prepare(&mut self, moves: &[Move<'_>], _gathers: bool) -> Result<(), Error> {
        let ranks = |sharding: &Sharding| sharding.mesh().world_size();
        let world = moves.iter().map(|tensor| ranks(&tensor.unit_from).max(ranks(&tensor.unit_to))).max();
        let world = world.unwrap_or(0);
        if world > MOST_RANKS {
            let message =
                format!("the highest rank is {}, but one process runs at most {MOST_RANKS} ranks", world - 1);
            return Err(Error::unsupported("too_many_ranks", message));
        }
        for tensor in moves {
            if let Entry::Vacant(slot) = self.plans.entry(way(tensor)) {
                let (from, to, item_bytes) = slot.key();
                let plan = Planner::new().plan(from, to, opaque(*item_bytes));
                slot.insert(plan.map_err(|error| Error::from(error).about_tensor(&tensor.tensor.name))?);
            }
        }
        self.carrier = Some(match self.engine {
            #[cfg(any(test, feature = "cuda"))]
            Engine::Cuda => Carrier::Device(Box::new(OnDevice::new(open_device()?))),
            // Engines that are not compiled in were rejected before.
            #[allow(clippy::wildcard_enum_match_arm, reason = "the remaining engines depend on the features")]
            _ => Carrier::Threads,
        });
        Ok(())
    }

    fn batches<'a, 'b>(&self, moves: &'a [Move<'b>]) -> Vec<&'a [Move<'b>]> {
        let goes_together = |tensor: &Move<'_>| {
            matches!(self.carrier, Some(Carrier::Threads))
                && self.plans.get(&way(tensor)).is_some_and(|plan| in_turn::exchanges(plan) <= 1)
        };
        let mut batches = Vec::new();
        let mut rest = moves;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |tensor: &&Move<'_>| {
                bytes += tensor.tensor.byte_len();
                goes_together(tensor) && bytes <= BATCH
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (batch, after) = rest.split_at(count);
            batches.push(batch);
            rest = after;
        }
        batches
    }

    fn exchange(
        &mut self,
        batch: &[Move<'_>],
        held: &[Held<'_>],
        rooms: &Rooms,
        gathers: bool,
        arrived: Arrived<'_>,
    ) -> Result<Vec<Moved>, Error> {
        let plans = batch.iter().map(|tensor| self.plans.get(&way(tensor)).ok_or_else(not_planned));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let carrier = self.carrier.as_mut().ok_or_else(not_planned)?;
        let gathered = batch.iter().filter(|_| gathers);
        let assemblies = gathered.map(|tensor| Assembly::new(&tensor.unit_to, tensor.units.bytes));
        let assemblies = assemblies.collect::<Result<Vec<_>, _>>()?;
        let received = carrier.redistribute(&plans, held, rooms, &|at, rank, shard| {
            arrived(at, rank, shard)?;
            assemblies.get(at).map_or(Ok(()), |assembly| assembly.take(rank, shard))
        })?;
        let mut gathered = assemblies.into_iter().map(Assembly::finish);
        Ok(received.into_iter().map(|received| Moved { received, gathered: gathered.next() }).collect())
    }

    fn plan(&self, tensor: &Move<'_>) -> Result<&Plan, Error> {
        self.plans.get(&way(tensor)).ok_or_else(not_planned)
    }
}

impl Carrier {
    /// Gives every target rank its new shards; returns per tensor the bytes that its worst rank received.
    fn redistribute(
        &mut self,
        plans: &[&Plan],
        held: &[Held<'_>],
        rooms: &Rooms,
        arrived: Arrived<'_>,
    ) -> Result<Vec<u64>, Error> {
        match self {
            Self::Threads => in_turn::redistribute(plans, &|at, rank| held[at].shard(rank), rooms, arrived),
            #[cfg(any(test, feature = "cuda"))]
            Self::Device(device) => on_device(device, plans, held, arrived),
        }
    }
}

/// Executes plans for all ranks at once on a device, and passes the new shards to `arrived`.
#[cfg(any(test, feature = "cuda"))]
fn on_device<B: reshard_device::Backend>(
    device: &mut OnDevice<B>,
    plans: &[&Plan],
    held: &[Held<'_>],
    arrived: Arrived<'_>,
) -> Result<Vec<u64>, Error> {
    let mut all = Vec::with_capacity(plans.len());
    for (at, (plan, held)) in plans.iter().zip(held).enumerate() {
        let sources: Vec<&[u8]> = plan.from().mesh().ranks().map(|rank| held.shard(rank)).collect();
        let (shards, received) = device.redistribute(plan, &sources)?;
        for (rank, mut shard) in plan.to().mesh().ranks().zip(shards) {
            arrived(at, rank, &mut shard)?;
        }
        all.push(received);
    }
    Ok(all)
}
