#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub use reshard_collectives as collectives;
pub use reshard_kernels as kernels;
pub use reshard_layout as layout;
#[cfg(feature = "mpi")]
pub use reshard_mpi as mpi;
#[cfg(feature = "nccl")]
pub use reshard_nccl as nccl;
pub use reshard_ops as ops;
pub use reshard_planner as planner;
pub use reshard_sharding as sharding;

pub use reshard_kernels::DType;
pub use reshard_layout::{IntTuple, Layout};
pub use reshard_planner::{Objective, Plan, Planner, Step, StepOp, Topology};
pub use reshard_sharding::meaning::{meaning, scatter};
pub use reshard_sharding::{Group, Mesh, Placement, Placements, ReduceOp, Region, Sharding};
