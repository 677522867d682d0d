//! A plan compiled for one rank, and its execution.
//!
//! The buffer after a phase is the buffer before the next one. The first phase reads the caller's source, the last one
//! writes the caller's target, and what lies between alternates between two scratch buffers:
//!
//! ```text
//! source -> first -> second -> first -> .. -> target          one phase: source -> target
//! ```
//!
//! so that a phase never writes the buffer that others still read from the phase before it. Slices at the beginning are
//! not carried out: the phase after them reads the source through them.

use std::borrow::{Borrow, BorrowMut};

use reshard_kernels::DType;
use reshard_sharding::redistribute::{Block, Message, Mode, Phase, Plan};
use reshard_sharding::{ReduceOp, Sharding};
use smallvec::SmallVec;

use crate::exchange::{Context, combine_op};
use crate::memory::Map;
use crate::{Communicator, Error, Exchange, Memory};

/// From which buffer to which an exchange goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    SourceToTarget,
    SourceToFirst,
    FirstToSecond,
    FirstToTarget,
    SecondToFirst,
    SecondToTarget,
}

impl Route {
    /// The route of the exchange after this one (`None`: of the first exchange).
    fn next(before: Option<Route>, ends_in_target: bool) -> Route {
        match (before, ends_in_target) {
            (None, true) => Route::SourceToTarget,
            (None, false) => Route::SourceToFirst,
            (Some(Route::SourceToFirst | Route::SecondToFirst), true) => Route::FirstToTarget,
            (Some(Route::SourceToFirst | Route::SecondToFirst), false) => Route::FirstToSecond,
            (Some(Route::FirstToSecond), true) => Route::SecondToTarget,
            (Some(Route::FirstToSecond), false) => Route::SecondToFirst,
            // Nothing comes after the target; were it so, the next exchange would start over from it.
            (Some(Route::SourceToTarget | Route::FirstToTarget | Route::SecondToTarget), _) => {
                Route::SourceToTarget
            }
        }
    }

    fn starts_in_source(self) -> bool {
        match self {
            Route::SourceToTarget | Route::SourceToFirst => true,
            Route::FirstToSecond | Route::FirstToTarget | Route::SecondToFirst | Route::SecondToTarget => {
                false
            }
        }
    }

    fn ends_in_target(self) -> bool {
        match self {
            Route::SourceToTarget | Route::FirstToTarget | Route::SecondToTarget => true,
            Route::SourceToFirst | Route::FirstToSecond | Route::SecondToFirst => false,
        }
    }
}

/// What one rank does to carry out a plan: compiled once, run many times, by any engine.
///
/// Compiling takes microseconds and does not depend on the tensor's size. Running neither plans nor allocates.
///
/// ```
/// use reshard_collectives::{Compiled, threads::World};
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding, redistribute::Planner};
///
/// let mesh = Mesh::new([("tp", 2)])?;
/// let from = Sharding::parse(&mesh, &[4, 2], "S(0)")?;
/// let to = Sharding::parse(&mesh, &[4, 2], "S(1)")?;
/// let plan = Planner::new().plan(&from, &to, 1)?;
///
/// let shards = [[0, 1, 2, 3], [4, 5, 6, 7]];
/// let mut world = World::new(2)?;
/// let results = world.run(|comm| {
///     let compiled = Compiled::new(&plan, comm.rank(), DType::U8)?;
///     let mut scratch = compiled.scratch(comm)?;
///     let mut target = vec![0; compiled.target_bytes()];
///     for _ in 0..3 {
///         compiled.run(comm, &shards[comm.rank()], &mut target, &mut scratch)?;
///     }
///     Ok(target)
/// });
/// assert_eq!(results[0].as_deref(), Ok(&[0, 2, 4, 6][..]));
/// assert_eq!(results[1].as_deref(), Ok(&[1, 3, 5, 7][..]));
/// # use reshard_collectives::Communicator;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Compiled {
    rank: usize,
    source_bytes: usize,
    target_bytes: usize,
    first_bytes: usize,
    second_bytes: usize,
    stages: Vec<(Route, Exchange)>,
}

/// The scratch buffers of one rank for one compiled plan, of the engine's own memory.
#[derive(Debug)]
pub struct Scratch<Owned> {
    first: Owned,
    second: Owned,
    staging: Owned,
}

impl Compiled {
    /// Compiles a plan for a rank, with dense row-major buffers.
    ///
    /// Errors: [`Error::NotInPlan`]; [`Error::ItemBytes`] if the dtype has another size than the plan's items;
    /// [`Error::Kernel`] if a partial tensor has a dtype without that arithmetic.
    pub fn new(plan: &Plan, rank: usize, dtype: DType) -> Result<Compiled, Error> {
        Compiled::with_memory(plan, rank, dtype, &Memory::RowMajor, &Memory::RowMajor)
    }

