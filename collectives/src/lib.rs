//! Runs redistribution plans: a plan is compiled once per rank and run many times, by any engine.
//!
//! ```text
//! Plan --CompiledPlan::new(plan, rank)--> CompiledPlan --run(comm, source, target, scratch)--> the new shard
//! ```
//!
//! [`Communicator`] is the trait that an engine implements. [`threads`] is the engine without dependencies:
//! its ranks are threads of this process and copy directly from each other's buffers. [`TrafficLog`] counts the
//! bytes that were really transferred. The crate `reshard-conformance` tests engines.
//!
//! ```
//! use reshard_collectives::threads;
//! use reshard_kernels::DType;
//! use reshard_sharding::{Mesh, Sharding};
//! use reshard_planner::Planner;
//!
//! let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
//! let from = Sharding::parse(&mesh, &[2, 2], "S(0),S(1)")?;
//! let to = Sharding::parse(&mesh, &[2, 2], "R,S(1)")?;
//! let plan = Planner::new().plan(&from, &to, DType::U8)?;
//!
//! let (shards, trace) = threads::redistribute::<u8>(&plan, &[[1], [2], [3], [4]])?;
//! assert_eq!(shards, [[1, 3], [2, 4], [1, 3], [2, 4]]);
//! assert_eq!(trace.received_by(0), plan.received_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod buffer_layout;
mod buffers;
pub mod calls;
mod check;
mod collective;
mod communicator;
mod compiled;
mod element;
mod error;
mod exchange;
mod fault;
mod fingerprint;
mod lower;
mod pending_run;
mod scratch;
pub mod threads;
mod trace;
mod transfer;

pub use batch::{Batch, PlanRef};
pub use buffer_layout::BufferLayout;
pub use collective::{Collective, Reduction};
pub use communicator::{Communicator, ReturnedBuffers};
pub use compiled::CompiledPlan;
pub use element::{Element, zeros};
pub use error::{Error, Location};
pub use exchange::{Average, Exchange, Fill};
pub use pending_run::PendingRun;
pub use reshard_layout::ErrorKind;
pub use scratch::Scratch;
pub use trace::{Hop, TrafficLog};
pub use transfer::{ReceiveMessage, ReceiveOp, SendMessage, TypedNest};

/// Internals for the other crates of this project; they may change with any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::fault::{Fault, FaultKind};
}
