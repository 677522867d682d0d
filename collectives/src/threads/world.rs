//! A pool of ranks as threads of this process.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use reshard_planner::Plan;

use super::barrier::{Meeting, Workshop};
use super::comm::ThreadCommunicator;
use crate::fault::Fault;
use crate::{Batch, BufferLayout, Communicator, CompiledPlan, Element, Error, TrafficLog, element, zeros};

/// The shards of a tensor, one per rank of its mesh, in mesh order.
type Shards<T> = Vec<Vec<T>>;

/// Default timeout for waiting on a rank.
const TIME_OUT: Duration = Duration::from_mins(1);

/// Ranks as threads: started once, given many jobs.
///
/// ```
/// use reshard_collectives::{Communicator, threads::World};
/// use reshard_collectives::Error;
/// let mut world = World::new(3)?;
/// let results = world.run(|comm| {
///     comm.barrier(&[0, 1, 2])?;
///     Ok::<_, Error>(comm.rank() * 10)
/// });
/// assert_eq!(results, [Ok(0), Ok(10), Ok(20)]);
/// # Ok::<(), Error>(())
/// ```
pub struct World {
    shared: Arc<Shared>,
    workshop: Arc<Workshop<ThreadCommunicator>>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("ranks", &self.threads.len()).finish_non_exhaustive()
    }
}

/// State shared by the ranks of a world.
#[derive(Debug)]
pub(super) struct Shared {
    size: usize,
    crowded: bool,
    time_out: RwLock<Duration>,
    threads: OnceLock<Box<[Thread]>>,
    meetings: Mutex<HashMap<Box<[usize]>, Arc<Meeting>>>,
    failed: AtomicBool,
    failure: Mutex<Option<(usize, String)>>,
    /// For each rank, `true` if it has finished its job.
    left: Box<[AtomicBool]>,
    /// Incremented when the rendezvous state is discarded after a failure.
    generation: AtomicU64,
    faults: Mutex<Vec<Fault>>,
}

impl Shared {
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns `true` if there are more ranks than processors.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    pub(super) fn time_out(&self) -> Duration {
        *self.time_out.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the rendezvous of a group; the first rank that requests it creates it.
    pub(super) fn meeting(&self, members: &[usize]) -> Arc<Meeting> {
        let mut meetings = self.meetings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meeting) = meetings.get(members) {
            return Arc::clone(meeting);
        }
        let meeting = Arc::new(Meeting::new(members));
        meetings.insert(members.into(), Arc::clone(&meeting));
        meeting
    }

    /// Wakes a rank that is parked, or makes it check again before it parks.
    pub(super) fn wake(&self, rank: usize) {
        if let Some(threads) = self.threads.get() {
            threads[rank].unpark();
        }
    }

    fn wake_all(&self) {
        (0..self.size).for_each(|rank| self.wake(rank));
    }

