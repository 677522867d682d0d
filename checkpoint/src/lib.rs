//! Checkpoints resharded for real: every tensor of a safetensors checkpoint goes from its sharding to another, every byte
//! of every rank is verified, and the result is written whole or not at all.
//!
//! ```text
//! input --open--> tensors with their shards     wish --decide--> one move per tensor (refusals end here)
//!
//! per batch:    shards --assemble--> whole tensor ----------------.
//!               shards --exchange (plan, engine)--> new shards --verify--> staged in every rank's file, or gathered
//!
//! all verified: files synced, committed by renaming; report
//! ```
//!
//! A [`Job`] says what is to be done and [`Job::run`] does it; an [`Observer`] sees how far it is. [`Checkpoint::open`] is
//! its first step alone. Engines are chosen by features: `mpi`, `cuda`, `nccl`; threads are always there.

mod bytes;
mod checkpoint;
mod decision;
#[cfg(any(test, feature = "cuda"))]
mod device;
mod embedded;
mod error;
mod exchange;
mod header;
mod held;
mod in_turn;
mod index;
mod job;
mod manifest;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(any(test, feature = "nccl"))]
mod nccl;
mod observer;
mod one_process;
mod outputs;
mod parallel;
mod pipeline;
#[cfg(any(test, feature = "mpi", feature = "nccl"))]
mod processes;
mod read;
mod replaced;
mod report;
mod rooms;
mod runs;
mod shard_files;
mod spec;
mod staging;
mod together;
mod units;
mod verify;
mod wish;

#[cfg(test)]
mod stand_in;
#[cfg(test)]
mod tests;

pub use checkpoint::{Checkpoint, Tensor};
pub use error::{Class, Error};
pub use job::{Engine, Job};
#[doc(hidden)]
pub use manifest::manifest_again;
pub use observer::Observer;
pub use read::{MOST_BYTES, read, read_text};
pub use report::{Report, TensorReport};
pub use spec::Spec;
pub use staging::abandon;
