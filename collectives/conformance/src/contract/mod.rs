//! The suite: its cases, and the state of a rank while it runs them.

mod barriers;
mod collectives;
mod data;
mod more;
mod plans;
mod started;

use std::fmt;

use reshard_kernels::DType;
use reshard_planner::Plan;
use reshard_sharding::ReduceOp;

use data::Kind;
use reshard_collectives::{BufferLayout, Communicator, CompiledPlan, Error};

/// The extent of the suite, and its data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContractOptions {
    /// The seed of the data and of the selection of cases; the same on all ranks.
    pub seed: u64,
    /// Sampling interval: one in `every` pairs of shardings is tested.
    pub every: usize,
    /// Tolerance of float sums and products, in units of rounding of the dtype per partial value.
    ///
    /// It is relative to the sum of the magnitudes of the partial values (of a product, to its own
    /// magnitude). One is enough for any order of addition; two also cover the rounding of the reference.
    pub bound: f64,
}

impl Default for ContractOptions {
    fn default() -> Self {
        ContractOptions { seed: 1, every: 1, bound: 2.0 }
    }
}

impl ContractOptions {
    /// Returns options for every case, but with fewer pairs of shardings.
    pub fn quick() -> Self {
        ContractOptions { every: 17, ..ContractOptions::default() }
    }
}

/// The tests that ran on one rank and passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContractReport {
    /// Redistributions and exchanges that this rank ran and checked.
    pub redistributions: usize,
    /// For each case its name, the number of runs with this rank, and the number of skipped runs.
    ///
    /// Runs that need more ranks are skipped.
    pub cases: Vec<(&'static str, usize, usize)>,
}

impl fmt::Display for ContractReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} redistributions:", self.redistributions)?;
        for (i, (case, done, left_out)) in self.cases.iter().enumerate() {
            write!(f, "{} {case} {done}", if i > 0 { "," } else { "" })?;
            if *left_out > 0 {
                write!(f, " ({left_out} need more ranks)")?;
            }
        }
        Ok(())
    }
}

