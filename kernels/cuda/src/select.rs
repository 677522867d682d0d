//! Which kernel carries out a loop nest, and with what numbers: pure, and the same with and without a device.
//!
//! # From a nest to a launch
//!
//! ```text
//! Nest --reduce, in bytes-->  loops (extent, source stride, target stride), slowest first, and a run:
//!                             the bytes that are contiguous on both sides
//!      --width-->             the widest unit of 1, 2, 4, 8 or 16 bytes that divides the run, every other stride, both
//!                             offsets and both buffers' alignment
//!      --kernel-->            rows        units at the digits of their index, the target's order fastest
//!                             transpose   if the run is one unit, and the source is contiguous along one loop and the
//!                                         target along another, both of at least `LEAST` units
//!                             runs        if units are of 1 or 2 bytes and runs of `LONG` bytes or more: words of 16 bytes of
//!                                         the target, whatever its address, and what is left at both ends of a run
//!      --words-->             of a transpose: several units together, where extents and strides are multiples of them
//! ```
//!
//! Indices are 32 bits in a kernel; more than `MOST` units, or more loops than a job holds, become several launches.

use reshard_kernels::{CombineOp, Copy, DType, Loop, Nest};
use smallvec::SmallVec;

use crate::Error;
use crate::job::{Job, JobLoop, MAX_LOOPS, THREADS};

/// A transpose along fewer units than this is done as rows: most of a tile would be empty.
const LEAST: usize = 8;

/// Runs of so many bytes that are not at multiples of 4 move in words of 16 bytes; of shorter ones too little is whole words.
const LONG: usize = 64;

/// Bytes of a word of a run.
const WORD: usize = 16;

/// The most units, or tiles, of one launch.
const MOST: usize = 1 << 30;

/// How far the addresses of both buffers are known to be aligned, in bytes: powers of two, of which 16 is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Of the source.
    pub source: usize,
    /// Of the target.
    pub target: usize,
}

impl Alignment {
    /// Both buffers start at multiples of 16 bytes, as every allocation does.
    pub const FULL: Alignment = Alignment { source: 16, target: 16 };

    /// What two addresses have.
    pub fn of(source: u64, target: u64) -> Alignment {
        let of = |address: u64| 1usize << address.trailing_zeros().min(4);
        Alignment { source: of(source), target: of(target) }
    }
}

/// A kernel that copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CopyKernel {
    /// Units of so many bytes, one by one.
    Rows {
        /// 1, 2, 4, 8 or 16.
        width: usize,
    },
    /// Tiles through shared memory.
    Transpose {
        /// Bytes of a unit.
        width: usize,
        /// Units that move together.
        words: usize,
    },
    /// Runs of bytes at any address, in words of 16 bytes of the target.
    Runs,
}

impl CopyKernel {
    /// All of them, in the order of their numbers in `cu/copy.cu`.
    pub const ALL: [CopyKernel; 15] = [
        CopyKernel::Rows { width: 1 },
        CopyKernel::Rows { width: 2 },
        CopyKernel::Rows { width: 4 },
        CopyKernel::Rows { width: 8 },
        CopyKernel::Rows { width: 16 },
        CopyKernel::Transpose { width: 1, words: 1 },
        CopyKernel::Transpose { width: 2, words: 1 },
        CopyKernel::Transpose { width: 4, words: 1 },
        CopyKernel::Transpose { width: 8, words: 1 },
        CopyKernel::Transpose { width: 16, words: 1 },
        CopyKernel::Transpose { width: 1, words: 4 },
        CopyKernel::Transpose { width: 2, words: 4 },
        CopyKernel::Transpose { width: 4, words: 4 },
        CopyKernel::Transpose { width: 8, words: 2 },
        CopyKernel::Runs,
    ];

    /// The number in a batch.
    pub fn number(self) -> u32 {
        CopyKernel::ALL.iter().position(|k| *k == self).map_or(u32::MAX, |i| i as u32)
    }

    /// The name without the prefix `reshard_`: `rows_16`, `transpose_4x4`.
    pub fn name(self) -> String {
        match self {
            CopyKernel::Rows { width } => format!("rows_{width}"),
            CopyKernel::Transpose { width, words: 1 } => format!("transpose_{width}"),
            CopyKernel::Transpose { width, words } => format!("transpose_{width}x{words}"),
            CopyKernel::Runs => "runs".to_owned(),
        }
    }

