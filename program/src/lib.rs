//! Training steps as values: typed, checked, differentiated and priced.
//!
//! ```text
//! Graph --elaborate--> Program --report--> Report
//! text, pins           + types, strategies, moves, gradients
//!                              --compile--> Schedule           what one rank does, without types
//! ```
//!
//! In training a tensor is two with the same indices, the value and its gradient, and a [type](reshard_sharding::Type) says who
//! holds each. An *op* runs on every rank on what that holds and communicates nothing; along each axis it is a row of its rule, and
//! if `a.. -> b..` is a true row, each rank's vector-Jacobian product is true by `b*.. -> a*..`, where `R* = P`, `P* = R` and cuts stay. A
//! *move* is the same tensor in another type,
//!
//! ```text
//! (v1|g1) -> (v2|g2)     forward plan(v1 -> v2)     backward plan(g2 -> g1)
//! ```
//!
//! and these two are adjoint for every pair of types, as both keep the meaning. So a program whose ops find their operands as their rows
//! say, forward and backward, is right, and what it communicates is in its moves. The [`Elaborator`] chooses what nobody said,
//! all of it together, and refuses what may not be chosen with what to write instead. `gradient loss` is syntax: items in
//! reverse, ops by their formulas, moves swapped, several uses added first. Then a [`Report`] is sums over items. A type names its mesh:
//! values may be on several [`Meshes`] of one world, ops run on one, and moves lead from one to another.
//!
//! ```
//! use reshard_program::{Elaborator, Graph, Moves, Rates};
//! // A column-parallel product on replicas that do the same work: right forward, and its gradient would be a part of the true one.
//! let text = "
//!     mesh tp=4
//!     x: f32[8,16] I
//!     w: f32[16,64] S(1)
//!     h = mm(x, w)
//!     loss = sum(h)
//!     gradient loss wrt x, w
//! ";
//! let graph: Graph = text.parse()?;
//! let refused = Elaborator::new().moves(Moves::Written).elaborate(&graph).unwrap_err();
//! assert_eq!(refused.kind(), "needs_gradient_redistribute");
//! assert!(refused.to_string().contains("write x.1: R = x (all_reduce backward, 768 bytes)"));
//! let report = Elaborator::new().elaborate(&graph)?.report(&Rates::uniform());
//! assert_eq!((report.traffic.forward.steps, report.traffic.backward.steps), (0, 1));
//! # Ok::<(), reshard_program::Error>(())
//! ```
#![forbid(unsafe_code)]

mod along;
mod decompose;
mod elaborate;
mod error;
mod gradient;
mod graph;
mod keys;
mod meshes;
mod notation;
mod passes;
mod program;
mod rates;
mod region;
mod repeat;
mod report;
pub mod schedule;
mod wire;

pub use elaborate::{ImplicitRedistribution, ShardingSolver};
pub use error::Error;
pub use graph::{Graph, ValueId};
pub use meshes::Meshes;
pub use program::{Program, RedistributionRef, Statement, Value};
pub use rates::ComputeRates;
pub use region::{DimSlices, LocalType, ShardMap, ShardMapValue};
pub use report::{
    CommCost, CommScope, Pass, Peak, PerPass, RedistributionReport, Report, StepReport, ValueClass,
    ValueReport,
};
