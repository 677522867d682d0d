//! The exchange: every tensor's plan, carried out by ranks that are threads of this process.
//!
//! One pool of threads serves all tensors, and tensors that take the same way (a checkpoint has many) share a plan.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_sharding::Sharding;
use reshard_sharding::redistribute::{Plan, Planner};

use super::decision::Move;
use crate::cli::error::CliError;

/// More ranks than this are not started as threads.
const MOST_RANKS: usize = 1024;

/// The engine, and the plans of all tensors.
pub(crate) struct Exchange {
    world: World,
    plans: HashMap<Way, Plan>,
}

type Way = (Sharding, Sharding, usize);

/// What an exchange did.
pub(crate) struct Moved {
    pub(crate) steps: usize,
    /// Bytes that the worst rank received, as its receiver counted them.
    pub(crate) received_bytes: u64,
    pub(crate) lower_bound_bytes: Option<u64>,
}

impl Exchange {
    /// Plans every move, and starts a thread for every rank.
    pub(crate) fn prepare(moves: &[Move<'_>], time_out: Option<Duration>) -> Result<Self, CliError> {
        let ranks = |sharding: &Sharding| sharding.mesh().world();
        let world = moves.iter().map(|tensor| ranks(&tensor.unit_from).max(ranks(&tensor.unit_to))).max();
        let world = world.unwrap_or(0);
        if world > MOST_RANKS {
            let message =
                format!("the ranks reach {}, and at most {MOST_RANKS} are run as threads", world - 1);
            return Err(CliError::refused("too_many_ranks", message));
        }
        let mut plans = HashMap::new();
        for tensor in moves {
            if let Entry::Vacant(slot) = plans.entry(way(tensor)) {
                let (from, to, item_bytes) = slot.key();
                let plan = Planner::new().plan(from, to, *item_bytes);
                slot.insert(plan.map_err(|error| CliError::from(error).about_tensor(&tensor.tensor.name))?);
            }
        }
        let mut world = World::new(world)?;
        if let Some(time_out) = time_out {
            world.set_time_out(time_out);
        }
        Ok(Self { world, plans })
    }

    /// Gives every rank of the target its new shard, in the order of the target mesh's ranks.
    pub(crate) fn carry_out(
        &mut self,
        tensor: &Move<'_>,
        sources: &[&[u8]],
    ) -> Result<(Vec<Vec<u8>>, Moved), CliError> {
        let Some(plan) = self.plans.get(&way(tensor)) else {
            return Err(CliError::failed("internal", "it was not planned"));
        };
        let (shards, trace) = self.world.redistribute(plan, opaque(tensor.units.bytes), sources)?;
        let received_bytes = trace.worst_received();
        if received_bytes != plan.received_bytes() {
            let promised = plan.received_bytes();
            let message =
                format!("the worst rank received {received_bytes} bytes, and the plan promised {promised}");
            return Err(CliError::failed("verification", message));
        }
        let moved =
            Moved { steps: plan.steps().len(), received_bytes, lower_bound_bytes: plan.lower_bound_bytes() };
        Ok((shards, moved))
    }
}

fn way(tensor: &Move<'_>) -> Way {
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
