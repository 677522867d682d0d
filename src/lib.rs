#![doc = include_str!("../README.md")]
//!
//! # Where to go
//!
//! Each crate below is a module here, and each of its types has one path: `reshard::planner::Topology`. What
//! most programs need is in the [`prelude`].
//!
//! * [`layout`]: where is an element? Layouts, their algebra, [strides in a module](layout::Stride), swizzles.
//! * [`sharding`]: who holds it? Meshes, placements, shardings, regions, views, notations.
//! * [`planner`]: how does it get there? Plans, their steps, costs and bounds, networks, caches.
//! * [`ops`] (feature `program`): how do ops affect shardings? Rules, strategies, propagation.
//! * [`program`] (feature `program`): is this training step right, and how much does it cost? Types of values
//!   and gradients, redistributions, reports.
//! * [`kernels`]: element types, copies, reductions.
//! * [`draw`] (feature `draw`): what does it look like? Pictures of all of these, as text, SVG and HTML.
//! * [`collectives`]: running plans, and engines; `mpi`, `nccl` and, with the feature `cuda`, `device` are
//!   the others.
//! * `checkpoint` (feature `checkpoint`): where are the bytes in files? Reads, reshards, verifies and saves.
//! * `mapping` (features `checkpoint`, `transfer`): which tensors become which? Rules that rename, fuse, split and
//!   rearrange.
//! * `transfer` (feature `transfer`): how does a model get from a trainer to a server? Plans for all its tensors.
//! * [`Error`], [`Result`] and [`ErrorKind`]: one error type for programs that use several of these modules.
//! * [`glossary`] (feature `draw`, as it links to its types): the terminology, with definitions and origins.
#![forbid(unsafe_code)]

mod error;
#[cfg(feature = "draw")]
pub mod glossary;

pub use error::{Error, Result};
#[cfg(feature = "checkpoint")]
pub use reshard_checkpoint as checkpoint;
pub use reshard_collectives as collectives;
#[cfg(feature = "cuda")]
pub use reshard_device as device;
#[cfg(feature = "draw")]
pub use reshard_draw as draw;
pub use reshard_kernels as kernels;
pub use reshard_layout as layout;
pub use reshard_layout::ErrorKind;
#[cfg(any(feature = "checkpoint", feature = "transfer"))]
pub use reshard_mapping as mapping;
#[cfg(feature = "mpi")]
pub use reshard_mpi as mpi;
#[cfg(feature = "nccl")]
pub use reshard_nccl as nccl;
#[cfg(feature = "program")]
pub use reshard_ops as ops;
pub use reshard_planner as planner;
#[cfg(feature = "program")]
pub use reshard_program as program;
pub use reshard_sharding as sharding;
#[cfg(feature = "transfer")]
pub use reshard_transfer as transfer;

/// The imports of most programs: `use reshard::prelude::*;`.
///
/// ```
/// use reshard::prelude::*;
///
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let (from, to) = (Sharding::parse(&mesh, &[64, 32], "S(0),R")?, Sharding::replicated(&mesh, &[64, 32])?);
/// let plan = Planner::new().topology(Topology::h100()).plan(&from, &to, DType::BF16)?;
/// assert_eq!(plan.steps()[0].op(), StepOp::AllGather);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod prelude {
    pub use reshard_collectives::{Communicator, CompiledPlan, threads};
    pub use reshard_kernels::DType;
    #[cfg(feature = "program")]
    pub use reshard_ops::rules::{OpTable, Rule};
    pub use reshard_planner::{CostModel, Objective, Plan, Planner, StepOp, Topology};
    #[cfg(feature = "program")]
    pub use reshard_program::{ComputeRates, Graph, Program, ShardingSolver};
    pub use reshard_sharding::{Mesh, Placement, Placements, ReduceOp, Sharding, ShardingType};
}
