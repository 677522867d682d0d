//! Faults to inject into the threads engine, to test that they are detected.

use std::time::Duration;

/// A fault in one step of one rank, see [`World::inject_faults`](crate::threads::World::inject_faults).
///
/// ```
/// use reshard_collectives::threads::World;
/// use reshard_conformance::{Fault, FaultKind};
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::Planner;
///
/// let mesh = Mesh::new([("tp", 2)])?;
/// let parse = |text: &str| Sharding::parse(&mesh, &[4], text);
/// let plan = Planner::new().plan(&parse("S(0)")?, &parse("R")?, DType::U8)?;
/// let mut world = World::new(2)?;
/// world.inject_faults([Fault { rank: 1, step: 0, kind: FaultKind::FlipByte(2) }]);
/// let (shards, _) = world.redistribute::<u8>(&plan, &[[1, 2], [3, 4]])?;
/// assert_ne!(shards[1], [1, 2, 3, 4]);
/// world.inject_faults([Fault { rank: 0, step: 0, kind: FaultKind::Miscount(1) }]);
/// assert_eq!(world.redistribute::<u8>(&plan, &[[1, 2], [3, 4]]).unwrap_err().code(), "trace");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank that fails.
    pub rank: usize,
    /// The step of the plan in which it happens.
    pub step: usize,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The rank panics before the step.
    Panic,
    /// The rank panics in the middle of the step, while others may be reading its buffer.
    PanicInside,
    /// The rank returns an error instead of running the step.
    Fail,
    /// The rank arrives late.
    Stall(Duration),
    /// One bit of this byte (modulo the length) of the rank's shard is flipped.
    ///
    /// This happens when [`World::redistribute`] has run the whole plan; the step is ignored.
    ///
    /// [`World::redistribute`]: crate::threads::World::redistribute
    FlipByte(usize),
    /// The rank counts this number of bytes too many.
    Miscount(u64),
}
