//! The threads engine: ranks are threads of this process and copy directly from each other's buffers.
//!
//! It has no external dependencies, and nothing is staged: a receiver reads the sender's buffer and writes
//! its own, once. If a rank panics, returns an error, leaves early or stalls past the timeout, every rank
//! that waits for it returns an error that names it.

mod barrier;
mod comm;
mod fault;
mod world;

use reshard_planner::Plan;

pub use comm::{Pending, ThreadCommunicator};
pub use world::World;

use crate::{Element, Error, TrafficLog};

/// Runs a plan once, with a thread for every rank: [`World::redistribute`] in a new world.
///
/// Errors: as there.
pub fn redistribute<T: Element>(
    plan: &Plan,
    shards: &[impl AsRef<[T]> + Sync],
) -> Result<(Vec<Vec<T>>, TrafficLog), Error> {
    World::new(plan.from().mesh().world_size().max(plan.to().mesh().world_size()))?.redistribute(plan, shards)
}
