//! Kernels on bytes in host memory: [`copy`] between two layouts, [`combine`] of one into another, and
//! [`random::fill`], which writes random numbers that do not depend on the sharding of a tensor.
//!
//! A redistribution consists of the first two between the buffers of two ranks. Both take any pair of layouts
//! of equal size, and both are defined by five lines of `reference`:
//!
//! ```text
//! copy:     for i in 0..size { dst[dst_layout(i)] = src[src_layout(i)] }
//! combine:  for i in 0..size { dst[dst_layout(i)] = dst[dst_layout(i)] op src[src_layout(i)] }
//! ```
//!
//! # Data flow
//!
//! ```text
//! (dst layout, src layout)  or  a plan's blocks
//!        |  LoopNest::between, ::new         a layout of pairs, extent:(source, target), counted in elements
//!        v
//!     LoopNest --reduce--> LoopNest          extent 1 dropped, sorted, coalesced on both sides
//!        |  PreparedCopy::new, ..            bounds and overlaps checked once, byte offsets fixed
//!        v
//! PreparedCopy, .. --run(dst, src)-->        one bounds check, then runs, rows or cache-sized transposes
//! ```
//!
//! Prepared kernels can run many times: `run` neither plans nor allocates.
//!
//! ```
//! use reshard_kernels::{PreparedCopy, LoopNest};
//! use reshard_layout::Mode;
//!
//! // The transpose of a 2 x 3 matrix of f32: target (j, i) is source (i, j).
//! let nest = LoopNest::new(0, 0, [Mode::new(2, (3, 1)), Mode::new(3, (1, 2))]);
//! let copy = PreparedCopy::new(&nest, 4)?;
//! let source: Vec<u8> = [1f32, 2., 3., 4., 5., 6.].iter().flat_map(|x| x.to_ne_bytes()).collect();
//! let mut target = vec![0; 24];
//! assert_eq!(copy.run(&mut target, &source)?, 24);
//! let floats: Vec<f32> = target.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect();
//! assert_eq!(floats, [1., 4., 2., 5., 3., 6.]);
//! # Ok::<(), reshard_kernels::Error>(())
//! ```

mod cast;
mod combine;
mod copy;
mod dtype;
#[allow(clippy::inline_always, reason = "the bodies of loops that are to be vectorised")]
mod element;
mod error;
mod host;
mod lanes;
mod nest;
#[allow(clippy::inline_always, reason = "the body of a loop that is to be vectorised")]
mod norm;
mod op;
mod prepared;
#[allow(
    clippy::inline_always,
    clippy::float_cmp,
    reason = "bodies of loops that are to be vectorised; floats that are equal in every bit"
)]
pub mod random;
#[doc(hidden)]
pub mod reference;

pub use cast::Cast;
pub use combine::{PreparedCombine, PreparedDivide, combine};
pub use copy::{copy, copy_at};
pub use dtype::DType;
pub use error::{CopySide, Error};
pub use nest::LoopNest;
pub use op::CombineOp;
pub use prepared::PreparedCopy;
pub use reshard_layout::{ErrorKind, Exponent};
