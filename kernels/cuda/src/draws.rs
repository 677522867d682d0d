//! Launches that draw: which elements of a tensor go where, and by which kernel.
//!
//! ```text
//! Nest of (index in the whole tensor, place in the target)  --draws-->  Launch { draw of dtype, job, blocks }
//! (key, draw, dtype)                                          --Recipe::new-->  what all its elements have in common
//! ```
//!
//! So a shard is drawn from the layout that says what it holds, and nobody lists indices.

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
    /// The kernel of a dtype; bools are bytes.
    pub fn new(dtype: DType) -> DrawKernel {
        DrawKernel { dtype: if dtype == DType::Bool { DType::U8 } else { dtype } }
    }

    /// The name without the prefix `reshard_`, one per dtype.
    pub fn name(self) -> &'static str {
        "draw"
    }
}

/// The launches that draw the elements of a nest: its source counts indices of the whole tensor, its target elements.
///
/// Requires a target that begins at a multiple of the element's bytes and holds what the nest touches. Errors: those of
/// [`reshard_kernels::Copy::new`], which refuses indices below 0.
///
/// ```
/// use reshard_cuda::draws;
/// use reshard_kernels::{DType, Nest};
/// use reshard_layout::Mode;
/// // The second of four columns of f32[1000,4], one element after the other.
/// let column = Nest::new(1, 0, [Mode::new(1000, (4, 1))]);
/// let launches = draws(&column, DType::F32)?;
/// assert_eq!((launches[0].job.count, launches[0].blocks), (1000, 1));
/// # Ok::<(), reshard_cuda::Error>(())
/// ```
pub fn draws(nest: &LoopNest, dtype: DType) -> Result<Launches<DrawKernel>, Error> {
    let item = dtype.element_bytes()?;
    // What the host refuses is refused here.
    PreparedCopy::new(nest, item)?;
    let mut launches = Launches::new();
    for part in Part::of_indices(nest, item)? {
        let job = part.job(0);
        let blocks = (job.count as usize).div_ceil(THREADS as usize * PER_THREAD) as u32;
        launches.push(Launch { kernel: DrawKernel::new(dtype), job, blocks });
    }
    Ok(launches)
}
