//! The exchange: every tensor's plan, carried out by ranks that are threads of this process, or slices of one device.
//!
//! One pool of threads serves all tensors, and tensors that take the same way (a checkpoint has many) share a plan. Small
//! tensors that move are carried out together, in one batch: a checkpoint has hundreds of them, and each exchange costs
//! its latency whatever it moves.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use reshard_collectives::threads::World;
use reshard_collectives::{Batch, Compiled};
use reshard_kernels::DType;
use reshard_sharding::Sharding;
use reshard_sharding::redistribute::{Plan, Planner};

use super::Engine;
use super::decision::Move;
#[cfg(any(test, feature = "cuda"))]
use super::device::OnDevice;
use crate::error::Error;

/// Tensors of at most so many bytes go together with others.
const SMALL: usize = 4 << 20;

/// And so many bytes of them at most.
const BATCH: usize = 32 << 20;

/// More ranks than this are not started as threads.
const MOST_RANKS: usize = 1024;

/// The engine, and the plans of all tensors.
pub(crate) struct Exchange {
    carrier: Carrier,
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

/// From where to where, and the bytes of a unit.
pub(crate) type Way = (Sharding, Sharding, usize);

/// What each rank of a target holds, in the order of its mesh.
type Shards = Vec<Vec<u8>>;

/// What an exchange did.
pub(crate) struct Moved {
    pub(crate) steps: usize,
    /// Bytes that the worst rank received, as its receiver counted them.
    pub(crate) received_bytes: u64,
    pub(crate) lower_bound_bytes: Option<u64>,
}

impl Exchange {
    /// Plans every move, and starts a thread for every rank.
    pub(crate) fn prepare(
        moves: &[Move<'_>],
        time_out: Option<Duration>,
        engine: Engine,
    ) -> Result<Self, Error> {
        let ranks = |sharding: &Sharding| sharding.mesh().world();
        let world = moves.iter().map(|tensor| ranks(&tensor.unit_from).max(ranks(&tensor.unit_to))).max();
        let world = world.unwrap_or(0);
        if world > MOST_RANKS {
            let message =
                format!("the ranks reach {}, and at most {MOST_RANKS} are run as threads", world - 1);
            return Err(Error::refused("too_many_ranks", message));
        }
        let mut plans = HashMap::new();
        for tensor in moves {
            if let Entry::Vacant(slot) = plans.entry(way(tensor)) {
                let (from, to, item_bytes) = slot.key();
                let plan = Planner::new().plan(from, to, *item_bytes);
                slot.insert(plan.map_err(|error| Error::from(error).about_tensor(&tensor.tensor.name))?);
            }
        }
        let carrier = match engine {
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
                if let Some(time_out) = time_out {
                    world.set_time_out(time_out);
                }
                Carrier::Threads(world)
            }
        };
        Ok(Self { carrier, plans })
    }

    /// Gives every rank of the target its new shard, in the order of the target mesh's ranks.
    fn carry_out(&mut self, tensor: &Move<'_>, sources: &[&[u8]]) -> Result<(Shards, Moved), Error> {
        let Some(plan) = self.plans.get(&way(tensor)) else {
            return Err(Error::failed("internal", "it was not planned"));
        };
        let dtype = opaque(tensor.units.bytes);
        let (shards, received_bytes) = match &mut self.carrier {
            Carrier::Threads(world) => {
                let (shards, trace) = world.redistribute(plan, dtype, sources)?;
                (shards, trace.worst_received())
            }
            #[cfg(feature = "cuda")]
            Carrier::Device(device) => device.redistribute(plan, dtype, sources)?,
            #[cfg(all(test, not(feature = "cuda")))]
            Carrier::Simulated(device) => device.redistribute(plan, dtype, sources)?,
        };
        agrees(received_bytes, plan)?;
        Ok((shards, moved(plan, received_bytes)))
    }

    /// Cuts the moves, in their order, into lists that are carried out together.
    pub(crate) fn batches<'a, 'b>(&self, moves: &'a [Move<'b>]) -> Vec<&'a [Move<'b>]> {
        let goes_together = |tensor: &Move<'_>| {
            let threads = matches!(self.carrier, Carrier::Threads(_));
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

    /// Gives every rank of the targets its new shards of several tensors, in one batch.
    pub(crate) fn carry_out_together(
        &mut self,
        tensors: &[Move<'_>],
        sources: &[Vec<&[u8]>],
    ) -> Result<Vec<(Shards, Moved)>, Error> {
        if let ([tensor], [sources]) = (tensors, sources) {
            return Ok(vec![self.carry_out(tensor, sources)?]);
        }
        #[allow(irrefutable_let_patterns, reason = "without other engines there are only threads")]
        let Carrier::Threads(world) = &mut self.carrier else {
            return Err(Error::failed("internal", "a device takes tensors one by one"));
        };
        let mut batch = Batch::new();
        let mut plans = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let Some(plan) = self.plans.get(&way(tensor)) else {
                return Err(Error::failed("internal", "it was not planned"));
            };
            batch.add(plan, opaque(tensor.units.bytes))?;
            plans.push(plan);
        }
        let (shards, trace) = world.redistribute_batch(&batch, sources)?;
        // What each tensor alone makes a rank receive; together they must be what the ranks counted.
        let mut promised = vec![0; world.size()];
        for (tensor, plan) in tensors.iter().zip(&plans) {
            let mut worst = 0;
            for rank in plan.ranks() {
                let received = Compiled::new(plan, rank, opaque(tensor.units.bytes))?.received_bytes();
                promised[rank] += received;
                worst = worst.max(received);
            }
            agrees(worst, plan)?;
        }
        for (rank, promised) in promised.into_iter().enumerate() {
            let received = trace.received_by(rank);
            if received != promised {
                let message =
                    format!("rank {rank} received {received} bytes, and the plans promised {promised}");
                return Err(Error::failed("verification", message));
            }
        }
        let moved = plans.into_iter().map(|plan| moved(plan, plan.received_bytes()));
        Ok(shards.into_iter().zip(moved).collect())
    }
}

/// Succeeds if the worst rank received what a plan promised.
pub(crate) fn agrees(received_bytes: u64, plan: &Plan) -> Result<(), Error> {
    let promised = plan.received_bytes();
    if received_bytes == promised {
        return Ok(());
    }
    let message = format!("the worst rank received {received_bytes} bytes, and the plan promised {promised}");
    Err(Error::failed("verification", message))
}

/// What an exchange by a plan did.
pub(crate) fn moved(plan: &Plan, received_bytes: u64) -> Moved {
    Moved { steps: plan.steps().len(), received_bytes, lower_bound_bytes: plan.lower_bound_bytes() }
}

/// The way of a tensor; those that share it share a plan.
pub(crate) fn way(tensor: &Move<'_>) -> Way {
    (tensor.unit_from.clone(), tensor.unit_to.clone(), tensor.units.bytes)
}

/// Any type of elements of this size: nothing is computed with them.
pub(crate) fn opaque(bytes: usize) -> DType {
    match bytes {
        2 => DType::U16,
        4 => DType::U32,
        8 => DType::U64,
        _ => DType::U8,
    }
}
