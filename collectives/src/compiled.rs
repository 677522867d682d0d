//! A plan compiled for one rank, and its execution.

use std::borrow::BorrowMut;

use reshard_kernels::DType;
use reshard_planner::{Phase, Plan, StepOp};

use crate::buffers::Buffers;
use crate::fingerprint::Fingerprint;
use crate::lower::{self, Buffer, Stage, Tensor};
use crate::scratch::Lent;
use crate::{BufferLayout, Communicator, Error, Exchange, Location, Scratch};

/// What one rank does to carry out a plan: compiled once, run many times, by any engine.
///
/// Compiling takes microseconds and does not depend on the tensor's size. Running neither plans nor allocates.
///
/// ```
/// use reshard_collectives::{Compiled, Error, threads::World};
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::Planner;
///
/// let mesh = Mesh::new([("tp", 2)])?;
/// let from = Sharding::parse(&mesh, &[4, 2], "S(0)")?;
/// let to = Sharding::parse(&mesh, &[4, 2], "S(1)")?;
/// let plan = Planner::new().plan(&from, &to, DType::U8)?;
///
/// let shards = [[0, 1, 2, 3], [4, 5, 6, 7]];
/// let mut world = World::new(2)?;
/// let results = world.run(|comm| {
///     let compiled = Compiled::new(&plan, comm.rank())?;
///     let mut scratch = compiled.scratch(comm)?;
///     let mut target = vec![0; compiled.target_bytes()];
///     for _ in 0..3 {
///         compiled.run(comm, &shards[comm.rank()], &mut target, &mut scratch)?;
///     }
///     Ok::<_, Error>(target)
/// });
/// assert_eq!(results[0].as_deref(), Ok(&[0, 2, 4, 6][..]));
/// assert_eq!(results[1].as_deref(), Ok(&[1, 3, 5, 7][..]));
/// # use reshard_collectives::Communicator;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompiledPlan {
    rank: usize,
    hash: u64,
    source_bytes: usize,
    target_bytes: usize,
    first_bytes: usize,
    second_bytes: usize,
    stages: Vec<Stage>,
}

impl CompiledPlan {
    /// Compiles a plan for a rank, with dense row-major buffers.
    ///
    /// Errors: [`Error::NotInPlan`]; [`Error::Kernel`] if a partial tensor is of a dtype without that arithmetic, which a plan
    /// leaves to the framework.
    pub fn new(plan: &Plan, rank: usize) -> Result<CompiledPlan, Error> {
        CompiledPlan::with_layouts(plan, rank, &BufferLayout::RowMajor, &BufferLayout::RowMajor)
    }

    /// Compiles a plan for a rank whose source and target lie in memory as `source` and `target` say.
    ///
    /// Requires the same two values on every rank. Errors: as [`Compiled::new`], and [`Error::Memory`].
    pub fn with_layouts(
        plan: &Plan,
        rank: usize,
        source: &BufferLayout,
        target: &BufferLayout,
    ) -> Result<CompiledPlan, Error> {
        let tensor = Tensor { plan, source, target, source_start: 0, target_start: 0, scratch_start: 0 };
        CompiledPlan::of_tensors(rank, &[tensor])
    }

