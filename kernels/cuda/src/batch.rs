//! Many copies in one launch.
//!
//! ```text
//! jobs                          0        1        2
//! first blocks                  0        b0       b0 + b1     a block belongs to the last job at or below it
//! input of the kernel           job 0, job 1, job 2, first 0, first 1, first 2
//! ```

use crate::Error;
use crate::job::Job;
use crate::select::{CopyKernel, Launch};

/// Exclusive upper bound of the blocks of a launch.
const MOST_BLOCKS: u32 = 1 << 31;

/// Copies of one launch, none of which writes an element that another one reads or writes.
///
/// ```
/// use reshard_cuda::{Alignment, Batch, copies};
/// use reshard_kernels::LoopNest;
/// use reshard_layout::Mode;
/// // Two rows of 1 MiB and of 1 KiB: a block takes 16 KiB.
/// let row = |bytes| LoopNest::new(0, 0, [Mode::new(bytes, (1, 1))]);
/// let launches = [copies(&row(1 << 20), 1, Alignment::FULL)?, copies(&row(1 << 10), 1, Alignment::FULL)?];
/// let batch = Batch::new(launches.into_iter().flatten())?;
/// assert_eq!((batch.jobs()[1].first_block, batch.blocks()), (64, 65));
/// # Ok::<(), reshard_cuda::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    jobs: Vec<Job>,
    blocks: u32,
}

impl Batch {
    /// Creates a batch of the copies of these launches.
    ///
    /// Errors: [`Error::TooManyBlocks`].
    pub fn new(launches: impl IntoIterator<Item = Launch<CopyKernel>>) -> Result<Batch, Error> {
        let mut batch = Batch::default();
        for launch in launches {
            let blocks = launch.kernel.blocks(launch.job.count, true);
            if !batch.append(&Batch { jobs: vec![launch.job], blocks }) {
                return Err(Error::TooManyBlocks { jobs: batch.jobs.len() });
            }
        }
        Ok(batch)
    }

    /// Adds the copies of another batch after these; returns `false` if they do not fit in one launch.
    ///
    /// In that case nothing is added.
    pub fn append(&mut self, other: &Batch) -> bool {
        let Some(sum) = self.blocks.checked_add(other.blocks).filter(|&sum| sum < MOST_BLOCKS) else {
            return false;
        };
        let behind = |job: &Job| {
            let mut job = *job;
            job.first_block += self.blocks;
            job
        };
        self.jobs.extend(other.jobs.iter().map(behind));
        self.blocks = sum;
        true
    }

    /// Returns the jobs, each with its first block.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Returns the blocks of all jobs.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the kernel's input: the jobs, followed by the first blocks of all.
    pub fn image(&self) -> Vec<u64> {
        let mut image: Vec<u64> = bytemuck::cast_slice(&self.jobs).to_vec();
        image.extend(self.jobs.chunks(2).map(|two| {
            let first = |job: &Job| u64::from(job.first_block);
            // Two numbers of 32 bits, in the order of a GPU's bytes.
            first(&two[0]) | two.get(1).map_or(0, first) << 32
        }));
        image
    }
}
