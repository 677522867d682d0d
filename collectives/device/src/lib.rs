//! The one-device engine: ranks are threads, shards are on one CUDA device, and an exchange is one or two
//! launches.
//!
//! # Data flow
//!
//! ```text
//! Exchange, addresses of all sources and of the target --lower--> [Command] --prepare--> launches, cached
//! ```
//!
//! It runs at the speed of the device's memory, and so shows the cost of a plan without any links. It also
//! runs the whole engine contract on a machine with a single device. [`Simulated`] is a stand-in for a
//! missing device: it runs the same launches by their definition, so that everything except the kernels is
//! tested without a GPU. With the feature `cuda`, `Cuda` is a real device.

mod backend;
mod comm;
#[cfg(feature = "cuda")]
mod cuda;
mod fused;
mod lower;
mod simulated;
mod world;

pub use comm::{DeviceBuffer, DeviceComm};
#[cfg(feature = "cuda")]
pub use cuda::Cuda;
pub use simulated::Simulated;
pub use world::DeviceWorld;

#[doc(hidden)]
pub use backend::Backend;
#[doc(hidden)]
pub use comm::Pending;
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use cuda::Captured;
#[doc(hidden)]
pub use fused::Fused;
#[doc(hidden)]
pub use simulated::Allocation;

/// Functions for the other crates of this project only; they may change with any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::lower::{Landing, constants, copies, engine, fills, in_bytes, landed};
}
