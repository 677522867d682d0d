//! A plan compiled for one rank, and its execution.

use std::borrow::BorrowMut;

use reshard_kernels::DType;
use reshard_planner::{Phase, Plan, StepOp};

use crate::buffers::Buffers;
use crate::fingerprint::Fingerprint;
use crate::lower::{self, Buffer, Stage, Tensor};
use crate::scratch::Lent;
use crate::{BufferLayout, Communicator, Error, Exchange, Location, Scratch};

/// The work of one rank in a plan: compiled once, run many times, by any engine.
///
/// Compiling takes microseconds and does not depend on the tensor's size. Running neither plans nor allocates.
///
/// ```
/// use reshard_collectives::{CompiledPlan, Error, threads::World};
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
///     let compiled = CompiledPlan::new(&plan, comm.rank())?;
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

    /// Compiles a plan for a rank with the memory layouts `source` and `target`.
    ///
    /// Requires the same two values on every rank. Errors: as [`CompiledPlan::new`], and [`Error::Memory`].
    pub fn with_layouts(
        plan: &Plan,
        rank: usize,
        source: &BufferLayout,
        target: &BufferLayout,
    ) -> Result<CompiledPlan, Error> {
        let tensor = Tensor { plan, source, target, source_start: 0, target_start: 0, scratch_start: 0 };
        CompiledPlan::of_tensors(rank, &[tensor])
    }

    /// Compiles several tensors into one run.
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

    /// Compiles phases that do not come from a [`Plan`].
    ///
    /// Each entry is the index of its step, its op, and the phase. Buffers are dense. Requires the same step
    /// and op on all members. Ops other than [`StepOp::Exchange`] promise that the phases of all members are
    /// symmetric, as those of plans are: all members see the block of a member at the same offset. Errors: as
    /// [`CompiledPlan::new`], and [`Error::Phase`].
    #[doc(hidden)]
    pub fn from_phases(
        rank: usize,
        dtype: DType,
        phases: &[(usize, StepOp, Phase)],
    ) -> Result<CompiledPlan, Error> {
        if phases.is_empty() {
            return Err(Error::Phase { step: 0, message: "no phases were given".to_string() });
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

    /// Returns the rank that this is compiled for.
    #[doc(hidden)]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns a hash of the plans, dtypes and memory layouts, the same on all ranks that compiled the same.
    ///
    /// Other plans have another hash with near certainty. [`Communicator::check_agreement`] compares tags derived from
    /// it.
    #[doc(hidden)]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the bytes of this rank's source; 0 if the rank is not in the source mesh.
    pub fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// Returns the bytes of this rank's target; 0 if the rank is not in the target mesh.
    pub fn target_bytes(&self) -> usize {
        self.target_bytes
    }

    /// Returns the bytes of the two scratch buffers between phases.
    #[doc(hidden)]
    pub fn scratch_bytes(&self) -> (usize, usize) {
        (self.first_bytes, self.second_bytes)
    }

    /// Returns the bytes that this rank receives from others.
    #[doc(hidden)]
    pub fn received_bytes(&self) -> u64 {
        self.exchanges().map(|exchange| exchange.received_bytes() as u64).sum()
    }

    /// Returns the exchanges in order.
    ///
    /// An all-reduce counts as two of them, regardless of [`Communicator::all_reduces`].
    pub fn exchanges(&self) -> impl ExactSizeIterator<Item = &Exchange> + '_ {
        self.stages.iter().map(|stage| &stage.exchange)
    }

    /// Returns the exchanges, each all-reduce's two followed by the fused all-reduce.
    #[doc(hidden)]
    pub fn exchanges_and_all_reduces(&self) -> impl Iterator<Item = &Exchange> + '_ {
        let whole = |at: usize| self.stages[at].whole.as_ref().map(|whole| &whole.1);
        self.stages
            .iter()
            .flat_map(move |stage| std::iter::once(&stage.exchange).chain(stage.ends.and_then(whole)))
    }

    /// Checks that all ranks have the same plan, and allocates the scratch of [`run`](CompiledPlan::run).
    ///
    /// It is new scratch, in the engine's memory, that this plan [reserves](CompiledPlan::reserve).
    pub fn scratch<C: Communicator + ?Sized>(&self, comm: &mut C) -> Result<Scratch<C::Owned>, Error> {
        let mut scratch = Scratch::new();
        self.reserve(comm, &mut scratch)?;
        Ok(scratch)
    }

    /// Checks that all ranks have the same plan, and grows scratch to the needs of [`run`](CompiledPlan::run).
    ///
    /// Other plans of this rank may use the same scratch. Requires that all ranks of the plan call it, as
    /// they do [`run`](CompiledPlan::run); later runs compare nothing. Errors: [`Error::Mismatch`] on every rank
    /// that shares a group with a rank with another plan, before any data is transferred; the errors of the
    /// engine.
    pub fn reserve<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        scratch: &mut Scratch<C::Owned>,
    ) -> Result<(), Error> {
        let staging = self.check_agreement(comm)?;
        scratch.grow([self.first_bytes, self.second_bytes, staging], |bytes| comm.allocate(bytes))
    }

    /// Checks that all ranks have the same plan, and returns the bytes of staging that the engine needs.
    ///
    /// [`run_in`](CompiledPlan::run_in) requires it of callers that have the scratch.
    ///
    /// Requires and errors: as [`reserve`](CompiledPlan::reserve).
    #[doc(hidden)]
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

    /// Lends the buffers of a scratch that was reserved and is large enough.
    pub(crate) fn lend<'s, Owned>(&self, scratch: &'s mut Scratch<Owned>) -> Result<Lent<'s, Owned>, Error> {
        let lent = scratch.lend(self.rank, self.scratch_bytes())?;
        let place = || {
            self.stages
                .first()
                .map_or(Location { step: None, group: vec![self.rank] }, |first| first.exchange.place())
        };
        lent.ok_or_else(|| Error::NotAgreed { rank: self.rank, place: place() })
    }

    /// Runs the plan: `target` becomes this rank's shard of the plan's target sharding.
    ///
    /// Requires that all ranks of the plan run it, and scratch that it has [reserved](CompiledPlan::reserve).
    /// Neither plans nor allocates. Errors: [`Error::NotAgreed`] for scratch that no plan has reserved;
    /// [`Error::Buffer`], which names the buffer that is too short; those of the engine, see
    /// [`Communicator`]. After an error the target's contents are unspecified.
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

    /// Runs as [`run`](CompiledPlan::run), in scratch of the caller.
    ///
    /// The scratch is the two buffers of [`scratch_bytes`](CompiledPlan::scratch_bytes), and staging. Requires
    /// that all ranks [agreed](CompiledPlan::check_agreement), and as much staging as that returned. Errors: as there.
    #[doc(hidden)]
    pub fn run_in<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: &C::Buffer,
        target: &mut C::Buffer,
        scratch: [&mut C::Buffer; 3],
    ) -> Result<(), Error> {
        self.carry_out(comm, 0, &mut Buffers::new(source, target, scratch))
    }

    /// Runs the stages from index `from` on.
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

    /// Returns the buffers and the exchange that this engine runs at a stage.
    ///
    /// `None` if the stage that began the all-reduce has already run it as a whole.
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

    /// Returns the stages, in order.
    pub(crate) fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Returns `true` if [`run_in_place`](CompiledPlan::run_in_place) works.
    ///
    /// That is the case if no stage writes the target while the source is still read. True for plans of two
    /// phases or more, such as an all-reduce or a reduce-scatter and an all-gather, whose first phase ends in
    /// scratch, and for plans of no steps. False for a single exchange, which reads peers' sources while it
    /// writes the target.
    pub fn is_in_place(&self) -> bool {
        self.stages
            .iter()
            .all(|stage| stage.from != Buffer::Source || stage.to != Buffer::Target || stays(stage))
    }

    /// Returns the bytes of a buffer that is both source and target.
    #[doc(hidden)]
    pub fn in_place_bytes(&self) -> usize {
        self.source_bytes.max(self.target_bytes)
    }

    /// Runs the plan in one buffer, which begins as the source and ends as the target.
    ///
    /// ```
    /// use reshard_collectives::{Communicator, CompiledPlan, Error, threads::World};
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::Planner;
    ///
    /// let mesh = Mesh::new([("dp", 2)])?;
    /// let gradient = Sharding::parse(&mesh, &[4], "P")?;
    /// let plan = Planner::new().plan(&gradient, &Sharding::parse(&mesh, &[4], "R")?, DType::U8)?;
    /// let results = World::new(2)?.run(|comm| {
    ///     let compiled = CompiledPlan::new(&plan, comm.rank())?;
    ///     assert!(compiled.is_in_place());
    ///     let mut scratch = compiled.scratch(comm)?;
    ///     let mut buffer = vec![1 + comm.rank() as u8; compiled.source_bytes().max(compiled.target_bytes())];
    ///     compiled.run_in_place(comm, &mut buffer, &mut scratch)?;
    ///     Ok::<_, Error>(buffer)
    /// });
    /// assert_eq!(results, [Ok(vec![3; 4]), Ok(vec![3; 4])]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Requires as [`run`](CompiledPlan::run), and that all ranks run in place. Errors: [`Error::Phase`] unless
    /// [`is_in_place`](CompiledPlan::is_in_place), before any data is transferred; otherwise as there.
    pub fn run_in_place<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        buffer: &mut C::Buffer,
        scratch: &mut Scratch<C::Owned>,
    ) -> Result<(), Error> {
        if !self.is_in_place() {
            let message =
                "the plan reads the source while it writes the target; run it with two buffers".to_string();
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

/// Returns `true` if a stage leaves every element at its offset when source and target are one buffer.
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
