//! The scratch buffers that compiled plans run in.
//!
//! ```text
//! Scratch::new() --reserve, plan 1--> fits 1 --reserve, plan 2--> fits 1 and 2 --> ..    grows to maximum
//!                                     run 1, run 2, run 1, ..    in sequence, in the same memory
//! ```
//!
//! Its contents do not outlive a run, so plans that run in sequence need only the scratch of the largest of
//! them.

use crate::Error;

/// The memory of the engine that compiled plans need on one rank in addition to source and target.
///
/// [`CompiledPlan::scratch`](crate::CompiledPlan::scratch) makes it for one plan; others that [reserve](crate::CompiledPlan::reserve) it run
/// in the same memory, which grows to what the largest of them needs.
///
/// ```
/// use reshard_collectives::{Communicator, CompiledPlan, Error, Scratch, threads::World};
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::{Mesh, Sharding};
///
/// let mesh = Mesh::new([("dp", 2)])?;
/// let plan = |n: usize| {
///     let gradient = Sharding::parse(&mesh, &[n], "P")?;
///     Planner::new().plan(&gradient, &Sharding::parse(&mesh, &[n], "R")?, DType::U8)
/// };
/// let plans = [plan(4)?, plan(64)?, plan(8)?];
/// let results = World::new(2)?.run(|comm| {
///     let mut scratch = Scratch::new();
///     let compiled = plans.iter().map(|plan| CompiledPlan::new(plan, comm.rank())).collect::<Result<Vec<_>, _>>()?;
///     compiled.iter().try_for_each(|plan| plan.reserve(comm, &mut scratch))?;
///     let mut sums = Vec::new();
///     for plan in &compiled {
///         let mut target = vec![0; plan.target_bytes()];
///         plan.run(comm, &vec![1; plan.source_bytes()], &mut target, &mut scratch)?;
///         sums.push(target[0]);
///     }
///     Ok::<_, Error>(sums)
/// });
/// assert_eq!(results[0], Ok(vec![2, 2, 2]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Scratch<Owned> {
    first: Room<Owned>,
    second: Room<Owned>,
    staging: Room<Owned>,
}

/// A buffer with at least `bytes` bytes; without memory until something is reserved.
#[derive(Debug)]
struct Room<Owned> {
    bytes: usize,
    memory: Option<Owned>,
}

/// The buffers of a scratch while a plan runs: first, second and staging.
pub(crate) type Lent<'a, Owned> = [&'a mut Owned; 3];

impl<Owned> Default for Scratch<Owned> {
    fn default() -> Self {
        Scratch::new()
    }
}

impl<Owned> Scratch<Owned> {
    /// Creates scratch that no plan has reserved yet.
    pub fn new() -> Scratch<Owned> {
        let room = || Room { bytes: 0, memory: None };
        Scratch { first: room(), second: room(), staging: room() }
    }

    /// Returns the bytes of the two scratch buffers between phases, and of staging.
    #[doc(hidden)]
    pub fn bytes(&self) -> (usize, usize, usize) {
        (self.first.bytes, self.second.bytes, self.staging.bytes)
    }

    /// Grows all three buffers to at least these sizes.
    pub(crate) fn grow(
        &mut self,
        bytes: [usize; 3],
        allocate: impl Fn(usize) -> Result<Owned, Error>,
    ) -> Result<(), Error> {
        let Scratch { first, second, staging } = self;
        for (room, bytes) in [first, second, staging].into_iter().zip(bytes) {
            if room.memory.is_none() || room.bytes < bytes {
                // Free the old buffer first: its contents are not needed.
                *room = Room { bytes: 0, memory: None };
                *room = Room { bytes, memory: Some(allocate(bytes)?) };
            }
        }
        Ok(())
    }

    /// Returns the buffers, for a plan that needs these bytes of the first two.
    ///
    /// `None` if no plan has reserved any.
    /// Errors: [`Error::Buffer`] of this rank, which names the one that is too short.
    pub(crate) fn lend(
        &mut self,
        rank: usize,
        (first, second): (usize, usize),
    ) -> Result<Option<Lent<'_, Owned>>, Error> {
        let names = ["first scratch buffer", "second scratch buffer"];
        for ((which, needed), room) in names.into_iter().zip([first, second]).zip([&self.first, &self.second])
        {
            if room.memory.is_some() && room.bytes < needed {
                return Err(Error::Buffer { rank, which, needed, given: room.bytes });
            }
        }
        let Scratch { first, second, staging } = self;
        Ok(match (&mut first.memory, &mut second.memory, &mut staging.memory) {
            (Some(first), Some(second), Some(staging)) => Some([first, second, staging]),
            (None, _, _) | (_, None, _) | (_, _, None) => None,
        })
    }
}
