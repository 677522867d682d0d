//! A process that holds all ranks: they are threads, or slices of one device.
//!
//! One pool of threads serves all tensors, and tensors that take the same way (a checkpoint has many) share a plan. Small
//! tensors that move are carried out together, in one batch: a checkpoint has hundreds of them, and each exchange costs
//! its latency whatever it moves.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use reshard_collectives::Error as EngineError;
use reshard_collectives::threads::World;
use reshard_collectives::{Batch, Compiled};
use reshard_planner::{Plan, Planner};
use reshard_sharding::Sharding;

use super::decision::Move;
#[cfg(any(test, feature = "cuda"))]
use super::device::OnDevice;
use super::error::Error;
use super::exchange::{Exchange, Shards, Way, agrees, not_planned, opaque, way};
use super::job::{Engine, Job};
use super::observer::Observer;
use super::pipeline::{self, AfterExchange};
use super::report::Report;
use super::together::Stop;
use super::verify;

/// Does the whole job in this process.
pub(crate) fn carry_out(
    job: &Job,
    observer: &mut dyn Observer,
    after_exchange: AfterExchange<'_>,
) -> Result<Report, Error> {
    let mut all =
        AllRanks { engine: job.engine, time_out: job.time_out, carrier: None, plans: HashMap::new() };
    pipeline::carry_out(job, &mut all, observer, after_exchange).map_err(Stop::into_error)
}

/// Tensors of at most so many bytes go together with others.
const SMALL: usize = 4 << 20;

/// And so many bytes of them at most.
const BATCH: usize = 32 << 20;

/// More ranks than this are not started as threads.
const MOST_RANKS: usize = 1024;

/// The engine, and the plans of all tensors.
struct AllRanks {
    engine: Engine,
    time_out: Option<Duration>,
    /// From when it is known how many ranks there are.
    carrier: Option<Carrier>,
    plans: HashMap<Way, Plan>,
}

/// What carries plans out.
enum Carrier {
    Threads(World),
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

    /// Plans every move, and starts a thread for every rank.
    fn prepare(&mut self, moves: &[Move<'_>], _gathers: bool) -> Result<(), Error> {
        let ranks = |sharding: &Sharding| sharding.mesh().world();
        let world = moves.iter().map(|tensor| ranks(&tensor.unit_from).max(ranks(&tensor.unit_to))).max();
        let world = world.unwrap_or(0);
        if world > MOST_RANKS {
            let message =
                format!("the ranks reach {}, and at most {MOST_RANKS} are run as threads", world - 1);
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
            _ => {
                let mut world = World::new(world)?;
                if let Some(time_out) = self.time_out {
                    world.set_time_out(time_out);
                }
                Carrier::Threads(world)
            }
        });
        Ok(())
    }

    fn batches<'a, 'b>(&self, moves: &'a [Move<'b>]) -> Vec<&'a [Move<'b>]> {
        let goes_together = |tensor: &Move<'_>| {
            let threads = matches!(self.carrier, Some(Carrier::Threads(_)));
            let moves =
                threads && self.plans.get(&way(tensor)).is_some_and(|plan| plan.communicating_steps() > 0);
            moves && tensor.tensor.byte_len() <= SMALL as u64
        };
        let mut batches = Vec::new();
        let mut rest = moves;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |tensor: &&Move<'_>| {
                bytes += tensor.tensor.byte_len();
                goes_together(tensor) && bytes <= BATCH as u64
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (batch, after) = rest.split_at(count);
            batches.push(batch);
            rest = after;
        }
        batches
    }

    fn exchange(&mut self, batch: &[Move<'_>], sources: &[Vec<&[u8]>]) -> Result<Vec<(Shards, u64)>, Error> {
        let carrier = self.carrier.as_mut().ok_or_else(not_planned)?;
        if let ([tensor], [sources]) = (batch, sources) {
            let plan = self.plans.get(&way(tensor)).ok_or_else(not_planned)?;
            return Ok(vec![carrier.redistribute(plan, sources)?]);
        }
        #[allow(irrefutable_let_patterns, reason = "without other engines there are only threads")]
        let Carrier::Threads(world) = carrier else {
            return Err(Error::failed("internal", "a device takes tensors one by one"));
        };
        in_one_batch(world, &self.plans, batch, sources)
    }

    fn gather<'a>(&mut self, tensor: &Move<'_>, shards: &'a Shards) -> Result<Cow<'a, [u8]>, Error> {
        let shards: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
        verify::assemble(&tensor.unit_to, tensor.units.bytes, &shards)
    }

    fn plan(&self, tensor: &Move<'_>) -> Result<&Plan, Error> {
        self.plans.get(&way(tensor)).ok_or_else(not_planned)
    }
}

impl Carrier {
    /// Gives every rank of the target its new shard, and says what the worst one received.
    fn redistribute(&mut self, plan: &Plan, sources: &[&[u8]]) -> Result<(Shards, u64), Error> {
        Ok(match self {
            Self::Threads(world) => {
                let (shards, trace) = world.redistribute(plan, sources)?;
                (shards, trace.worst_received())
            }
            #[cfg(feature = "cuda")]
            Self::Device(device) => device.redistribute(plan, sources)?,
            #[cfg(all(test, not(feature = "cuda")))]
            Self::Simulated(device) => device.redistribute(plan, sources)?,
        })
    }
}

/// Gives every rank of the targets its new shards of several tensors, in one batch.
fn in_one_batch(
    world: &mut World,
    planned: &HashMap<Way, Plan>,
    tensors: &[Move<'_>],
    sources: &[Vec<&[u8]>],
) -> Result<Vec<(Shards, u64)>, Error> {
    let mut batch = Batch::new();
    let mut plans = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let plan = planned.get(&way(tensor)).ok_or_else(not_planned)?;
        batch.add(plan)?;
        plans.push(plan);
    }
    let (shards, trace) = world.redistribute_batch(&batch, sources)?;
    // What each tensor alone makes a rank receive; together they must be what the ranks counted.
    let mut promised = vec![0; world.size()];
    for plan in &plans {
        let mut worst = 0;
        for rank in plan.ranks() {
            let received = Compiled::new(plan, rank)?.received_bytes();
            promised[rank] += received;
            worst = worst.max(received);
        }
        agrees(worst, plan)?;
    }
    for (rank, promised) in promised.into_iter().enumerate() {
        let received = trace.received_by(rank);
        if received != promised {
            let message = format!("rank {rank} received {received} bytes, and the plans promised {promised}");
            return Err(Error::failed("verification", message));
        }
    }
    Ok(shards.into_iter().zip(plans.into_iter().map(Plan::received_bytes)).collect())
}