    /// Compiles a plan for a rank whose source and target lie in memory as `source` and `target` say.
    ///
    /// Requires the same two values on every rank. Errors: as [`Compiled::new`], and [`Error::Memory`].
    pub fn with_memory(
        plan: &Plan,
        rank: usize,
        dtype: DType,
        source: &Memory,
        target: &Memory,
    ) -> Result<Compiled, Error> {
        let bytes = dtype.item_bytes()?;
        if bytes != plan.item_bytes() {
            return Err(Error::ItemBytes { plan: plan.item_bytes(), dtype, bytes });
        }
        check_partial(plan.from(), dtype)?;
        check_partial(plan.to(), dtype)?;
        if !plan.from().mesh().contains(rank) && !plan.to().mesh().contains(rank) {
            return Err(Error::NotInPlan { rank });
        }
        let (source_map, begin) = leading_view(plan, rank, source)?;
        let mut phases = Vec::new();
        for (step, at) in plan.steps().iter().enumerate().skip(begin) {
            for (index, phase) in plan.phases(step, rank)?.into_iter().enumerate() {
                phases.push(PlanPhase { step, index, communicates: at.op.communicates(), phase });
            }
        }
        let target_map = shard_map(plan.to(), rank, target)?;
        if phases.is_empty() {
            let len = Plan::local_numel(plan.to(), rank);
            phases.push(PlanPhase { step: 0, index: 0, communicates: false, phase: local_copy(rank, len) });
        }
        let all_dense =
            *source == Memory::RowMajor && plan.steps().first().is_none_or(|step| step.op.communicates());
        let peer_source = |step: usize, index: usize, peer: usize| -> Result<Map, Error> {
            // A dense peer needs no map, and neither does a peer's scratch.
            if all_dense || index > 0 {
                return Ok(Map::dense(0));
            }
            let (map, begin) = leading_view(plan, peer, source)?;
            for earlier in begin..step {
                if !plan.phases(earlier, peer)?.is_empty() {
                    return Ok(Map::dense(0));
                }
            }
            Ok(map)
        };
        compile(rank, dtype, fingerprint(plan), phases, &source_map, &target_map, &peer_source)
    }

    /// Compiles phases that come from elsewhere than a [`Plan`]: for each one the index of its step, whether ranks talk
    /// to each other in it, and the phase. Buffers are dense.
    ///
    /// Errors: as [`Compiled::new`], and [`Error::Phase`].
    pub fn from_phases(
        rank: usize,
        dtype: DType,
        phases: &[(usize, bool, Phase)],
    ) -> Result<Compiled, Error> {
        let (Some((_, _, first)), Some((_, _, last))) = (phases.first(), phases.last()) else {
            return Err(Error::Phase { step: 0, message: "there are no phases".to_string() });
        };
        let (source, target) = (Map::dense(first.source_len), Map::dense(last.target_len));
        let mut listed: Vec<PlanPhase> = Vec::new();
        for (step, communicates, phase) in phases {
            let index = listed.iter().filter(|before| before.step == *step).count();
            listed.push(PlanPhase { step: *step, index, communicates: *communicates, phase: phase.clone() });
        }
        compile(rank, dtype, 0, listed, &source, &target, &|_, _, _| Ok(Map::dense(0)))
    }

    /// The rank that this is compiled for.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Bytes of this rank's source; 0 if it holds nothing before.
    pub fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// Bytes of this rank's target; 0 if it holds nothing after.
    pub fn target_bytes(&self) -> usize {
        self.target_bytes
    }

    /// Bytes of the two scratch buffers between phases.
    pub fn scratch_bytes(&self) -> (usize, usize) {
        (self.first_bytes, self.second_bytes)
    }

    /// The exchanges in order.
    pub fn exchanges(&self) -> impl ExactSizeIterator<Item = &Exchange> + '_ {
        self.stages.iter().map(|(_, exchange)| exchange)
    }

    /// Allocates what [`run`](Compiled::run) needs besides source and target, in the engine's memory.
    pub fn scratch<C: Communicator + ?Sized>(&self, comm: &C) -> Result<Scratch<C::Owned>, Error> {
        let mut staging = 0;
        for exchange in self.exchanges() {
            staging = staging.max(comm.staging_bytes(exchange)?);
        }
        Ok(Scratch {
            first: comm.allocate(self.first_bytes)?,
            second: comm.allocate(self.second_bytes)?,
            staging: comm.allocate(staging)?,
        })
    }

    /// Carries the plan out: `target` becomes this rank's shard of the plan's target sharding.
    ///
    /// Requires that all ranks of the plan run it together, and scratch from [`Compiled::scratch`]. Neither plans nor
    /// allocates. Errors: the engine's, see [`Communicator`]; the target's contents are unspecified then.
    pub fn run<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: &C::Buffer,
        target: &mut C::Buffer,
        scratch: &mut Scratch<C::Owned>,
    ) -> Result<(), Error> {
        let Scratch { first, second, staging } = scratch;
        let staging = staging.borrow_mut();
        for (route, exchange) in &self.stages {
            match route {
                Route::SourceToTarget => comm.exchange(exchange, source, target, staging)?,
                Route::SourceToFirst => comm.exchange(exchange, source, first.borrow_mut(), staging)?,
                Route::FirstToSecond => {
                    comm.exchange(exchange, (*first).borrow(), second.borrow_mut(), staging)?;
                }
                Route::FirstToTarget => comm.exchange(exchange, (*first).borrow(), target, staging)?,
                Route::SecondToFirst => {
                    comm.exchange(exchange, (*second).borrow(), first.borrow_mut(), staging)?;
                }
                Route::SecondToTarget => comm.exchange(exchange, (*second).borrow(), target, staging)?,
            }
        }
        Ok(())
    }
}

