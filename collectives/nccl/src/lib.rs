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
pub use recording::{Call, Fault, FaultKind, Recorded, Recording, RecordingWorld};