/// A violation of the contract by an engine; displays as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The case.
    pub case: &'static str,
    /// The rank that saw it.
    pub rank: usize,
    /// The test and its result.
    pub what: String,
    /// The engine's error, if it returned one where none is allowed.
    pub error: Option<Box<Error>>,
    /// The number of further wrong results on this rank.
    pub more: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: rank {}: {}", self.case, self.rank, self.what)?;
        if let Some(error) = &self.error {
            write!(f, ": {error}")?;
        }
        if self.more > 0 {
            write!(f, "; {} more results are wrong", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Runs the suite on an engine whose memory is the host's.
///
/// Requires that all ranks call it with the same options. Errors: the first failure on this rank; other ranks
/// may have other failures, or none.
pub fn check<C: Communicator<Buffer = [u8]>>(
    comm: &mut C,
    options: &ContractOptions,
) -> Result<ContractReport, Failure> {
    check_with(comm, options, &store, &load)
}

/// Writes bytes to the beginning of an engine's buffer.
pub type Store<'a, C> = &'a dyn Fn(&mut C, &mut <C as Communicator>::Buffer, &[u8]) -> Result<(), Error>;

/// Reads bytes from the beginning of an engine's buffer.
pub type Load<'a, C> = &'a dyn Fn(&mut C, &<C as Communicator>::Buffer, &mut [u8]) -> Result<(), Error>;

/// Runs the suite on an engine with memory of any kind, which `store` and `load` write and read.
///
/// Requires and errors as [`check`].
pub fn check_with<C: Communicator>(
    comm: &mut C,
    options: &ContractOptions,
    store: Store<'_, C>,
    load: Load<'_, C>,
) -> Result<ContractReport, Failure> {
    let mut suite = Suite::new(comm, options, store, load);
    let cases: [(&'static str, Case<'_, C>); 11] = [
        ("collectives", Suite::collectives),
        ("barriers", Suite::barriers),
        ("plans", Suite::plans),
        ("reductions", Suite::reductions),
        ("memory", Suite::memory),
        ("batches", Suite::batches),
        ("in_place", Suite::in_place),
        ("in_flight", Suite::in_flight),
        ("started", Suite::started),
        ("golden", Suite::golden),
        ("different_plans", Suite::different_plans),
    ];
    for (name, case) in cases {
        suite.case = name;
        suite.report.cases.push((name, 0, 0));
        case(&mut suite)?;
    }
    match suite.failure {
        Some(failure) => Err(failure),
        None => Ok(suite.report),
    }
}

/// Checks that all other ranks report a rank that never reaches a barrier, within the timeout.
///
/// Requires that all ranks call it, as their last use of the engine, and a timeout short enough to wait for.
/// The missing rank returns at once. This is for engines that can name a rank: those that end the whole job,
/// or whose library does not know the rank that it waits for, document that.
pub fn check_missing<C: Communicator>(comm: &mut C, missing: usize) -> Result<(), Failure> {
    let unused = |_: &mut C, _: &mut C::Buffer, _: &[u8]| Ok(());
    let mut suite = Suite::new(comm, &ContractOptions::default(), &unused, &|_, _, _| Ok(()));
    suite.case = "missing";
    suite.missing(missing);
    suite.failure.map_or(Ok(()), Err)
}

/// A redistribution to run and check.
#[derive(Clone, Copy, Debug)]
pub struct ContractCase<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The type of the tensor's elements: f64, f32, f16, bf16, i64, i32, u8 or bool.
    pub dtype: DType,
    /// The memory layout of the sources.
    pub source: &'a BufferLayout,
    /// The memory layout of the targets.
    pub target: &'a BufferLayout,
}

/// Runs one redistribution of a generated tensor and checks the result as [`check`] does.
///
/// The engine's memory is the host's. Requires that all ranks of the engine call it, with the same values.
pub fn check_one<C: Communicator<Buffer = [u8]>>(
    comm: &mut C,
    options: &ContractOptions,
    trial: &ContractCase<'_>,
) -> Result<(), Failure> {
    let mut suite = Suite::new(comm, options, &store, &load);
    suite.case = "one";
    let (kind, op) = suite.kind_and_op(trial)?;
    suite.redistribute_layouts(trial.plan, kind, op, (trial.source, trial.target))?;
    suite.failure.map_or(Ok(()), Err)
}

/// Runs several redistributions in one batch, with dense buffers, and checks the results as [`check`] does.
///
/// Requires that all ranks of the engine call it, with the same values.
pub fn check_batch<C: Communicator<Buffer = [u8]>>(
    comm: &mut C,
    options: &ContractOptions,
    trials: &[ContractCase<'_>],
) -> Result<(), Failure> {
    let mut suite = Suite::new(comm, options, &store, &load);
    suite.case = "batch";
    let mut items = Vec::with_capacity(trials.len());
    for trial in trials {
        let (kind, op) = suite.kind_and_op(trial)?;
        items.push((kind, op, trial.plan));
    }
    suite.batch(&items)?;
    suite.failure.map_or(Ok(()), Err)
}

#[allow(clippy::unnecessary_wraps, reason = "engines with other memory can fail")]
fn store<C>(_: &mut C, buffer: &mut [u8], bytes: &[u8]) -> Result<(), Error> {
    buffer[..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

#[allow(clippy::unnecessary_wraps, reason = "engines with other memory can fail")]
fn load<C>(_: &mut C, buffer: &[u8], bytes: &mut [u8]) -> Result<(), Error> {
    bytes.copy_from_slice(&buffer[..bytes.len()]);
    Ok(())
}

/// One case of the suite.
type Case<'a, C> = fn(&mut Suite<'a, C>) -> Result<(), Failure>;

/// One rank's run of the suite.
struct Suite<'a, C: Communicator> {
    comm: &'a mut C,
    store: Store<'a, C>,
    load: Load<'a, C>,
    options: ContractOptions,
    rank: usize,
    size: usize,
    case: &'static str,
    report: ContractReport,
    /// The first wrong result.
    failure: Option<Failure>,
}

impl<'a, C: Communicator> Suite<'a, C> {
    fn new(comm: &'a mut C, options: &ContractOptions, store: Store<'a, C>, load: Load<'a, C>) -> Self {
        let (rank, size) = (comm.rank(), comm.size());
        let (options, report) = (*options, ContractReport::default());
        Suite { comm, store, load, options, rank, size, case: "none", report, failure: None }
    }

    /// Returns the kind of elements of a test case, and the reduction for which its numbers are generated.
    fn kind_and_op(&self, trial: &ContractCase<'_>) -> Result<(Kind, Option<ReduceOp>), Failure> {
        let partial = trial.plan.from().partial().first().or(trial.plan.to().partial().first());
        let kind = Kind::of(trial.dtype).ok_or_else(|| Failure {
            case: self.case,
            rank: self.rank,
            what: format!("the contract has no tests for tensors of {}", trial.dtype),
            error: None,
            more: 0,
        })?;
        Ok((kind, partial.map(|axis| axis.op)))
    }

    /// Counts a redistribution of this rank.
    fn count(&mut self) {
        self.report.redistributions += 1;
        if let Some(case) = self.report.cases.last_mut() {
            case.1 += 1;
        }
    }

    /// Counts a redistribution that is skipped because it needs more ranks.
    fn leave_out(&mut self) {
        if let Some(case) = self.report.cases.last_mut() {
            case.2 += 1;
        }
    }

    /// Records a wrong result, and continues.
    fn wrong(&mut self, what: String) {
        let (case, rank) = (self.case, self.rank);
        if let Some(first) = &mut self.failure {
            first.more += 1;
        } else {
            self.failure = Some(Failure { case, rank, what, error: None, more: 0 });
        }
    }

    /// Returns the failure that ends the suite: an earlier wrong result, else this unexpected error.
    fn broken(&self, what: &str, error: Error) -> Failure {
        self.failure.clone().unwrap_or_else(|| Failure {
            case: self.case,
            rank: self.rank,
            what: what.to_string(),
            error: Some(Box::new(error)),
            more: 0,
        })
    }

    /// Allocates a buffer of the engine that begins with these bytes.
    fn buffer(&mut self, bytes: &[u8]) -> Result<C::Owned, Error> {
        let mut buffer = self.comm.allocate(bytes.len())?;
        (self.store)(self.comm, std::borrow::BorrowMut::borrow_mut(&mut buffer), bytes)?;
        Ok(buffer)
    }

    /// Returns the first bytes of a buffer of the engine.
    fn bytes(&mut self, buffer: &C::Owned, count: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; count];
        (self.load)(self.comm, std::borrow::Borrow::borrow(buffer), &mut bytes)?;
        Ok(bytes)
    }

    /// Runs a compiled plan on each of these sources in turn, with the same buffers, and returns the targets.
    ///
    /// The initial contents of a target are neither zero nor any expected value.
    fn run(&mut self, compiled: &CompiledPlan, sources: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Error> {
        let mut scratch = compiled.scratch(self.comm)?;
        let mut target = self.buffer(&vec![0xa5; compiled.target_bytes()])?;
        let mut results = Vec::with_capacity(sources.len());
        for source in sources {
            let source = self.buffer(source)?;
            compiled.run(
                self.comm,
                std::borrow::Borrow::borrow(&source),
                std::borrow::BorrowMut::borrow_mut(&mut target),
                &mut scratch,
            )?;
            results.push(self.bytes(&target, compiled.target_bytes())?);
        }
        Ok(results)
    }
}