    /// The bytes of every access to device memory; of runs, of every store of a whole word.
    pub fn access_bytes(self) -> usize {
        match self {
            CopyKernel::Rows { width } => width,
            CopyKernel::Transpose { width, words } => width * words,
            CopyKernel::Runs => WORD,
        }
    }

    /// Units along a side of a tile.
    fn side(self) -> usize {
        match self {
            CopyKernel::Rows { .. } | CopyKernel::Runs => 1,
            CopyKernel::Transpose { width: 16, .. } => 16,
            CopyKernel::Transpose { width, words } if words > 1 && width * words > 4 => 16 * words,
            CopyKernel::Transpose { words, .. } => 32 * words,
        }
    }

    /// Units or tiles that a block takes.
    fn per_block(self) -> usize {
        match self {
            CopyKernel::Rows { width } => THREADS as usize * if width < 8 { 8 } else { 4 },
            CopyKernel::Transpose { .. } => 1,
            CopyKernel::Runs => THREADS as usize * 2,
        }
    }
}

/// One launch: a kernel, its job, and the number of blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<K> {
    /// The kernel.
    pub kernel: K,
    /// What it is given.
    pub job: Job,
    /// The size of the grid.
    pub blocks: u32,
}

/// A few launches, mostly one.
pub type Launches<K> = SmallVec<[Launch<K>; 1]>;

/// The launches that copy along a nest of elements of so many bytes.
///
/// Requires buffers that hold what the nest touches. Errors: those of [`reshard_kernels::Copy::new`], and
/// [`Error::Alignment`] never.
///
/// ```
/// use reshard_cuda::{Alignment, CopyKernel, copies};
/// use reshard_kernels::{Loop, Nest};
/// // A transpose of 64 x 96 floats.
/// let nest = Nest::new(0, 0, [Loop::new(96, 1, 64), Loop::new(64, 96, 1)]);
/// let launches = copies(&nest, 4, Alignment::FULL)?;
/// assert_eq!((launches[0].kernel.name().as_str(), launches[0].blocks), ("transpose_4x4", 2));
/// // Rows of 96 floats.
/// let nest = Nest::new(0, 0, [Loop::new(64, 128, 96), Loop::new(96, 1, 1)]);
/// assert_eq!(copies(&nest, 4, Alignment::FULL)?[0].kernel, CopyKernel::Rows { width: 16 });
/// # Ok::<(), reshard_cuda::Error>(())
/// ```
pub fn copies(nest: &Nest, item_bytes: usize, alignment: Alignment) -> Result<Launches<CopyKernel>, Error> {
    let mut launches = Launches::new();
    for part in Part::all(nest, item_bytes, 1, alignment)? {
        part.copy(&mut launches);
    }
    Ok(launches)
}

/// An elementwise kernel of one dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElementKernel {
    /// What it does.
    pub op: ElementOp,
    /// The dtype, which has arithmetic.
    pub dtype: DType,
    /// Bytes of a unit, one or several elements.
    pub width: usize,
}

/// What an elementwise kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementOp {
    /// `target = target op source`.
    Combine(CombineOp),
    /// `target = (term_0 op term_1 op ..) / divisor`, of terms that lie alike in the source.
    Reduce(CombineOp),
    /// `target = target / divisor`.
    Divide,
}

impl ElementKernel {
    /// The name without the prefix `reshard_`: `sum_16`, `divide_2`; one per dtype.
    pub fn name(self) -> String {
        match self.op {
            ElementOp::Combine(op) => format!("{}_{}", op.name(), self.width),
            ElementOp::Reduce(op) => format!("{}_terms_{}", op.name(), self.width),
            ElementOp::Divide => format!("divide_{}", self.width),
        }
    }

    fn per_block(self) -> usize {
        let unroll = match self.width {
            1 | 2 => 8,
            4 | 8 => 4,
            _ => 2,
        };
        THREADS as usize * unroll
    }
}