/// A phase with its place in the plan.
struct PlanPhase {
    step: usize,
    index: usize,
    communicates: bool,
    phase: Phase,
}

fn compile(
    rank: usize,
    dtype: DType,
    plan_tag: u64,
    phases: Vec<PlanPhase>,
    source: &Map,
    target: &Map,
    peer_source: &dyn Fn(usize, usize, usize) -> Result<Map, Error>,
) -> Result<Compiled, Error> {
    let item = dtype.item_bytes()?;
    let bytes = |elements: usize| {
        elements.checked_mul(item).ok_or(reshard_kernels::Error::Overflow { what: "the size of a buffer" })
    };
    let mut compiled = Compiled {
        rank,
        source_bytes: bytes(source.len)?,
        target_bytes: bytes(target.len)?,
        first_bytes: 0,
        second_bytes: 0,
        stages: Vec::with_capacity(phases.len()),
    };
    let count = phases.len();
    let mut before = None;
    for (i, PlanPhase { step, index, communicates, phase }) in phases.into_iter().enumerate() {
        // A rank that is not in the target's mesh may still have something left over; it is not its target.
        let is_target = i + 1 == count && (target.len > 0 || phase.target_len == 0);
        let route = Route::next(before, is_target);
        before = Some(route);
        let context = Context {
            rank,
            dtype,
            step,
            phase: index,
            communicates,
            plan_tag,
            source: if route.starts_in_source() { source.clone() } else { Map::dense(phase.source_len) },
            target: if route.ends_in_target() { target.clone() } else { Map::dense(phase.target_len) },
            peer_source: &|peer| peer_source(step, index, peer),
        };
        let exchange = Exchange::new(&context, &phase)?;
        match route {
            Route::SourceToFirst | Route::SecondToFirst => {
                compiled.first_bytes = compiled.first_bytes.max(exchange.target_bytes());
            }
            Route::FirstToSecond => {
                compiled.second_bytes = compiled.second_bytes.max(exchange.target_bytes());
            }
            Route::SourceToTarget | Route::FirstToTarget | Route::SecondToTarget => {}
        }
        compiled.stages.push((route, exchange));
    }
    Ok(compiled)
}

/// Succeeds if what a sharding leaves to be reduced can be reduced in this dtype.
fn check_partial(sharding: &Sharding, dtype: DType) -> Result<(), Error> {
    for partial in sharding.partial() {
        match partial.op {
            ReduceOp::Avg => dtype.check_average()?,
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max => {
                dtype.check_combine(combine_op(partial.op))?;
            }
        }
    }
    Ok(())
}

/// The memory of a rank's shard; empty if the mesh does not hold the rank.
fn shard_map(sharding: &Sharding, rank: usize, memory: &Memory) -> Result<Map, Error> {
    if !sharding.mesh().contains(rank) {
        return Ok(Map::dense(0));
    }
    Map::new(memory, rank, &sharding.local_shape(rank)?)
}

/// How a rank's first communicating step may read the rank's source through the slices before it, and with which step to
/// begin then. Slices so skipped move nothing.
fn leading_view(plan: &Plan, rank: usize, memory: &Memory) -> Result<(Map, usize), Error> {
    let mut map = shard_map(plan.from(), rank, memory)?;
    let mut begin = 0;
    while begin + 1 < plan.steps().len() && !plan.steps()[begin].op.communicates() {
        let phases = plan.phases(begin, rank)?;
        let [phase] = phases.as_slice() else { break };
        let Some(view) = map.through(phase, rank) else { break };
        (map, begin) = (view, begin + 1);
    }
    Ok((map, begin))
}

/// What a rank does when nothing moves: its target is its source.
fn local_copy(rank: usize, len: usize) -> Phase {
    let mut modes = SmallVec::new();
    modes.push(Mode { extent: len, source_stride: 1, target_stride: 1 });
    let blocks = SmallVec::from_iter([Block { source_offset: 0, target_offset: 0, modes }]);
    let receives = if len > 0 { vec![Message { peer: rank, blocks }] } else { Vec::new() };
    Phase {
        source_len: len,
        target_len: len,
        fill: None,
        receives,
        sends: Vec::new(),
        reduce: None,
        members: vec![rank],
    }
}

/// The same number for the same plan, another one (almost surely) for another: FNV-1a of what the plan prints.
fn fingerprint(plan: &Plan) -> u64 {
    let text = format!("{plan} of {:?} in {}", plan.from().shape(), plan.item_bytes());
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
