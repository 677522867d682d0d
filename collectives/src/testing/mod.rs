//! For the tests of engines: the contract of every [`Communicator`](crate::Communicator) as a suite that anybody can run,
//! faults to plant, and the plans that everybody carries out.
//!
//! * [`check`]: the whole contract; [`check_with`] where memory is not the host's; [`check_one`] and [`check_batch`] for plans
//!   of one's own; [`check_missing`] for a rank that never comes.
//! * [`GOLDEN`]: the questions of the planner's golden files.
//! * [`Fault`]: what goes wrong in the threads engine, and in what stands on it, when it is planted.
//!
//! # The contract
//!
//! All ranks of an engine call [`check`] together, as threads or as processes of a job. Every rank makes up the data of
//! all ranks from the seed, carries its own part out, and judges its own result by
//! [`meaning`](reshard_sharding::meaning); nothing else passes between ranks than what the engine itself moves.
//!
//! ```
//! use reshard_collectives::{Error, testing, threads::World};
//! let reports = World::new(3)?.run(|comm| Ok::<_, Error>(testing::check(comm, &testing::Options::quick())));
//! for report in reports {
//!     let report = report?.expect("threads keep the contract");
//!     assert!(report.redistributions > 100);
//! }
//! # Ok::<(), Error>(())
//! ```
//!
//! # The cases
//!
//! | case | what must hold |
//! |---|---|
//! | `collectives` | all-gather, all-to-all, reduce-scatter, all-reduce, ring exchange on contiguous, strided, scattered, reversed groups and groups of one; even and uneven counts, blocks of size zero; every dtype; each exchange run twice with new data |
//! | `barriers` | nobody leaves before the last has come, whoever that is; what is no group of the rank is refused |
//! | `plans` | redistributions of tensors over meshes of all these kinds, exact to the bit where nothing is reduced |
//! | `reductions` | every dtype and op; integers, least and greatest exact; floats within [`Options::bound`], and exact where the plan says in which order terms combine; replicas equal to the bit |
//! | `memory` | transposed and padded local buffers |
//! | `batches` | several tensors of several dtypes in one exchange |
//! | `in_place` | plans that run in one buffer |
//! | `in_flight` | exchanges of several groups posted before any is waited for |
//! | `golden` | the plans that the planner is tested by, of those that have no more ranks than the engine |
//! | `different_plans` | a rank with another plan: every rank is told before anything moves, and all can go on |
//!
//! [`check_missing`] tries besides what an engine may not survive: a rank that never comes.
//!
//! A result that is wrong does not end the suite: all ranks go on in step, and the first failure is returned. An error of
//! the engine ends it on the rank that got it; the contract demands that the others are told.

mod contract;
mod fault;
mod golden;

pub use contract::{
    ContractCase, ContractOptions, ContractReport, Failure, Load, Store, check, check_batch, check_missing,
    check_one, check_with,
};
pub use fault::{Fault, FaultKind};
pub use golden::{GOLDEN, Golden};