    /// Compiles several tensors together.
    pub(crate) fn of_tensors(rank: usize, tensors: &[Tensor<'_>]) -> Result<CompiledPlan, Error> {
        if !tensors.iter().any(|tensor| lower::takes_part(tensor.plan, rank)) {
            return Err(Error::NotInPlan { rank });
        }
        let mut hash = Fingerprint::new();
        for tensor in tensors {
            hash.add(tensor.plan, tensor.source, tensor.target);
            hash.add_number(tensor.source_start);
            hash.add_number(tensor.scratch_start);
        }
        let hash = hash.finish();
        Ok(CompiledPlan::of_stages(rank, hash, lower::stages(rank, tensors, hash)?))
    }

    /// Compiles phases that come from elsewhere than a [`Plan`]: for each one the index of its step, what it is, and the
    /// phase. Buffers are dense.
    ///
    /// Requires the same step and op on all members. Ops other than [`StepOp::Exchange`] promise that the phases of all
    /// members are alike, as those of plans are: blocks of each member that all others see in the same place.
    /// Errors: as [`Compiled::new`], and [`Error::Phase`].
    pub fn from_phases(
        rank: usize,
        dtype: DType,
        phases: &[(usize, StepOp, Phase)],
    ) -> Result<CompiledPlan, Error> {
        if phases.is_empty() {
            return Err(Error::Phase { step: 0, message: "there are no phases".to_string() });
        }
        Ok(CompiledPlan::of_stages(rank, 0, lower::stages_of_phases(rank, dtype, phases)?))
    }

    fn of_stages(rank: usize, hash: u64, stages: Vec<Stage>) -> CompiledPlan {
        let most = |buffer: Buffer, bytes: &dyn Fn(&Exchange) -> usize, end: &dyn Fn(&Stage) -> Buffer| {
            let of = stages.iter().filter(|stage| end(stage) == buffer).map(|stage| bytes(&stage.exchange));
            of.max().unwrap_or(0)
        };
        let read = |buffer| most(buffer, &Exchange::source_bytes, &|stage| stage.from);
        let written = |buffer| most(buffer, &Exchange::target_bytes, &|stage| stage.to);
        CompiledPlan {
            rank,
            hash,
            source_bytes: read(Buffer::Source),
            target_bytes: written(Buffer::Target),
            first_bytes: written(Buffer::First).max(read(Buffer::First)),
            second_bytes: written(Buffer::Second).max(read(Buffer::Second)),
            stages,
        }
    }

    /// The rank that this is compiled for.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// A number that is the same on all ranks that compiled the same plans for the same dtypes and memories, and almost
    /// surely another for others; what [`Communicator::agree`] compares comes from it.
    pub fn hash(&self) -> u64 {
        self.hash
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

    /// Bytes that this rank receives from others.
    pub fn received_bytes(&self) -> u64 {
        self.exchanges().map(|exchange| exchange.received_bytes() as u64).sum()
    }

    /// The exchanges in order.
    ///
    /// An all-reduce is two of them, whatever [`Communicator::all_reduces`] says.
    pub fn exchanges(&self) -> impl ExactSizeIterator<Item = &Exchange> + '_ {
        self.stages.iter().map(|stage| &stage.exchange)
    }

    /// The exchanges, and after each all-reduce's two the one that it is as a whole.
    pub fn exchanges_and_all_reduces(&self) -> impl Iterator<Item = &Exchange> + '_ {
        let whole = |at: usize| self.stages[at].whole.as_ref().map(|whole| &whole.1);
        self.stages
            .iter()
            .flat_map(move |stage| std::iter::once(&stage.exchange).chain(stage.ends.and_then(whole)))
    }

    /// Makes sure that all ranks mean the same plan, and allocates what [`run`](Compiled::run) needs besides source and
    /// target, in the engine's memory: new scratch that this plan [reserves](Compiled::reserve).
    pub fn scratch<C: Communicator + ?Sized>(&self, comm: &mut C) -> Result<Scratch<C::Owned>, Error> {
        let mut scratch = Scratch::new();
        self.reserve(comm, &mut scratch)?;
        Ok(scratch)
    }

