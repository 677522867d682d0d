//! All ranks of a plan on one device: shards are slices of its memory, and a phase of a step is one launch.
//!
//! # Data flow
//!
//! ```text
//! CompiledPlan, every rank --run on a recorder--> (step, phase) -> [(exchange, source and target address)]
//!                          --lower, all ranks-->  one launch of all copies, then the launches of reductions
//! ```
//!
//! There are no threads and no barriers: the launches of a stream are in order, which is all that a phase
//! needs.

use std::collections::BTreeMap;
use std::time::Duration;

use reshard_collectives::{Communicator, CompiledPlan, Error, Exchange, ReturnedBuffers};
use reshard_cuda::{Batch, Command};
use reshard_planner::Plan;

use crate::Backend;
use crate::lower::{Addresses, constants, lower};

/// A plan for all ranks, with their buffers, ready to run repeatedly.
///
/// ```
/// use reshard_device::{Fused, Simulated};
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::Planner;
///
/// let mesh: Mesh = "x=2".parse()?;
/// let plan = Planner::new()
///     .plan(&Sharding::parse(&mesh, &[4], "S(0)")?, &Sharding::parse(&mesh, &[4], "R")?, DType::U8)?;
/// let mut fused = Fused::new(&Simulated::new(), &plan)?;
/// fused.write(0, &[1, 2])?;
/// fused.write(1, &[3, 4])?;
/// fused.run()?;
/// assert_eq!(fused.read(1)?, [1, 2, 3, 4]);
/// assert_eq!(fused.launches(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Fused<B: Backend> {
    device: B,
    sources: BTreeMap<usize, B::Memory>,
    targets: BTreeMap<usize, (B::Memory, usize)>,
    _scratch: Vec<B::Memory>,
    launches: usize,
    received: u64,
    prepared: B::Prepared,
}

/// An exchange with the addresses that it reads and writes.
struct Recorded {
    exchange: Exchange,
    source: i64,
    target: i64,
}

/// A communicator that records its requests. Its buffers are addresses.
struct Recorder<'a, B: Backend> {
    rank: usize,
    size: usize,
    device: &'a B,
    scratch: std::cell::RefCell<Vec<B::Memory>>,
    recorded: Vec<Recorded>,
}

/// An address and the number of bytes from there on.
struct Address(i64, usize);

fn failed(rank: usize) -> impl Fn(reshard_cuda::Error) -> Error {
    move |e| Error::Engine { rank, message: e.to_string() }
}

impl<B: Backend> Communicator for Recorder<'_, B> {
    type Buffer = Address;
    type Owned = Address;
    type Pending<'a> = ReturnedBuffers<'a, Address>;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn timeout(&self) -> Duration {
        Duration::MAX
    }

    fn allocate(&self, bytes: usize) -> Result<Address, Error> {
        let memory = self.device.allocate(bytes).map_err(failed(self.rank))?;
        let address = Address(self.device.address(&memory), self.device.len(&memory));
        self.scratch.borrow_mut().push(memory);
        Ok(address)
    }

    fn check_agreement(&mut self, _: &Exchange) -> Result<(), Error> {
        // All ranks are compiled from one plan.
        Ok(())
    }

    fn post<'a>(
        &mut self,
        exchange: &'a Exchange,
        source: &'a Address,
        target: &'a mut Address,
        staging: &'a mut Address,
    ) -> Result<ReturnedBuffers<'a, Address>, Error> {
        exchange.check_rank(self.rank, self.size)?;
        exchange.check_buffers(source.1, target.1)?;
        self.recorded.push(Recorded { exchange: exchange.clone(), source: source.0, target: target.0 });
        Ok(ReturnedBuffers { target, staging })
    }

    fn wait<'a>(&mut self, recorded: Self::Pending<'a>) -> Result<ReturnedBuffers<'a, Address>, Error> {
        Ok(recorded)
    }
}

