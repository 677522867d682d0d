//! Faults to plant in the threads engine, to see that they are noticed.

use std::time::Duration;

/// Something that goes wrong in one step of one rank, see [`World::plant`](crate::threads::World::plant).
///
/// ```
/// use reshard_collectives::testing::{Fault, FaultKind};
/// use reshard_collectives::threads::World;
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::Planner;
///
/// let mesh = Mesh::new([("tp", 2)])?;
/// let parse = |text: &str| Sharding::parse(&mesh, &[4], text);
/// let plan = Planner::new().plan(&parse("S(0)")?, &parse("R")?, DType::U8)?;
/// let mut world = World::new(2)?;
/// world.plant([Fault { rank: 1, step: 0, kind: FaultKind::FlipByte(2) }]);
/// let (shards, _) = world.redistribute::<u8>(&plan, &[[1, 2], [3, 4]])?;
/// assert_ne!(shards[1], [1, 2, 3, 4]);
/// world.plant([Fault { rank: 0, step: 0, kind: FaultKind::Miscount(1) }]);
/// assert_eq!(world.redistribute::<u8>(&plan, &[[1, 2], [3, 4]]).unwrap_err().kind(), "trace");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank that it happens to.
    pub rank: usize,
    /// The step of the plan in which it happens.
    pub step: usize,
    /// What happens.
    pub kind: FaultKind,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The rank panics before it comes to the step.
    Panic,
    /// The rank panics in the middle of the step, while others may be reading its buffer.
    PanicInside,
    /// The rank returns an error instead of coming to the step.
    Fail,
    /// The rank comes late.
    Stall(Duration),
    /// One bit of this byte (modulo the length) of the rank's shard is flipped when [`World::redistribute`] has carried the
    /// whole plan out; the step does not matter.
    ///
    /// [`World::redistribute`]: crate::threads::World::redistribute
    FlipByte(usize),
    /// The rank counts so many bytes too many.
    Miscount(u64),
}