    /// Makes sure that all ranks mean the same plan, and that scratch, which other plans of this rank may use too, has what
    /// [`run`](Compiled::run) needs besides source and target.
    ///
    /// Requires that all ranks of the plan call it together, as they do [`run`](Compiled::run); from then on nothing is
    /// compared any more. Errors: [`Error::Mismatch`] on every rank that shares a group with one that means another
    /// plan, before anything has moved; the engine's.
    pub fn reserve<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        scratch: &mut Scratch<C::Owned>,
    ) -> Result<(), Error> {
        let staging = self.check_agreement(comm)?;
        scratch.grow([self.first_bytes, self.second_bytes, staging], |bytes| comm.allocate(bytes))
    }

    /// Makes sure that all ranks mean the same plan, and returns the bytes of staging that the engine needs: what
    /// [`run_in`](Compiled::run_in) asks for, whose caller has the scratch.
    ///
    /// Requires and errors: as [`reserve`](Compiled::reserve).
    pub fn check_agreement<C: Communicator + ?Sized>(&self, comm: &mut C) -> Result<usize, Error> {
        if comm.rank() != self.rank {
            return Err(Error::NotInPlan { rank: comm.rank() });
        }
        let mut staging = 0;
        for (at, stage) in self.stages.iter().enumerate() {
            let exchange = &stage.exchange;
            let knows = |earlier: &Stage| {
                !earlier.exchange.is_local() && earlier.exchange.members() == exchange.members()
            };
            if !exchange.is_local() && !self.stages[..at].iter().any(knows) {
                comm.check_agreement(exchange)?;
            }
            let whole = stage.whole.iter().map(|whole| &whole.1).filter(|whole| comm.all_reduces(whole));
            for exchange in std::iter::once(exchange).chain(whole) {
                staging = staging.max(comm.staging_bytes(exchange)?);
            }
        }
        Ok(staging)
    }

    /// The buffers of a scratch that was reserved and is large enough.
    pub(crate) fn lend<'s, Owned>(&self, scratch: &'s mut Scratch<Owned>) -> Result<Lent<'s, Owned>, Error> {
        let lent = scratch.lend(self.rank, self.scratch_bytes())?;
        let place = || {
            self.stages
                .first()
                .map_or(Location { step: None, group: vec![self.rank] }, |first| first.exchange.place())
        };
        lent.ok_or_else(|| Error::NotAgreed { rank: self.rank, place: place() })
    }

    /// Carries the plan out: `target` becomes this rank's shard of the plan's target sharding.
    ///
    /// Requires that all ranks of the plan run it together, and scratch that it has [reserved](Compiled::reserve). Neither plans
    /// nor allocates. Errors: [`Error::NotAgreed`] for scratch that nobody has reserved; [`Error::Buffer`], which names the
    /// buffer that is too short; the engine's, see [`Communicator`]; the target's contents are unspecified then.
    pub fn run<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: &C::Buffer,
        target: &mut C::Buffer,
        scratch: &mut Scratch<C::Owned>,
    ) -> Result<(), Error> {
        let [first, second, staging] = self.lend(scratch)?;
        let scratch = [first.borrow_mut(), second.borrow_mut(), staging.borrow_mut()];
        self.run_in(comm, source, target, scratch)
    }

    /// As [`run`](Compiled::run), in scratch that the caller has: the two buffers of
    /// [`scratch_bytes`](Compiled::scratch_bytes), and staging.
    ///
    /// Requires that all ranks [agreed](Compiled::agree), and as much staging as that said. Errors: as there.
    pub fn run_in<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: &C::Buffer,
        target: &mut C::Buffer,
        scratch: [&mut C::Buffer; 3],
    ) -> Result<(), Error> {
        self.carry_out(comm, 0, &mut Buffers::new(source, target, scratch))
    }

    /// Carries out the stages from one on.
    pub(crate) fn carry_out<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        from: usize,
        buffers: &mut Buffers<'_, C::Buffer>,
    ) -> Result<(), Error> {
        for stage in self.stages.iter().skip(from) {
            if let Some((between, exchange)) = self.carried_out(comm, stage) {
                buffers.exchange(comm, between, exchange)?;
            }
        }
        Ok(())
    }

    /// What this engine does at a stage, and between which buffers; nothing where it has done that with the stage that began the all-reduce.
    pub(crate) fn carried_out<'s, C: Communicator + ?Sized>(
        &'s self,
        comm: &C,
        stage: &'s Stage,
    ) -> Option<((Buffer, Buffer), &'s Exchange)> {
        let whole = |stage: &Stage| stage.whole.as_ref().is_some_and(|whole| comm.all_reduces(&whole.1));
        if stage.ends.is_some_and(|at| whole(&self.stages[at])) {
            return None;
        }
        Some(match &stage.whole {
            Some(all) if whole(stage) => ((stage.from, all.0), &all.1),
            Some(_) | None => ((stage.from, stage.to), &stage.exchange),
        })
    }

    /// What is carried out, in order.
    pub(crate) fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Whether [`run_in_place`](Compiled::run_in_place) works: nothing is written to the target while the source is still
    /// read.
    ///
    /// True for plans of two phases or more, such as an all-reduce or a reduce-scatter and an all-gather, whose first
    /// phase ends in scratch, and for plans of no steps. False for a single exchange, which reads peers' sources while
    /// it writes the target.
    pub fn is_in_place(&self) -> bool {
        self.stages
            .iter()
            .all(|stage| stage.from != Buffer::Source || stage.to != Buffer::Target || stays(stage))
    }

    /// Bytes of a buffer that is source and target.
    pub fn in_place_bytes(&self) -> usize {
        self.source_bytes.max(self.target_bytes)
    }

    /// Carries the plan out in one buffer, which begins as the source and ends as the target.
    ///
    /// ```
    /// use reshard_collectives::{Communicator, Compiled, Error, threads::World};
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::Planner;
    ///
    /// let mesh = Mesh::new([("dp", 2)])?;
    /// let gradient = Sharding::parse(&mesh, &[4], "P")?;
    /// let plan = Planner::new().plan(&gradient, &Sharding::parse(&mesh, &[4], "R")?, DType::U8)?;
    /// let results = World::new(2)?.run(|comm| {
    ///     let compiled = Compiled::new(&plan, comm.rank())?;
    ///     assert!(compiled.is_in_place());
    ///     let mut scratch = compiled.scratch(comm)?;
    ///     let mut buffer = vec![1 + comm.rank() as u8; compiled.in_place_bytes()];
    ///     compiled.run_in_place(comm, &mut buffer, &mut scratch)?;
    ///     Ok::<_, Error>(buffer)
    /// });
    /// assert_eq!(results, [Ok(vec![3; 4]), Ok(vec![3; 4])]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Requires as [`run`](Compiled::run), and that all ranks run in place. Errors: [`Error::Phase`] unless
    /// [`is_in_place`](Compiled::is_in_place), before anything moves; else as there.
    pub fn run_in_place<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        buffer: &mut C::Buffer,
        scratch: &mut Scratch<C::Owned>,
    ) -> Result<(), Error> {
        if !self.is_in_place() {
            let message = "it reads the source while it writes the target, and needs two buffers".to_string();
            return Err(Error::Phase { step: 0, message });
        }
        let [first, second, staging] = self.lend(scratch)?;
        let scratch = [first.borrow_mut(), second.borrow_mut(), staging.borrow_mut()];
        let mut buffers = Buffers::in_place(buffer, scratch);
        for stage in &self.stages {
            let from = match stage.from {
                Buffer::Source => Buffer::Target,
                Buffer::First | Buffer::Second | Buffer::Target => stage.from,
            };
            // From the one buffer to itself: every element stays.
            if (from, stage.to) != (Buffer::Target, Buffer::Target) {
                buffers.exchange(comm, (from, stage.to), &stage.exchange)?;
            }
        }
        Ok(())
    }
}

/// Whether a stage leaves every element where it is, if source and target are one buffer.
fn stays(stage: &Stage) -> bool {
    let exchange = &stage.exchange;
    let same = |piece: &crate::TypedNest| {
        let nest = &piece.nest;
        nest.source_offset == nest.target_offset
            && nest.modes.iter().all(|mode| mode.extent == 1 || mode.stride.0 == mode.stride.1)
    };
    !exchange.communicates()
        && !exchange.is_reduction()
        && exchange.fills().is_empty()
        && exchange.receives().iter().all(|receive| receive.pieces().iter().all(same))
}
