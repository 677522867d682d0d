//! The one-device engine: the ranks are threads, their shards lie on one CUDA device, and each exchange is one or two
//! launches per rank.
//!
//! # Data flow
//!
//! ```text
//! Exchange, addresses of all sources and of the target --lower--> [Command] --prepare--> launches, kept for the next run
//! ```
//!
//! It moves at the speed of the device's memory, and so shows what a plan costs where no link is in the way; and it runs
//! the whole engine contract on a machine with a single device. [`Simulated`] stands in for a device where there is none:
//! it carries out the same launches by their definition, so that everything but the kernels themselves is tested without.
//! With the feature `cuda`, `Cuda` is a real one.

mod backend;
mod comm;
#[cfg(feature = "cuda")]
mod cuda;
mod fused;
mod lower;
mod simulated;
mod world;

pub use backend::Backend;
pub use comm::{DeviceBuffer, DeviceComm, Pending};
#[cfg(feature = "cuda")]
pub use cuda::{Captured, Cuda};
pub use fused::Fused;
pub use simulated::{Allocation, Simulated};
pub use world::DeviceWorld;

/// What only the other crates of this project need; it may change with any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::lower::{Landing, constants, copies, engine, fills, in_bytes, landed};
}