    /// Records the failure of a rank, if it is the first, and wakes all ranks.
    pub(super) fn fail(&self, cause: (usize, String)) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            *failure = Some(cause);
            drop(failure);
            self.failed.store(true, Ordering::Release);
            self.wake_all();
        }
    }

    /// Returns the first failure of this run, if there is one.
    pub(super) fn failure(&self) -> Option<(usize, String)> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns `true` if a rank has finished its job.
    pub(super) fn has_left(&self, rank: usize) -> bool {
        self.left[rank].load(Ordering::Acquire)
    }

    pub(super) fn copy_faults(&self, rank: usize, faults: &mut Vec<Fault>) {
        let planted = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.extend(planted.iter().filter(|fault| fault.rank == rank));
    }

    /// Prepares the world for a new run. Requires that no rank is running.
    fn reset(&self) {
        for left in &self.left {
            left.store(false, Ordering::Release);
        }
        if self.failed.swap(false, Ordering::AcqRel) {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.meetings.lock().unwrap_or_else(PoisonError::into_inner).clear();
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Maximum number of ranks, above the thread limit of any machine.
const MOST_RANKS: usize = 1 << 16;

impl World {
    /// Starts `ranks` threads.
    ///
    /// Errors: [`Error::Threads`] for zero ranks, for more than 65,536, or if the operating system cannot
    /// start a thread; in that case all started threads are stopped.
    pub fn new(ranks: usize) -> Result<World, Error> {
        if ranks == 0 || ranks > MOST_RANKS {
            let message = format!("a world has 1 to {MOST_RANKS} ranks, not {ranks}");
            return Err(Error::Threads { message });
        }
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shared = Arc::new(Shared {
            size: ranks,
            crowded: ranks > processors,
            time_out: RwLock::new(TIME_OUT),
            threads: OnceLock::new(),
            meetings: Mutex::new(HashMap::new()),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            left: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
            generation: AtomicU64::new(0),
            faults: Mutex::new(Vec::new()),
        });
        let mut world =
            World { shared, workshop: Arc::new(Workshop::new()), threads: Vec::with_capacity(ranks) };
        for rank in 0..ranks {
            let (shared, workshop) = (Arc::clone(&world.shared), Arc::clone(&world.workshop));
            let thread = std::thread::Builder::new().name(format!("rank {rank}"));
            let thread = thread.spawn(move || workshop.work(&mut ThreadCommunicator::new(rank, shared)));
            world.threads.push(thread.map_err(|error| Error::Threads { message: error.to_string() })?);
        }
        let handles = world.threads.iter().map(|thread| thread.thread().clone()).collect();
        // Set once, here.
        let _ = world.shared.threads.set(handles);
        Ok(world)
    }

    /// Returns the number of ranks.
    #[doc(hidden)]
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// Sets the timeout for waiting on other ranks; 60 seconds by default.
    pub fn set_timeout(&mut self, time_out: Duration) {
        *self.shared.time_out.write().unwrap_or_else(PoisonError::into_inner) = time_out;
    }

    /// Injects faults into the following runs, in place of earlier ones. For tests.
    #[doc(hidden)]
    pub fn inject_faults(&mut self, faults: impl IntoIterator<Item = Fault>) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults.into_iter().collect();
    }

    /// Runs a job on every rank at the same time, and returns the result of each, in rank order.
    ///
    /// A rank that returns an error of the caller's type gets it back unchanged, and the other ranks get its
    /// text.
    ///
    /// ```
    /// use reshard_collectives::{Communicator, Error, threads::World};
    /// #[derive(Debug, PartialEq)]
    /// enum Mine {
    ///     NoFile(&'static str),
    ///     Engine(Error),
    /// }
    /// # impl std::fmt::Display for Mine {
    /// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    /// #         match self {
    /// #             Mine::NoFile(name) => write!(f, "there is no {name}"),
    /// #             Mine::Engine(error) => error.fmt(f),
    /// #         }
    /// #     }
    /// # }
    /// impl From<Error> for Mine {
    ///     fn from(error: Error) -> Mine {
    ///         Mine::Engine(error)
    ///     }
    /// }
    /// let results = World::new(2)?.run(|comm| {
    ///     if comm.rank() == 1 {
    ///         return Err(Mine::NoFile("shard 1"));
    ///     }
    ///     Ok(comm.barrier(&[0, 1])?)
    /// });
    /// assert_eq!(results[1], Err(Mine::NoFile("shard 1")));
    /// let said = results[0].as_ref().unwrap_err().to_string();
    /// assert_eq!(said, "rank 1 failed (there is no shard 1) while others waited for it in a barrier of group [0,1]");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// Ensures: if a rank panics or returns an error, every rank that waits for it, directly or indirectly,
    /// gets an error that names it; the world can be used again. Returns when all ranks have returned. If a
    /// job never returns, neither does `run`.
    pub fn run<T, E, F>(&mut self, job: F) -> Vec<Result<T, E>>
    where
        T: Send,
        E: From<Error> + std::fmt::Display + Send,
        F: Fn(&mut ThreadCommunicator) -> Result<T, E> + Sync,
    {
        let size = self.size();
        self.shared.reset();
        let results: Vec<Mutex<Option<Result<T, E>>>> = (0..size).map(|_| Mutex::new(None)).collect();
        self.workshop.run(size, &|comm: &mut ThreadCommunicator| {
            let rank = comm.rank();
            comm.begin();
            let said = AssertUnwindSafe(|| job(comm).map_err(|error| (error.to_string(), error)));
            let result = match catch_unwind(said) {
                Ok(Ok(made)) => Ok(made),
                Ok(Err((said, error))) => {
                    self.shared.fail((rank, said));
                    Err(error)
                }
                Err(payload) => {
                    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
                    let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
                    let message = message.unwrap_or_else(|| "no message".to_string());
                    let error = Error::Panicked { rank, message };
                    self.shared.fail(error.cause(rank));
                    Err(E::from(error))
                }
            };
            self.shared.left[rank].store(true, Ordering::Release);
            self.shared.wake_all();
            *results[rank].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        let lost = |rank| Err(E::from(Error::Panicked { rank, message: "its thread has ended".to_string() }));
        let result = |(rank, slot): (usize, Mutex<Option<Result<T, E>>>)| {
            slot.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(|| lost(rank))
        };
        results.into_iter().enumerate().map(result).collect()
    }

    /// Runs a plan on shards of the source sharding, and returns the shards of the target and the traffic.
    ///
    /// There is one source shard for each rank of the source mesh, in the order of
    /// [`Mesh::ranks`](reshard_sharding::Mesh::ranks). Target shards are in the order of the target mesh.
    /// Shards have the plan's type, or [`u8`]: then they are the bytes of any type.
    ///
    /// ```
    /// use reshard_collectives::threads::World;
    /// use reshard_kernels::DType;
    /// use reshard_planner::Planner;
    /// use reshard_sharding::{Mesh, Sharding};
    ///
    /// let mesh = Mesh::new([("tp", 2)])?;
    /// let [rows, columns] = ["S(0)", "S(1)"].map(|text| Sharding::parse(&mesh, &[2, 2], text));
    /// let plan = Planner::new().plan(&rows?, &columns?, DType::F32)?;
    /// let (shards, _) = World::new(2)?.redistribute::<f32>(&plan, &[[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(shards, [[1.0, 3.0], [2.0, 4.0]]);
    ///
    /// let error = World::new(2)?.redistribute::<f64>(&plan, &[[1.0], [2.0]]).unwrap_err();
    /// assert_eq!(error.code(), "dtype");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Ensures: every receiver counted what its sender did.
    /// Errors: those of [`CompiledPlan::new`]; [`Error::DType`]; [`Error::WorldTooSmall`]; [`Error::ShardCount`];
    /// [`Error::Buffer`]; the first failure of any rank.
    pub fn redistribute<T: Element>(
        &mut self,
        plan: &Plan,
        shards: &[impl AsRef<[T]> + Sync],
    ) -> Result<(Shards<T>, TrafficLog), Error> {
        self.redistribute_layouts(plan, shards, &BufferLayout::RowMajor, &BufferLayout::RowMajor)
    }

    /// Runs [`redistribute`](World::redistribute) with the memory layouts `source` and `target`.
    #[doc(hidden)]
    pub fn redistribute_layouts<T: Element>(
        &mut self,
        plan: &Plan,
        shards: &[impl AsRef<[T]> + Sync],
        source: &BufferLayout,
        target: &BufferLayout,
    ) -> Result<(Shards<T>, TrafficLog), Error> {
        element::check::<T>(plan)?;
        let shards: Vec<&[u8]> = shards.iter().map(|shard| bytemuck::cast_slice(shard.as_ref())).collect();
        let make = |rank, bytes: usize| zeros::<T>(rank, bytes / size_of::<T>());
        let (mut made, trace) =
            self.carry_out(plan, &shards, (source, target), make, |made| bytemuck::cast_slice_mut(made))?;
        let shard = |rank| made.remove(&rank).flatten().unwrap_or_default();
        Ok((plan.to().mesh().ranks().map(shard).collect(), trace))
    }

    /// Runs [`redistribute`](World::redistribute) from bytes into existing target buffers.
    ///
    /// ```
    /// use reshard_collectives::threads::World;
    /// use reshard_kernels::DType;
    /// use reshard_planner::Planner;
    /// use reshard_sharding::{Mesh, Sharding};
    ///
    /// let mesh = Mesh::new([("tp", 2)])?;
    /// let [rows, columns] = ["S(0)", "S(1)"].map(|text| Sharding::parse(&mesh, &[2, 2], text));
    /// let plan = Planner::new().plan(&rows?, &columns?, DType::F8_E5M2)?;
    /// let (mut first, mut second) = ([0; 2], [0; 2]);
    /// World::new(2)?.redistribute_into(&plan, &[&[1, 2], &[3, 4]], &mut [&mut first, &mut second])?;
    /// assert_eq!([first, second], [[1, 3], [2, 4]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Errors: as there, [`Error::TargetCount`], and [`Error::Buffer`] for a target of another length. After
    /// an error the contents of the targets are unspecified.
    #[doc(hidden)]
    pub fn redistribute_into(
        &mut self,
        plan: &Plan,
        shards: &[&[u8]],
        targets: &mut [&mut [u8]],
    ) -> Result<TrafficLog, Error> {
        let ranks = plan.to().mesh().size();
        if targets.len() != ranks {
            return Err(Error::TargetCount { needed: ranks, given: targets.len() });
        }
        let mut target_of = HashMap::new();
        for (rank, target) in plan.to().mesh().ranks().zip(targets) {
            let (needed, given) = (plan.to().local_numel(rank) * plan.element_bytes(), target.len());
            if needed != given {
                return Err(Error::Buffer { rank, which: "target", needed, given });
            }
            target_of.insert(rank, Mutex::new(Some(&mut **target)));
        }
        // Every rank takes its own target, once; ranks that only send have an empty one.
        let take = |rank, _| {
            let slot = target_of
                .get(&rank)
                .and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(slot.unwrap_or_default())
        };
        let layouts = (&BufferLayout::RowMajor, &BufferLayout::RowMajor);
        self.carry_out(plan, shards, layouts, take, |target| target).map(|(_, trace)| trace)
    }

    /// Runs a plan into targets that each rank allocates, given the required bytes.
    fn carry_out<R: Send>(
        &mut self,
        plan: &Plan,
        shards: &[&[u8]],
        (source, target): (&BufferLayout, &BufferLayout),
        make: impl Fn(usize, usize) -> Result<R, Error> + Sync,
        bytes_of: impl Fn(&mut R) -> &mut [u8] + Sync,
    ) -> Result<(HashMap<usize, Option<R>>, TrafficLog), Error> {
        self.check(plan, shards.len())?;
        let shard_of: HashMap<usize, &[u8]> =
            plan.from().mesh().ranks().zip(shards.iter().copied()).collect();
        let results = self.run(|comm| {
            let rank = comm.rank();
            comm.take_trace();
            if !takes_part(plan, rank) {
                return Ok((None, TrafficLog::default()));
            }
            let compiled = CompiledPlan::with_layouts(plan, rank, source, target)?;
            let shard = shard_of.get(&rank).copied().unwrap_or(&[]);
            if shard.len() != compiled.source_bytes() {
                let (needed, given) = (compiled.source_bytes(), shard.len());
                return Err(Error::Buffer { rank, which: "source", needed, given });
            }
            let mut scratch = compiled.scratch(comm)?;
            let mut made = make(rank, compiled.target_bytes())?;
            compiled.run(comm, shard, bytes_of(&mut made), &mut scratch)?;
            comm.behind(bytes_of(&mut made));
            Ok((Some(made), comm.take_trace()))
        });
        self.gather(results)
    }

    /// Runs several plans in one batch.
    ///
    /// It works as [`redistribute`](World::redistribute), with the shards of each tensor. Shards are copied
    /// into the batch's source and out of its target. They are bytes, since tensors differ in their types.
    ///
    /// Errors: as there, [`Error::TensorCount`], and [`Error::Memory`] unless all buffers of the batch are dense.
    #[doc(hidden)]
    pub fn redistribute_batch<S: AsRef<[u8]> + Sync>(
        &mut self,
        batch: &Batch<'_>,
        shards: &[Vec<S>],
    ) -> Result<(Vec<Shards<u8>>, TrafficLog), Error> {
        if shards.len() != batch.len() {
            return Err(Error::TensorCount { needed: batch.len(), given: shards.len() });
        }
        if !batch.is_row_major() {
            let message = "batches of shards need dense row-major buffers".to_string();
            return Err(Error::Memory { rank: 0, message });
        }
        let mut shard_of: Vec<HashMap<usize, &[u8]>> = Vec::with_capacity(batch.len());
        for (plan, shards) in batch.plans().zip(shards) {
            self.check(plan, shards.len())?;
            let ranks = plan.from().mesh().ranks();
            shard_of.push(ranks.zip(shards).map(|(rank, shard)| (rank, shard.as_ref())).collect());
        }
        let results = self.run(|comm| {
            let rank = comm.rank();
            comm.take_trace();
            let mut targets = vec![Vec::new(); batch.len()];
            if !batch.plans().any(|plan| takes_part(plan, rank)) {
                return Ok((targets, TrafficLog::default()));
            }
            let compiled = batch.compile(rank)?;
            let mut source = comm.allocate(compiled.source_bytes())?;
            for (tensor, (plan, shards)) in batch.plans().zip(&shard_of).enumerate() {
                let shard = shards.get(&rank).copied().unwrap_or(&[]);
                let needed = plan.from().local_numel(rank) * plan.element_bytes();
                if shard.len() != needed {
                    return Err(Error::Buffer { rank, which: "source", needed, given: shard.len() });
                }
                if needed > 0 {
                    source[batch.source_start(tensor)?..][..needed].copy_from_slice(shard);
                }
            }
            let mut scratch = compiled.scratch(comm)?;
            let mut all = comm.allocate(compiled.target_bytes())?;
            compiled.run(comm, &source, &mut all, &mut scratch)?;
            for (tensor, (target, plan)) in targets.iter_mut().zip(batch.plans()).enumerate() {
                let bytes = plan.to().local_numel(rank) * plan.element_bytes();
                if bytes > 0 {
                    target.extend_from_slice(&all[batch.target_start(tensor)?..][..bytes]);
                }
            }
            Ok((targets, comm.take_trace()))
        });
        let (mut targets, trace) = self.gather(results)?;
        let mut of_tensor = |(tensor, plan): (usize, &Plan)| {
            let take = |rank| targets.get_mut(&rank).map(|all| std::mem::take(&mut all[tensor]));
            plan.to().mesh().ranks().map(take).map(Option::unwrap_or_default).collect()
        };
        Ok((batch.plans().enumerate().map(&mut of_tensor).collect(), trace))
    }

    /// Succeeds if this world has enough ranks for a plan, and there is a shard for each rank of its source.
    fn check(&self, plan: &Plan, shards: usize) -> Result<(), Error> {
        let needed = plan.from().mesh().world_size().max(plan.to().mesh().world_size());
        if needed > self.size() {
            return Err(Error::WorldTooSmall { needed, given: self.size() });
        }
        if shards != plan.from().mesh().size() {
            return Err(Error::ShardCount { needed: plan.from().mesh().size(), given: shards });
        }
        Ok(())
    }

    /// Returns the results of all ranks, by rank, or the failure that came first.
    fn gather<T>(
        &self,
        results: Vec<Result<(T, TrafficLog), Error>>,
    ) -> Result<(HashMap<usize, T>, TrafficLog), Error> {
        let failed = self.shared.failure().map(|(rank, _)| rank);
        let (mut trace, mut made, mut error) = (TrafficLog::default(), HashMap::new(), None);
        let mut is_own = false;
        for (rank, result) in results.into_iter().enumerate() {
            match result {
                Ok((one, part)) => {
                    trace.merge(&part);
                    made.insert(rank, one);
                }
                // A rank's own error is more precise than the reports of others. If several ranks have such
                // an error, the lowest is named, whichever was first: the same mistake has the same message
                // in every run.
                Err(said) => {
                    let own = said.failed_rank().is_none_or(|about| about == rank);
                    if error.is_none() || !is_own && (own || failed == Some(rank)) {
                        error = Some(said);
                    }
                    is_own |= own;
                }
            }
        }
        match error {
            Some(error) => Err(error),
            None => trace.check().map(|()| (made, trace)),
        }
    }
}

/// Returns `true` if a rank is in the source mesh or in the target mesh.
fn takes_part(plan: &Plan, rank: usize) -> bool {
    plan.from().mesh().contains(rank) || plan.to().mesh().contains(rank)
}

impl Drop for World {
    fn drop(&mut self) {
        self.workshop.close();
        for thread in self.threads.drain(..) {
            // A worker's panics are caught, so the join result has no information.
            let _ = thread.join();
        }
    }
}
