#![doc = include_str!("engine.md")]

pub mod bootstrap;
mod comm;
mod graph;
mod library;
mod meeting;
#[cfg(feature = "nccl")]
mod real;
mod recording;
mod route;

pub use comm::{Buffer, Comm, FloatSums, Pending};
pub use graph::Graph;
pub use library::{Element, Handle, Nccl, UniqueId};
#[cfg(feature = "nccl")]
pub use real::Real;

/// For the tests of engines and of programs that use this one: a stand-in for NCCL.
///
/// It records every call, runs it between threads, and injects faults.
pub mod testing {
    pub use crate::recording::{Call, Fault, FaultKind, Recorded, Recording, RecordingWorld};
}
