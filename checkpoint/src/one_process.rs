//! A process that holds all ranks: they take turns on its threads, or are slices of one device.
//!
//! Tensors that take the same way (a checkpoint has many) share a plan.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use reshard_collectives::Error as EngineError;
use reshard_planner::{Plan, Planner};
use reshard_sharding::Sharding;

use super::decision::Move;
#[cfg(any(test, feature = "cuda"))]
use super::device::OnDevice;
use super::error::Error;
use super::exchange::{Arrived, Exchange, Moved, Way, not_planned, opaque, way};
use super::held::Held;
use super::in_turn;
use super::job::{Engine, Job};
use super::observer::Observer;
use super::pipeline::{self, AfterExchange};
use super::report::Report;
use super::rooms::Rooms;
use super::together::Stop;
use super::verify::Assembly;

/// Does the whole job in this process.
pub(crate) fn carry_out(
    job: &Job,
    observer: &mut dyn Observer,
    after_exchange: AfterExchange<'_>,
) -> Result<Report, Error> {
    let mut all = AllRanks { engine: job.engine, carrier: None, plans: HashMap::new() };
    pipeline::carry_out(job, &mut all, observer, after_exchange).map_err(Stop::into_error)
}

/// More ranks than this are not carried out in one process.
const MOST_RANKS: usize = 1024;

/// The engine, and the plans of all tensors.
struct AllRanks {
    engine: Engine,
    /// From when it is known that everything can be done.
    carrier: Option<Carrier>,
    plans: HashMap<Way, Plan>,
}

/// What carries plans out.
enum Carrier {
    /// The threads of this process, on which ranks take turns.
    Threads,
    #[cfg(feature = "cuda")]
    Device(Box<OnDevice<reshard_device::Cuda>>),
    /// What tests take for one.
    #[cfg(all(test, not(feature = "cuda")))]
    Simulated(Box<OnDevice<reshard_device::Simulated>>),
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
        let ranks = |sharding: &Sharding| sharding.mesh().world();
        let world = moves.iter().map(|tensor| ranks(&tensor.unit_from).max(ranks(&tensor.unit_to))).max();
        let world = world.unwrap_or(0);
        if world > MOST_RANKS {
            let message =
                format!("the ranks reach {}, and one process carries out at most {MOST_RANKS}", world - 1);
            return Err(Error::refused("too_many_ranks", message));
        }
        for tensor in moves {
            if let Entry::Vacant(slot) = self.plans.entry(way(tensor)) {
                let (from, to, item_bytes) = slot.key();
                let plan = Planner::new().plan(from, to, opaque(*item_bytes));
                slot.insert(plan.map_err(|error| Error::from(error).about_tensor(&tensor.tensor.name))?);
            }
        }
        self.carrier = Some(match self.engine {
            #[cfg(feature = "cuda")]
            Engine::Cuda => {
                let device = reshard_device::Cuda::open(0);
                let device = device.map_err(|error| Error::failed(error.kind(), error.to_string()))?;
                Carrier::Device(Box::new(OnDevice::new(device)))
            }
            #[cfg(all(test, not(feature = "cuda")))]
            Engine::Cuda => Carrier::Simulated(Box::new(OnDevice::new(reshard_device::Simulated::new()))),
            // What is not built in was refused before.
            #[allow(
                clippy::wildcard_enum_match_arm,
                reason = "which engines are left depends on the features"
            )]
            _ => Carrier::Threads,
        });
        Ok(())
    }

    fn exchange(
        &mut self,
        tensor: &Move<'_>,
        held: &Held<'_>,
        rooms: &Rooms,
        gathers: bool,
        arrived: Arrived<'_>,
    ) -> Result<Moved, Error> {
        let plan = self.plans.get(&way(tensor)).ok_or_else(not_planned)?;
        let carrier = self.carrier.as_mut().ok_or_else(not_planned)?;
        let assembly = gathers.then(|| Assembly::new(&tensor.unit_to, tensor.units.bytes)).transpose()?;
        let received = carrier.redistribute(plan, held, rooms, &|rank, shard| {
            arrived(rank, shard)?;
            assembly.as_ref().map_or(Ok(()), |assembly| assembly.take(rank, shard))
        })?;
        Ok(Moved { received, gathered: assembly.map(Assembly::finish) })
    }

    fn plan(&self, tensor: &Move<'_>) -> Result<&Plan, Error> {
        self.plans.get(&way(tensor)).ok_or_else(not_planned)
    }
}

impl Carrier {
    /// Gives every rank of the target its new shard, and says what the worst one received.
    fn redistribute(
        &mut self,
        plan: &Plan,
        held: &Held<'_>,
        rooms: &Rooms,
        arrived: Arrived<'_>,
    ) -> Result<u64, Error> {
        match self {
            Self::Threads => in_turn::redistribute(plan, &|rank| held.shard(rank), rooms, arrived),
            #[cfg(feature = "cuda")]
            Self::Device(device) => on_device(device, plan, held, arrived),
            #[cfg(all(test, not(feature = "cuda")))]
            Self::Simulated(device) => on_device(device, plan, held, arrived),
        }
    }
}

/// A device carries all ranks out at once, and gives back what they have.
#[cfg(any(test, feature = "cuda"))]
fn on_device<B: reshard_device::Backend>(
    device: &mut OnDevice<B>,
    plan: &Plan,
    held: &Held<'_>,
    arrived: Arrived<'_>,
) -> Result<u64, Error> {
    let sources: Vec<&[u8]> = plan.from().mesh().ranks().map(|rank| held.shard(rank)).collect();
    let (shards, received) = device.redistribute(plan, &sources)?;
    for (rank, mut shard) in plan.to().mesh().ranks().zip(shards) {
        arrived(rank, &mut shard)?;
    }
    Ok(received)
}
