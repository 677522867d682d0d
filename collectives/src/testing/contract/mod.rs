//! The suite: which cases there are, and what a rank knows while it runs them.

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

use crate::{BufferLayout, Communicator, CompiledPlan, Error};
use data::Kind;

/// How much is tried, and with which data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContractOptions {
    /// The data, and the choice of what is tried; the same on all ranks.
    pub seed: u64,
    /// Of the many pairs of shardings each one in so many is tried.
    pub every: usize,
    /// Sums and products of floats may be off by so many units of rounding of the dtype per term, relative to the sum of
    /// the terms' magnitudes (of a product, to its own). One is enough for any order of adding; two leave room for the
    /// rounding of what is compared with.
    pub bound: f64,
}

impl Default for ContractOptions {
    fn default() -> Self {
        ContractOptions { seed: 1, every: 1, bound: 2.0 }
    }
}

impl ContractOptions {
    /// Everything of every kind, but fewer pairs of shardings.
    pub fn quick() -> Self {
        ContractOptions { every: 17, ..ContractOptions::default() }
    }
}

/// What was tried on one rank, and kept the contract.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContractReport {
    /// Redistributions and exchanges that this rank carried out and judged.
    pub redistributions: usize,
    /// Of each case its name, how often this rank had a part in it, and how often it was left out because it needs more
    /// ranks.
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

/// How an engine broke the contract; displays as one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The case.
    pub case: &'static str,
    /// The rank that saw it.
    pub rank: usize,
    /// What was tried, and what came of it.
    pub what: String,
    /// The engine's error, if it returned one where it must not.
    pub error: Option<Box<Error>>,
    /// How many more results were wrong on this rank.
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
/// Requires that all ranks call it together, with the same options. Errors: the first failure that this rank saw; other
/// ranks may see others, or none.
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

/// Runs the suite on an engine with memory of any kind, which `store` and `load` can write and read.
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

/// Whether a rank that never comes to a barrier is an error that names it, on all others and within the time-out.
///
/// Requires that all ranks call it together, as the last thing that they do with the engine, and a time-out that one
/// likes to wait for; the rank that is missing returns at once. For engines that can name a rank: those that end the
/// whole job, or whose library does not know whom it waits for, say so in their documentation.
pub fn check_missing<C: Communicator>(comm: &mut C, missing: usize) -> Result<(), Failure> {
    let unused = |_: &mut C, _: &mut C::Buffer, _: &[u8]| Ok(());
    let mut suite = Suite::new(comm, &ContractOptions::default(), &unused, &|_, _, _| Ok(()));
    suite.case = "missing";
    suite.missing(missing);
    suite.failure.map_or(Ok(()), Err)
}

/// A redistribution to be tried and judged.
#[derive(Clone, Copy, Debug)]
pub struct ContractCase<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What the tensor is made of: f64, f32, f16, bf16, i64, i32, u8 or bool.
    pub dtype: DType,
    /// How sources lie in memory.
    pub source: &'a BufferLayout,
    /// And targets.
    pub target: &'a BufferLayout,
}

/// Carries one redistribution of a made-up tensor out on an engine whose memory is the host's, and judges the result as
/// [`check`] does.
///
/// Requires that all ranks of the engine call it together, with the same values.
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

/// Carries several redistributions out in one batch, with dense buffers, and judges the results as [`check`] does.
///
/// Requires that all ranks of the engine call it together, with the same values.
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

    /// The kind of elements of a trial, and what numbers are made for where it reduces.
    fn kind_and_op(&self, trial: &ContractCase<'_>) -> Result<(Kind, Option<ReduceOp>), Failure> {
        let partial = trial.plan.from().partial().first().or(trial.plan.to().partial().first());
        let kind = Kind::of(trial.dtype).ok_or_else(|| Failure {
            case: self.case,
            rank: self.rank,
            what: format!("tensors of {} are not tried", trial.dtype),
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

    /// Counts one that needs more ranks.
    fn leave_out(&mut self) {
        if let Some(case) = self.report.cases.last_mut() {
            case.2 += 1;
        }
    }

    /// Notes a wrong result, and goes on.
    fn wrong(&mut self, what: String) {
        let (case, rank) = (self.case, self.rank);
        if let Some(first) = &mut self.failure {
            first.more += 1;
        } else {
            self.failure = Some(Failure { case, rank, what, error: None, more: 0 });
        }
    }

    /// What ends the suite: an error where there must be none. A wrong result that came before says more.
    fn broken(&self, what: &str, error: Error) -> Failure {
        self.failure.clone().unwrap_or_else(|| Failure {
            case: self.case,
            rank: self.rank,
            what: what.to_string(),
            error: Some(Box::new(error)),
            more: 0,
        })
    }

    /// An engine's buffer that begins with these bytes.
    fn buffer(&mut self, bytes: &[u8]) -> Result<C::Owned, Error> {
        let mut buffer = self.comm.allocate(bytes.len())?;
        (self.store)(self.comm, std::borrow::BorrowMut::borrow_mut(&mut buffer), bytes)?;
        Ok(buffer)
    }

    /// The first bytes of an engine's buffer.
    fn bytes(&mut self, buffer: &C::Owned, count: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; count];
        (self.load)(self.comm, std::borrow::Borrow::borrow(buffer), &mut bytes)?;
        Ok(bytes)
    }

    /// Runs what was compiled on each of these sources in turn, with the same buffers, and returns the targets. What is
    /// in a target before is neither zero nor anything else that is expected.
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
