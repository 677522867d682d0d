#![doc = include_str!("engine.md")]

pub mod bootstrap;
mod comm;
mod graph;
mod library;
mod meeting;
#[cfg(feature = "nccl")]
mod real;
mod recording;
mod route;

pub use comm::{Buffer, Comm, FloatSums};
pub use graph::Graph;
pub use library::UniqueId;
#[cfg(feature = "nccl")]
pub use real::Real;

#[doc(hidden)]
pub use comm::Pending;
#[doc(hidden)]
pub use library::{Element, Handle, Nccl};

/// For the tests of engines and of programs that use this one: a stand-in for NCCL.
///
/// It records every call, runs it between threads, and injects faults.
///
/// ```
/// use reshard_collectives::{Communicator, CompiledPlan};
/// use reshard_kernels::DType;
/// use reshard_nccl::testing::{Call, RecordingWorld};
/// use reshard_nccl::{Comm, Handle};
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::Planner;
///
/// let mesh: Mesh = "x=2".parse()?;
/// let sharding = |text: &str| Sharding::parse(&mesh, &[4], text);
/// let plan = Planner::new().plan(&sharding("S(0)")?, &sharding("R")?, DType::U8)?;
/// let world = RecordingWorld::new(2);
/// let results = world.run(|nccl| {
///     let mut comm = Comm::new(nccl)?;
///     let rank = comm.rank();
///     let compiled = CompiledPlan::new(&plan, rank)?;
///     let mut scratch = compiled.scratch(&mut comm)?;
///     let (mut source, mut target) = (comm.allocate(2)?, comm.allocate(4)?);
///     comm.write(&mut source, &[10 * rank as u8, 10 * rank as u8 + 1])?;
///     world.take_log(rank);
///     compiled.run(&mut comm, &source, &mut target, &mut scratch)?;
///     let calls = world.take_log(rank);
///     assert_eq!(calls, [Call::GroupStart, Call::AllGather { on: Handle::WORLD, bytes: 2 }, Call::GroupEnd]);
///     let mut whole = [0; 4];
///     comm.read(&target, &mut whole)?;
///     Ok::<_, reshard_collectives::Error>(whole)
/// });
/// assert_eq!(results, [Ok([0, 1, 10, 11]), Ok([0, 1, 10, 11])]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(hidden)]
pub mod testing {
    pub use crate::recording::{Call, Fault, FaultKind, Recorded, Recording, RecordingWorld};
}
