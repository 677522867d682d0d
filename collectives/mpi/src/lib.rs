//! The MPI engine of reshard: ranks are processes, and MPI transfers the bytes.
//!
//! Without the feature `mpi` this crate is empty and has no dependencies; with it, it needs an MPI library
//! and libclang.
#![cfg_attr(feature = "mpi", doc = include_str!("engine.md"))]

#[cfg(feature = "mpi")]
mod comm;
#[cfg(feature = "mpi")]
mod exchange;
#[cfg(feature = "mpi")]
mod groups;
#[cfg(feature = "mpi")]
mod guard;
#[cfg(feature = "mpi")]
mod last_words;
#[cfg(feature = "mpi")]
mod raw;
#[cfg(feature = "mpi")]
mod watchdog;

#[cfg(feature = "mpi")]
pub use comm::{Comm, Pending};
