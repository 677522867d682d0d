//! Launches of draws: the elements of a tensor, their target offsets, and the kernel.
//!
//! ```text
//! LoopNest of (index in the global tensor, target offset)  --draws-->  Launch { draw of dtype, job, blocks }
//! (key, draw, dtype)                                 --Recipe::new-->  the constants of all its elements
//! ```
//!
//! So a shard is drawn directly from the layout of its elements, without a list of indices.

use reshard_kernels::{DType, LoopNest, PreparedCopy};

use crate::Error;
use crate::job::THREADS;
use crate::select::{Launch, Launches, Part};

/// Elements that a thread draws, as `DRAWS_PER_THREAD` of `cu/random.cu`.
const PER_THREAD: usize = 4;

/// The kernel that draws elements of one dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DrawKernel {
    /// The dtype, which has arithmetic.
    pub dtype: DType,
}

impl DrawKernel {
    /// Returns the kernel of a dtype; bools are bytes.
    pub fn new(dtype: DType) -> DrawKernel {
        DrawKernel { dtype: if dtype == DType::Bool { DType::U8 } else { dtype } }
    }

    /// Returns the name without the prefix `reshard_`, one per dtype.
    pub fn name(self) -> &'static str {
        "draw"
    }
}

/// Returns the launches that draw the elements of a nest.
///
/// The nest's source counts indices of the global tensor, its target elements. Requires a target that begins
/// at a multiple of the element's bytes and contains all writes of the nest. Errors: those of
/// [`reshard_kernels::PreparedCopy::new`], which rejects indices below 0.
///
/// ```
/// use reshard_cuda::draws;
/// use reshard_kernels::{DType, LoopNest};
/// use reshard_layout::Mode;
/// // The second of four columns of f32[1000,4], into a contiguous target.
/// let column = LoopNest::new(1, 0, [Mode::new(1000, (4, 1))]);
/// let launches = draws(&column, DType::F32)?;
/// assert_eq!((launches[0].job.count, launches[0].blocks), (1000, 1));
/// # Ok::<(), reshard_cuda::Error>(())
/// ```
pub fn draws(nest: &LoopNest, dtype: DType) -> Result<Launches<DrawKernel>, Error> {
    let item = dtype.element_bytes()?;
    // Every nest that the host rejects is rejected here.
    PreparedCopy::new(nest, item)?;
    let mut launches = Launches::new();
    for part in Part::of_indices(nest, item)? {
        let job = part.job(0);
        let blocks = (job.count as usize).div_ceil(THREADS as usize * PER_THREAD) as u32;
        launches.push(Launch { kernel: DrawKernel::new(dtype), job, blocks });
    }
    Ok(launches)
}