/// The launches of an elementwise kernel along a nest of elements.
///
/// Requires buffers that hold what the nest touches; for [`ElementOp::Divide`] only the target counts.
///
/// Errors: those of [`reshard_kernels::Combine::new`] and [`Divide::new`](reshard_kernels::Divide::new), and
/// [`Error::Alignment`] for a buffer that does not start at a multiple of the element's size.
pub fn elementwise(
    nest: &Nest,
    dtype: DType,
    op: ElementOp,
    alignment: Alignment,
) -> Result<Launches<ElementKernel>, Error> {
    match op {
        ElementOp::Combine(op) | ElementOp::Reduce(op) => dtype.check_combine(op)?,
        ElementOp::Divide => dtype.check_average()?,
    }
    let item = dtype.item_bytes()?;
    let mut launches = Launches::new();
    for part in Part::all(nest, item, item, alignment)? {
        let kernel = ElementKernel { op, dtype, width: part.width };
        let job = part.job(0);
        let blocks = (job.count as usize).div_ceil(kernel.per_block()) as u32;
        launches.push(Launch { kernel, job, blocks });
    }
    Ok(launches)
}

/// A nest in bytes whose loops fit a job.
#[derive(Clone, Debug)]
struct Part {
    source: i64,
    target: i64,
    width: usize,
    /// Slowest first; the last one is a run of units, if there is one.
    loops: SmallVec<[Loop; 8]>,
    alignment: Alignment,
}

impl Part {
    fn all(nest: &Nest, item_bytes: usize, least: usize, alignment: Alignment) -> Result<Vec<Part>, Error> {
        // What the host refuses is refused here.
        Copy::new(nest, item_bytes)?;
        let reduced = nest.reduce()?;
        if reduced.is_empty() {
            return Ok(Vec::new());
        }
        let Nest { source_offset: source, target_offset: target, mut loops } = reduced.scale(item_bytes)?;
        let item = item_bytes as i64;
        let run = match loops.last() {
            Some(l) if (l.source_stride, l.target_stride) == (item, item) => {
                let run = l.extent * item_bytes;
                loops.pop();
                run
            }
            _ => item_bytes,
        };
        let strides = loops.iter().map(|l| l.source_stride | l.target_stride);
        let all = strides.fold(source | target | run as i64 | 16, |all, s| all | s);
        let width = (1usize << all.trailing_zeros()).min(alignment.source).min(alignment.target);
        if width < least {
            return Err(Error::Alignment { bytes: width, item: least });
        }
        let mut loops: SmallVec<[Loop; 8]> = loops.into_iter().collect();
        if run > width {
            loops.push(Loop::new(run / width, width as i64, width as i64));
        }
        let mut parts = Vec::new();
        Part { source, target, width, loops, alignment }.cut(&mut parts);
        Ok(parts)
    }

    /// The part, or several that fit.
    fn cut(mut self, parts: &mut Vec<Part>) {
        let count = self.loops.iter().fold(1usize, |n, l| n.saturating_mul(l.extent));
        if self.loops.len() <= MAX_LOOPS && count <= MOST {
            parts.push(self);
            return;
        }
        let slowest = self.loops.remove(0);
        let rest = count / slowest.extent;
        // As many iterations of the slowest loop at once as fit.
        let at_once = if self.loops.len() < MAX_LOOPS { (MOST / rest).max(1) } else { 1 };
        let mut first = 0;
        while first < slowest.extent {
            let extent = at_once.min(slowest.extent - first);
            let mut part = self.clone();
            part.source += first as i64 * slowest.source_stride;
            part.target += first as i64 * slowest.target_stride;
            if extent > 1 {
                part.loops.insert(0, Loop::new(extent, slowest.source_stride, slowest.target_stride));
            }
            part.cut(parts);
            first += extent;
        }
    }

    /// The job of rows.
    fn job(&self, kind: u32) -> Job {
        let mut job = Job::at(self.source, self.target, kind);
        for l in self.loops.iter().rev() {
            job.push(JobLoop::new(l.extent as u32, l.source_stride, l.target_stride));
        }
        job
    }

