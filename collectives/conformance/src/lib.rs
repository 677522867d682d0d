//! Tests for engines: the contract of every [`Communicator`](reshard_collectives::Communicator) as a test suite,
//! faults to inject, and the golden plans.
//!
//! * [`check`]: the whole contract; [`check_with`] if memory is not the host's; [`check_one`] and
//!   [`check_batch`] for custom plans; [`check_missing`] for a rank that never arrives.
//! * [`GOLDEN`]: the problems of the planner's golden files.
//! * [`Fault`]: an injected failure in the threads engine, and in engines built on it.
//!
//! # The contract
//!
//! All ranks of an engine call [`check`], as threads or as processes of a job. Every rank generates the data
//! of all ranks from the seed, runs its own part, and checks its own result with
//! [`Sharding::assemble`](reshard_sharding::Sharding::assemble). Ranks exchange no data outside of the engine.
//!
//! ```
//! use reshard_collectives::{Error, threads::World};
//! use reshard_conformance::{ContractOptions, check};
//! let reports = World::new(3)?.run(|comm| Ok::<_, Error>(check(comm, &ContractOptions::quick())));
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
//! | `barriers` | no rank leaves before the last has arrived, for every choice of the last; an invalid group is rejected |
//! | `plans` | redistributions of tensors over meshes of all these kinds, exact to the bit where nothing is reduced |
//! | `reductions` | every dtype and op; integers, minimum and maximum exact; floats within [`ContractOptions::bound`], and exact where the plan fixes the order of combination; replicas equal to the bit |
//! | `memory` | transposed and padded local buffers |
//! | `batches` | several tensors of several dtypes in one exchange |
//! | `in_place` | plans that run in one buffer |
//! | `in_flight` | exchanges of several groups posted before any is waited for |
//! | `golden` | the plans that the planner is tested by, of those that have no more ranks than the engine |
//! | `different_plans` | a rank with another plan: every rank gets an error before any data is transferred, and all can continue |
//!
//! [`check_missing`] also tests a case that an engine need not survive: a rank that never arrives.
//!
//! A wrong result does not end the suite: all ranks continue in step, and the first failure is returned. An
//! error of the engine ends it on the rank that got it; the contract demands that the others are notified.

#![forbid(unsafe_code)]

mod contract;
mod golden;

pub use contract::{
    ContractCase, ContractOptions, ContractReport, Failure, Load, Store, check, check_batch, check_missing,
    check_one, check_with,
};
pub use golden::{GOLDEN, Golden};
#[doc(inline)]
pub use reshard_collectives::internal::{Fault, FaultKind};
