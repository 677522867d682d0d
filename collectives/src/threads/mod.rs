//! The threads engine: ranks are threads of this process and copy straight from each other's buffers.
//!
//! Nothing needs to be installed, and nothing is staged: a receiver reads the sender's buffer and writes its own, once.
//! A rank that panics, returns an error, leaves early or stalls past the time-out makes every rank that waits for it
//! return an error that names it.

mod comm;
mod fault;
mod meeting;
mod world;

use reshard_planner::Plan;

pub use comm::{Pending, ThreadCommunicator};
pub use world::World;

use crate::{Element, Error, TrafficLog};

/// Carries a plan out once, with a thread for every rank: [`World::redistribute`] in a world of its own.
///
/// Errors: as there.
pub fn redistribute<T: Element>(
    plan: &Plan,
    shards: &[impl AsRef<[T]> + Sync],
) -> Result<(Vec<Vec<T>>, TrafficLog), Error> {
    World::new(plan.from().mesh().world_size().max(plan.to().mesh().world_size()))?.redistribute(plan, shards)
}