    fn copy(self, launches: &mut Launches<CopyKernel>) {
        let width = self.width as i64;
        let along = |stride: fn(&Loop) -> i64| self.loops.iter().position(|l| stride(l) == width);
        let (by_source, by_target) = (along(|l| l.source_stride), along(|l| l.target_stride));
        match (by_source, by_target) {
            _ if self.width <= 2 && self.run().is_some_and(|run| run >= LONG) => launches.push(self.runs()),
            (Some(s), Some(t)) if s != t && self.loops[s].extent.min(self.loops[t].extent) >= LEAST => {
                launches.push(self.transposed(s, t));
            }
            (s, t) => {
                let mut part = self;
                // Where the target has no contiguous loop, the source's goes fastest.
                if let (Some(s), None) = (s, t) {
                    let l = part.loops.remove(s);
                    part.loops.push(l);
                }
                let kernel = CopyKernel::Rows { width: part.width };
                let job = part.job(kernel.number());
                let blocks = (job.count as usize).div_ceil(kernel.per_block()) as u32;
                launches.push(Launch { kernel, job, blocks });
            }
        }
    }

    /// The bytes of a run, if the fastest loop is one.
    fn run(&self) -> Option<usize> {
        let width = self.width as i64;
        let last = self.loops.last().filter(|l| (l.source_stride, l.target_stride) == (width, width));
        last.map(|l| l.extent * self.width)
    }

    /// The launch of runs.
    fn runs(mut self) -> Launch<CopyKernel> {
        let kernel = CopyKernel::Runs;
        let run = self.loops.pop().map_or(0, |l| l.extent * self.width);
        let mut job = Job::at(self.source, self.target, kernel.number());
        job.columns = run as u32;
        // One that begins with the last byte of a word touches as many as any.
        job.push(JobLoop::new(((run + WORD - 2) / WORD + 1) as u32, 0, 0));
        for l in self.loops.iter().rev() {
            job.push(JobLoop::new(l.extent as u32, l.source_stride, l.target_stride));
        }
        let blocks = (job.count as usize).div_ceil(kernel.per_block()) as u32;
        Launch { kernel, job, blocks }
    }

    /// The launch of a transpose whose source is contiguous along loop `s` and target along loop `t`.
    fn transposed(&self, s: usize, t: usize) -> Launch<CopyKernel> {
        let (across, down) = (self.loops[s], self.loops[t]);
        let batch = || self.loops.iter().enumerate().filter(|(i, _)| *i != s && *i != t).map(|(_, l)| l);
        let words = match self.width {
            1..=4 => 4,
            8 => 2,
            _ => 1,
        };
        let word = words * self.width;
        let strides = batch().fold(down.source_stride | across.target_stride, |all, l| {
            all | l.source_stride | l.target_stride
        });
        let together = (strides | self.source | self.target).trailing_zeros() >= word.trailing_zeros()
            && across.extent.is_multiple_of(words)
            && down.extent.is_multiple_of(words)
            && self.alignment.source.min(self.alignment.target) >= word;
        let kernel = CopyKernel::Transpose { width: self.width, words: if together { words } else { 1 } };
        let side = kernel.side();
        let mut job = Job::at(self.source, self.target, kernel.number());
        job.row_source = down.source_stride;
        job.column_target = across.target_stride;
        (job.columns, job.rows) = (across.extent as u32, down.extent as u32);
        job.push(JobLoop::new(across.extent.div_ceil(side) as u32, 0, 0));
        job.push(JobLoop::new(down.extent.div_ceil(side) as u32, 0, 0));
        for l in batch().collect::<SmallVec<[&Loop; 8]>>().into_iter().rev() {
            job.push(JobLoop::new(l.extent as u32, l.source_stride, l.target_stride));
        }
        let blocks = job.count;
        Launch { kernel, job, blocks }
    }
}

/// Many copies as one launch: the jobs in order, each with its first block, and the number of blocks of all.
///
/// Errors: [`Error::TooManyBlocks`].
pub fn batch(launches: impl IntoIterator<Item = Launch<CopyKernel>>) -> Result<(Vec<Job>, u32), Error> {
    let mut blocks = 0u32;
    let mut jobs = Vec::new();
    for launch in launches {
        let mut job = launch.job;
        job.first_block = blocks;
        jobs.push(job);
        blocks = blocks
            .checked_add(launch.blocks)
            .filter(|&b| b < 1 << 31)
            .ok_or(Error::TooManyBlocks { jobs: jobs.len() })?;
    }
    Ok((jobs, blocks))
}
