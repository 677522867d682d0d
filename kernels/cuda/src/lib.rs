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
//! A [`Job`] describes one launch, or one part of it; many jobs of copies go in one launch, a [`Batch`]. The
//! sources in `cu/` compile with NVRTC for a device and with a C++ compiler for a CPU, where the tests
//! compare them with `reshard_kernels::reference` under a sanitizer.
//!
//! ```
//! use reshard_cuda::{Alignment, copies};
//! use reshard_kernels::LoopNest;
//! use reshard_layout::Mode;
//! let nest = LoopNest::new(0, 0, [Mode::new(1 << 20, (1, 1))]);
//! let launches = copies(&nest, 2, Alignment::FULL)?;
//! assert_eq!(launches[0].kernel.name(), "rows_16");
//! assert_eq!(launches[0].blocks, 512);
//! # Ok::<(), reshard_cuda::Error>(())
//! ```

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
pub mod simulate;
mod source;

pub use batch::Batch;
pub use command::Command;
#[cfg(feature = "cuda")]
pub use compile::{Arch, Binary, compile};
#[cfg(feature = "cuda")]
pub use device::{Device, DeviceBatch, DeviceCombine, DeviceCopy, DeviceMemory, Prepared};
#[cfg(feature = "cuda")]
pub use device_draw::DeviceDraw;
pub use draws::{DrawKernel, draws};
pub use error::Error;
#[cfg(feature = "cuda")]
pub use graph::Graph;
pub use job::{Job, JobLoop, MAX_LOOPS, THREADS};
#[cfg(feature = "cuda")]
pub use library::Library;
pub use reshard_kernels::ErrorKind;
pub use select::{Alignment, CopyKernel, ElementKernel, ElementOp, Launch, Launches, copies, elementwise};
pub use source::{Program, exported};
