//! The kernels of [`reshard_kernels`] on CUDA devices: copy between two layouts, combine one into another,
//! and draw random elements.
//!
//! # Data flow
//!
//! ```text
//! LoopNest --copies, elementwise-->  Launch { kernel, job, blocks }   pure: tested without a device
//!                                     |  Program::source              CUDA C++, one file for device and CPU
//!                                     v
//! feature `cuda`:   source --NVRTC--> cubin, cached --driver--> module --launch--> target
//! ```
//!
//! A `Job` describes one launch, or one part of it; many jobs of copies go in one launch, a `Batch`. The
//! sources in `cu/` compile with NVRTC for a device and with a C++ compiler for a CPU, where the tests
//! compare them with `reshard_kernels::reference` under a sanitizer.
//!
//! The engines `reshard-device` and `reshard-nccl` use this crate; their users need its [`Error`] and, with the feature
//! `cuda`, its `Device`. Everything else is not documented, and may change with any version.

mod batch;
mod command;
#[cfg(feature = "cuda")]
mod compile;
#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "cuda")]
mod device_draw;
mod draws;
mod error;
#[cfg(feature = "cuda")]
mod graph;
mod job;
#[cfg(feature = "cuda")]
mod library;
mod select;
#[doc(hidden)]
pub mod simulate;
mod source;

#[cfg(feature = "cuda")]
pub use device::Device;
pub use error::Error;

#[doc(hidden)]
pub use batch::Batch;
#[doc(hidden)]
pub use command::Command;
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use compile::{Arch, Binary, compile};
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use device::{DeviceBatch, DeviceCombine, DeviceCopy, DeviceMemory, Prepared};
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use device_draw::DeviceDraw;
#[doc(hidden)]
pub use draws::{DrawKernel, draws};
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use graph::Graph;
#[doc(hidden)]
pub use job::{Job, JobLoop, MAX_LOOPS, THREADS};
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use library::Library;
pub use reshard_kernels::ErrorKind;
#[doc(hidden)]
pub use select::{Alignment, CopyKernel, ElementKernel, ElementOp, Launch, Launches, copies, elementwise};
#[doc(hidden)]
pub use source::{Program, exported};