impl<B: Backend> Fused<B> {
    /// Compiles a plan for every rank of its meshes, and allocates their buffers.
    ///
    /// Errors: those of [`CompiledPlan::new`], and the device's.
    pub fn new(device: &B, plan: &Plan) -> Result<Fused<B>, Error> {
        let size = plan.from().mesh().world_size().max(plan.to().mesh().world_size());
        let mut ranks: Vec<usize> = plan.from().mesh().ranks().chain(plan.to().mesh().ranks()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let (mut sources, mut targets, mut kept) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut received = 0;
        let mut phases: BTreeMap<(usize, usize), BTreeMap<usize, Recorded>> = BTreeMap::new();
        for rank in ranks {
            let compiled = CompiledPlan::new(plan, rank)?;
            received = received.max(compiled.received_bytes());
            let source = device.allocate(compiled.source_bytes()).map_err(failed(rank))?;
            let target = device.allocate(compiled.target_bytes()).map_err(failed(rank))?;
            let at = |memory: &B::Memory| Address(device.address(memory), device.len(memory));
            let (from, mut to) = (at(&source), at(&target));
            let (scratch, recorded) = (std::cell::RefCell::default(), Vec::new());
            let mut recorder = Recorder { rank, size, device, scratch, recorded };
            let mut scratch = compiled.scratch(&mut recorder)?;
            compiled.run(&mut recorder, &from, &mut to, &mut scratch)?;
            kept.append(&mut recorder.scratch.borrow_mut());
            for one in recorder.recorded {
                let at = (one.exchange.step(), one.exchange.phase());
                phases.entry(at).or_default().insert(rank, one);
            }
            sources.insert(rank, source);
            targets.insert(rank, (target, compiled.target_bytes()));
        }
        let mut work = Vec::new();
        for of_ranks in phases.values() {
            work.extend(phase(device, of_ranks, &mut kept)?);
        }
        let prepared = device.prepare(&work).map_err(failed(0))?;
        let device = device.clone();
        Ok(Fused { device, sources, targets, _scratch: kept, launches: work.len(), received, prepared })
    }

    /// Writes a rank's source.
    ///
    /// Errors: a rank without a source, or more bytes than its source has.
    pub fn write(&mut self, rank: usize, bytes: &[u8]) -> Result<(), Error> {
        let source = self.sources.get_mut(&rank).ok_or(Error::NotInPlan { rank })?;
        self.device.write(source, bytes).map_err(failed(rank))
    }

    /// Reads a rank's target.
    ///
    /// Errors: a rank that is not in the plan.
    pub fn read(&self, rank: usize) -> Result<Vec<u8>, Error> {
        let (target, bytes) = self.targets.get(&rank).ok_or(Error::NotInPlan { rank })?;
        let mut all = vec![0; *bytes];
        self.device.read(target, &mut all).map_err(failed(rank))?;
        Ok(all)
    }

    /// Returns the number of launches of a run.
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// Returns the greatest number of bytes that any rank receives from others.
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// Runs the plan for all ranks.
    pub fn run(&mut self) -> Result<(), Error> {
        self.device.run(&self.prepared).map_err(failed(0))
    }

    /// Returns the device and the launches.
    #[cfg(feature = "cuda")]
    pub(crate) fn parts(&self) -> (&B, &B::Prepared) {
        (&self.device, &self.prepared)
    }
}

/// Returns one phase of all ranks, with the copies of all in one launch.
fn phase<B: Backend>(
    device: &B,
    of_ranks: &BTreeMap<usize, Recorded>,
    kept: &mut Vec<B::Memory>,
) -> Result<Vec<Command>, Error> {
    // The n-th launches of all ranks may be fused: no rank writes data that others read.
    let mut rounds: Vec<Vec<Command>> = Vec::new();
    for (&rank, one) in of_ranks {
        let items = constants(&one.exchange);
        let mut constants = 0;
        if !items.is_empty() {
            let mut memory = device.allocate(items.len()).map_err(failed(rank))?;
            device.write(&mut memory, &items).map_err(failed(rank))?;
            constants = device.address(&memory);
            kept.push(memory);
        }
        let source_of = |peer: usize| of_ranks.get(&peer).map_or(0, |one| one.source);
        let at = Addresses { source_of: &source_of, target: one.target, constants };
        for (i, work) in lower(&one.exchange, &at)?.into_iter().enumerate() {
            if rounds.len() == i {
                rounds.push(Vec::new());
            }
            rounds[i].push(work);
        }
    }
    let mut out = Vec::new();
    for round in rounds {
        let mut all = Batch::default();
        for work in round {
            let is_added = matches!(&work, Command::Copies(batch) if all.append(batch));
            if !is_added {
                out.push(work);
            }
        }
        if !all.jobs().is_empty() {
            out.push(Command::Copies(all));
        }
    }
    Ok(out)
}
