//! Training steps as values: typed, checked, differentiated and priced.
//!
//! ```text
//! Graph --solve--> Program --report--> Report
//! text and         with types, strategies, redistributions and gradients
//! constraints
//!                          --compile--> Schedule    the instructions of one rank, without types
//! ```
//!
//! In training a tensor is a pair with the same indices, the value and its gradient, and a
//! [type](reshard_sharding::ShardingType) gives the sharding of each. An *op* runs on every rank's shards and
//! communicates nothing. Along each axis it follows a row of its rule. If `a.. -> b..` is a valid row, then
//! each rank's vector-Jacobian product is valid by `b*.. -> a*..`, where `R* = P`, `P* = R` and shards are
//! unchanged. A *redistribution* is the same tensor in another type,
//!
//! ```text
//! (v1|g1) -> (v2|g2)     forward plan(v1 -> v2)     backward plan(g2 -> g1)
//! ```
//!
//! and these two are adjoint for every pair of types, as both preserve the global tensor. So a program whose
//! ops find their operands as their rows require, forward and backward, is correct, and all its communication
//! is in its redistributions. The [`ShardingSolver`] chooses jointly all that the graph leaves open; where a
//! choice is not allowed, its error suggests the lines to write. `gradient loss` is syntax: statements in
//! reverse, ops by their formulas, redistributions swapped, several uses added first. A [`Report`] is a set
//! of sums over statements. A type names its mesh: values may be on several meshes of one world, ops run
//! on one mesh, and redistributions lead from one to another.
//!
//! ```
//! use reshard_program::{ShardingSolver, Graph, ImplicitRedistribution, ComputeRates};
//! // A column-parallel product of an invariant input: correct forward, but its gradient would be incomplete.
//! let text = "
//!     mesh tp=4
//!     x: f32[8,16] I
//!     w: f32[16,64] S(1)
//!     h = mm(x, w)
//!     loss = sum(h)
//!     gradient loss wrt x, w
//! ";
//! let graph: Graph = text.parse()?;
//! let refused = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&graph).unwrap_err();
//! assert_eq!(refused.code(), "needs_gradient_redistribute");
//! assert!(refused.to_string().contains("write `x.1: R = x` (all_reduce backward, 768 bytes) and `h = mm(x.1, w)`"));
//! let report = ShardingSolver::new().solve(&graph)?.report(&ComputeRates::uniform());
//! assert_eq!((report.traffic.forward.steps, report.traffic.backward.steps), (0, 1));
//! # Ok::<(), reshard_program::Error>(())
//! ```
#![forbid(unsafe_code)]

mod backward_work;
mod comm_dtype;
mod decompose;
mod elaborate;
mod error;
mod gradient;
mod graph;
mod in_kernels;
mod keys;
mod local_type;
mod memory_size;
mod meshes;
mod notation;
mod one_rank;
mod parallelize;
mod program;
mod rates;
mod repeat;
mod replication;
mod report;
pub mod schedule;
mod shard_map;
pub mod theory;
mod transforms;

pub use elaborate::{ImplicitRedistribution, ShardingSolver};
pub use error::Error;
pub use graph::{Graph, ValueId};
pub use memory_size::MemorySize;
pub use meshes::Meshes;
pub use parallelize::{MeshBound, Parallelized, Parallelizer};
pub use program::{Program, RedistributionRef, Statement, Value};
pub use rates::ComputeRates;
pub use replication::Replication;
pub use report::{
    CommCost, CommScope, Note, Pass, Peak, PerPass, RedistributionReport, Report, StepReport, ValueClass,
    ValueReport,
};
pub use reshard_sharding::ErrorKind;
pub use shard_map::{DimSlices, ShardMap, ShardMapValue};
