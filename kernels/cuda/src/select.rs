//! Selection of the kernels and jobs for a loop nest: pure, and the same with and without a device.
//!
//! # From a nest to a launch
//!
//! ```text
//! LoopNest --reduce, in bytes-->  modes extent:(source, target), fastest first, and a run: the bytes that
//!                     are contiguous on both sides
//!      --width-->     the widest unit of 1, 2, 4, 8 or 16 bytes that divides the run, every other stride,
//!                     both offsets and both buffers' alignment
//!      --kernel-->    rows        units at the digits of their index, the target's order fastest
//!                     transpose   if the run is one unit, and the source is contiguous along one mode and
//!                                 the target along another, both of at least `LEAST` units
//!                     runs        if units have 1, 2 or 4 bytes and runs are longer than a word: words of 16
//!                                 bytes of the target, at any address, and the rest at both ends of a run
//!      --words-->     for a transpose: several units per access, if they divide extents and strides
//! ```
//!
//! Indices are 32 bits in a kernel; more than `MOST` units, or more modes than a job has loops, become
//! several launches.

use reshard_kernels::{CombineOp, CopySide, DType, LoopNest, PreparedCopy};
use reshard_layout::{InlineVec, Mode, Modes};

use crate::Error;
use crate::job::{Job, JobLoop, MAX_LOOPS, THREADS};

/// Minimum units along each side of a transpose; shorter ones use rows, since most of a tile would be empty.
const LEAST: i64 = 8;

/// Word size of runs, in bytes.
const WORD: usize = 16;

/// Maximum number of units, or tiles, of one launch.
const MOST: i64 = 1 << 30;

/// The known alignment of the addresses of both buffers, in bytes: powers of two up to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Alignment of the source.
    pub source: usize,
    /// Alignment of the target.
    pub target: usize,
}

impl Alignment {
    /// Both buffers start at multiples of 16 bytes, as every allocation does.
    pub const FULL: Alignment = Alignment { source: 16, target: 16 };

    /// Returns the alignment of two addresses.
    pub fn of(source: u64, target: u64) -> Alignment {
        let of = |address: u64| 1usize << address.trailing_zeros().min(4);
        Alignment { source: of(source), target: of(target) }
    }
}

/// A copy kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CopyKernel {
    /// Single units of `width` bytes.
    Rows {
        /// 1, 2, 4, 8 or 16.
        width: usize,
    },
    /// Tiles through shared memory.
    Transpose {
        /// Bytes of a unit.
        width: usize,
        /// Units that are copied in one access.
        words: usize,
    },
    /// Runs of units at any address, in words of 16 bytes of the target.
    Runs {
        /// Bytes of a unit: 1, 2 or 4. With units of 8, rows are as fast.
        width: usize,
    },
}

impl CopyKernel {
    /// All kernels, in the order of their numbers in `cu/copy.cu`.
    pub const ALL: [CopyKernel; 17] = [
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
        CopyKernel::Runs { width: 1 },
        CopyKernel::Runs { width: 2 },
        CopyKernel::Runs { width: 4 },
    ];

    /// Returns the number in a batch.
    pub fn number(self) -> u32 {
        CopyKernel::ALL.iter().position(|k| *k == self).map_or(u32::MAX, |i| i as u32)
    }

    /// Returns the name without the prefix `reshard_`: `rows_16`, `transpose_4x4`.
    pub fn name(self) -> String {
        match self {
            CopyKernel::Rows { width } => format!("rows_{width}"),
            CopyKernel::Transpose { width, words: 1 } => format!("transpose_{width}"),
            CopyKernel::Transpose { width, words } => format!("transpose_{width}x{words}"),
            CopyKernel::Runs { width } => format!("runs_{width}"),
        }
    }

    /// Returns the bytes of every access to device memory; for runs, of every store of a whole word.
    pub fn access_bytes(self) -> usize {
        match self {
            CopyKernel::Rows { width } => width,
            CopyKernel::Transpose { width, words } => width * words,
            CopyKernel::Runs { .. } => WORD,
        }
    }

    /// Returns the units along a side of a tile.
    fn side(self) -> usize {
        match self {
            CopyKernel::Rows { .. } | CopyKernel::Runs { .. } => 1,
            CopyKernel::Transpose { width: 16, .. } => 16,
            CopyKernel::Transpose { width, words } if words > 1 && width * words > 4 => 16 * words,
            CopyKernel::Transpose { words, .. } => 32 * words,
        }
    }

    /// Returns the words along a side of a tile.
    pub(crate) fn words_along_a_side(self) -> usize {
        match self {
            CopyKernel::Rows { .. } | CopyKernel::Runs { .. } => 1,
            CopyKernel::Transpose { words, .. } => self.side() / words,
        }
    }

    /// Returns the blocks of a job of `count` units or tiles, alone or in a batch.
    ///
    /// `cu/copy.cu` defines the units per thread.
    pub(crate) fn blocks(self, count: u32, together: bool) -> u32 {
        let of_a_thread = match self {
            CopyKernel::Transpose { .. } => return count,
            CopyKernel::Runs { .. } => 2,
            CopyKernel::Rows { width: 1 | 2 | 16 } if !together => 1,
            CopyKernel::Rows { .. } => 4,
        };
        count.div_ceil(THREADS * of_a_thread)
    }
}

/// One launch: a kernel, its job, and the number of blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<K> {
    /// The kernel.
    pub kernel: K,
    /// The argument of the kernel.
    pub job: Job,
    /// The size of the grid.
    pub blocks: u32,
}

/// A few launches, usually one.
pub type Launches<K> = InlineVec<Launch<K>, 1>;

/// Returns the launches that copy along a nest of elements of `item_bytes` bytes.
///
/// Requires buffers that contain all accesses of the nest. Errors: those of [`reshard_kernels::PreparedCopy::new`],
/// and [`Error::Alignment`] never.
///
/// ```
/// use reshard_cuda::{Alignment, CopyKernel, copies};
/// use reshard_kernels::LoopNest;
/// use reshard_layout::Mode;
/// // A transpose of 64 x 96 floats.
/// let nest = LoopNest::new(0, 0, [Mode::new(64, (96, 1)), Mode::new(96, (1, 64))]);
/// let launches = copies(&nest, 4, Alignment::FULL)?;
/// assert_eq!((launches[0].kernel.name().as_str(), launches[0].blocks), ("transpose_4x4", 2));
/// // Rows of 96 floats.
/// let nest = LoopNest::new(0, 0, [Mode::new(96, (1, 1)), Mode::new(64, (128, 96))]);
/// assert_eq!(copies(&nest, 4, Alignment::FULL)?[0].kernel, CopyKernel::Rows { width: 16 });
/// # Ok::<(), reshard_cuda::Error>(())
/// ```
pub fn copies(
    nest: &LoopNest,
    item_bytes: usize,
    alignment: Alignment,
) -> Result<Launches<CopyKernel>, Error> {
    let mut launches = Launches::new();
    for part in Part::all(nest, item_bytes, 1, alignment)? {
        part.copy(&mut launches);
    }
    Ok(launches)
}

/// An elementwise kernel of one dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElementKernel {
    /// The operation.
    pub op: ElementOp,
    /// The dtype, which has arithmetic.
    pub dtype: DType,
    /// Bytes of a unit, one or several elements.
    pub width: usize,
}

/// The operation of an elementwise kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementOp {
    /// `target = target op source`.
    Combine(CombineOp),
    /// `target = (term_0 op term_1 op ..) / divisor`, of partial values with equal nests in the source.
    Reduce(CombineOp),
    /// `target = target / divisor`.
    Divide,
}

impl ElementKernel {
    /// Returns the name without the prefix `reshard_`: `sum_16`, `divide_2`.
    ///
    /// There is one name per dtype, and one for the norms of all exponents.
    pub fn name(self) -> String {
        let name = |op: CombineOp| match op {
            CombineOp::Norm(_) => "norm".to_owned(),
            CombineOp::Sum | CombineOp::Prod | CombineOp::Min | CombineOp::Max => op.to_string(),
        };
        match self.op {
            ElementOp::Combine(op) => format!("{}_{}", name(op), self.width),
            ElementOp::Reduce(op) => format!("{}_terms_{}", name(op), self.width),
            ElementOp::Divide => format!("divide_{}", self.width),
        }
    }

    /// Returns the exponent of a norm kernel.
    pub fn exponent(self) -> Option<f64> {
        match self.op {
            ElementOp::Combine(CombineOp::Norm(p)) | ElementOp::Reduce(CombineOp::Norm(p)) => Some(p.value()),
            ElementOp::Combine(CombineOp::Sum | CombineOp::Prod | CombineOp::Min | CombineOp::Max)
            | ElementOp::Reduce(CombineOp::Sum | CombineOp::Prod | CombineOp::Min | CombineOp::Max)
            | ElementOp::Divide => None,
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

/// Returns the launches of an elementwise kernel along a nest of elements.
///
/// Requires buffers that contain all accesses of the nest; for [`ElementOp::Divide`] only the target counts.
///
/// Errors: those of [`reshard_kernels::PreparedCombine::new`] and [`PreparedDivide::new`](reshard_kernels::PreparedDivide::new), and
/// [`Error::Alignment`] for a buffer that does not start at a multiple of the element's size.
pub fn elementwise(
    nest: &LoopNest,
    dtype: DType,
    op: ElementOp,
    alignment: Alignment,
) -> Result<Launches<ElementKernel>, Error> {
    match op {
        ElementOp::Combine(op) | ElementOp::Reduce(op) => dtype.check_combine(op)?,
        ElementOp::Divide => dtype.check_average()?,
    }
    let item = dtype.element_bytes()?;
    let mut launches = Launches::new();
    for part in Part::all(nest, item, item, alignment)? {
        let kernel = ElementKernel { op, dtype, width: part.width };
        let job = part.job(0);
        let blocks = (job.count as usize).div_ceil(kernel.per_block()) as u32;
        launches.push(Launch { kernel, job, blocks });
    }
    Ok(launches)
}

/// A nest in bytes whose modes fit a job.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    source: i64,
    target: i64,
    width: usize,
    /// Fastest first; the first one is a run of units, if there is one.
    modes: Modes<(i64, i64)>,
    alignment: Alignment,
}

impl Part {
    fn all(
        nest: &LoopNest,
        item_bytes: usize,
        least: usize,
        alignment: Alignment,
    ) -> Result<Vec<Part>, Error> {
        // Every nest that the host rejects is rejected here.
        PreparedCopy::new(nest, item_bytes)?;
        let reduced = nest.reduce()?;
        if reduced.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = reduced.scale(item_bytes)?;
        let (source, target, item) = (bytes.source_offset, bytes.target_offset, item_bytes as i64);
        let (run, rest) = match bytes.modes.as_slice() {
            [run, rest @ ..] if run.stride == (item, item) => (run.extent * item, rest),
            all => (item, all),
        };
        let strides = rest.iter().map(|mode| mode.stride.0 | mode.stride.1);
        let all = strides.fold(source | target | run | 16, |all, s| all | s);
        let width = (1usize << all.trailing_zeros()).min(alignment.source).min(alignment.target);
        if width < least {
            return Err(Error::Alignment { bytes: width, item: least });
        }
        let mut modes = Modes::new();
        if run > width as i64 {
            modes.push(Mode::new(run / width as i64, (width as i64, width as i64)));
        }
        modes.extend_from_slice(rest);
        let mut parts = Vec::new();
        Part { source, target, width, modes, alignment }.cut(&mut parts);
        Ok(parts)
    }

    /// Returns the parts of units of one element, whose source counts indices and whose target bytes.
    pub(crate) fn of_indices(nest: &LoopNest, item_bytes: usize) -> Result<Vec<Part>, Error> {
        let indices = nest.reduce()?;
        if indices.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = indices.scale(item_bytes)?;
        let both = indices.modes.iter().zip(&bytes.modes);
        let modes =
            both.map(|(index, byte)| Mode::new(index.extent, (index.stride.0, byte.stride.1))).collect();
        let (source, target) = (indices.source_offset, bytes.target_offset);
        let mut parts = Vec::new();
        Part { source, target, width: item_bytes, modes, alignment: Alignment::FULL }.cut(&mut parts);
        Ok(parts)
    }

    /// Adds the part, or several parts that fit a job.
    fn cut(mut self, parts: &mut Vec<Part>) {
        let count = self.modes.iter().fold(1i64, |n, mode| n.saturating_mul(mode.extent));
        if self.modes.len() <= MAX_LOOPS && count <= MOST {
            parts.push(self);
            return;
        }
        let Some(slowest) = self.modes.pop() else { return };
        let rest = count / slowest.extent;
        // As many iterations of the slowest mode at once as fit.
        let at_once = if self.modes.len() < MAX_LOOPS { (MOST / rest).max(1) } else { 1 };
        let mut first = 0;
        while first < slowest.extent {
            let extent = at_once.min(slowest.extent - first);
            let mut part = self.clone();
            part.source += first * slowest.stride.0;
            part.target += first * slowest.stride.1;
            if extent > 1 {
                part.modes.push(Mode { extent, ..slowest });
            }
            part.cut(parts);
            first += extent;
        }
    }

    /// Returns the job of rows.
    pub(crate) fn job(&self, kind: u32) -> Job {
        let mut job = Job::at(self.source, self.target, kind);
        job.extend(&self.modes);
        job
    }

    fn copy(self, launches: &mut Launches<CopyKernel>) {
        let width = self.width as i64;
        let along = |side: CopySide| self.modes.iter().rposition(|mode| side.of(mode.stride) == width);
        match (along(CopySide::Source), along(CopySide::Target)) {
            _ if self.width <= 4 && self.run().is_some_and(|run| run > WORD) => launches.push(self.runs()),
            (Some(s), Some(t)) if s != t && self.modes[s].extent.min(self.modes[t].extent) >= LEAST => {
                launches.push(self.transposed(s, t));
            }
            (s, t) => {
                let mut part = self;
                // If the target has no contiguous mode, that of the source is the fastest.
                if let (Some(s), None) = (s, t) {
                    part.modes[..=s].rotate_right(1);
                }
                let kernel = CopyKernel::Rows { width: part.width };
                let job = part.job(kernel.number());
                launches.push(Launch { kernel, blocks: kernel.blocks(job.count, false), job });
            }
        }
    }

    /// Returns the bytes of a run, if the fastest mode is one.
    fn run(&self) -> Option<usize> {
        let width = self.width as i64;
        let first = self.modes.first().filter(|mode| mode.stride == (width, width));
        first.map(|mode| mode.extent as usize * self.width)
    }

    /// Returns the launch of runs.
    fn runs(&self) -> Launch<CopyKernel> {
        let kernel = CopyKernel::Runs { width: self.width };
        let run = self.run().unwrap_or(0);
        let mut job = Job::at(self.source, self.target, kernel.number());
        job.columns = run as u32;
        // The maximum over all offsets: the run begins with the last unit of its first word.
        job.push(JobLoop::new(((run + WORD - self.width - 1) / WORD + 1) as u32, 0, 0));
        job.extend(&self.modes[1..]);
        Launch { kernel, blocks: kernel.blocks(job.count, false), job }
    }

    /// Returns the launch of a transpose whose source is contiguous along loop `s` and target along loop `t`.
    fn transposed(&self, s: usize, t: usize) -> Launch<CopyKernel> {
        let (across, down) = (self.modes[s], self.modes[t]);
        let batch =
            || self.modes.iter().enumerate().filter(|(i, _)| *i != s && *i != t).map(|(_, mode)| mode);
        let words = match self.width {
            1..=4 => 4,
            8 => 2,
            _ => 1,
        };
        let word = words as usize * self.width;
        let strides =
            batch().fold(down.stride.0 | across.stride.1, |all, mode| all | mode.stride.0 | mode.stride.1);
        let together = (strides | self.source | self.target).trailing_zeros() >= word.trailing_zeros()
            && across.extent % words == 0
            && down.extent % words == 0
            && self.alignment.source.min(self.alignment.target) >= word;
        let kernel =
            CopyKernel::Transpose { width: self.width, words: if together { words as usize } else { 1 } };
        let tiles = |extent: i64| (extent as usize).div_ceil(kernel.side()) as u32;
        let mut job = Job::at(self.source, self.target, kernel.number());
        job.row_source = down.stride.0;
        job.column_target = across.stride.1;
        (job.columns, job.rows) = (across.extent as u32, down.extent as u32);
        job.push(JobLoop::new(tiles(across.extent), 0, 0));
        job.push(JobLoop::new(tiles(down.extent), 0, 0));
        job.extend(batch());
        Launch { kernel, blocks: kernel.blocks(job.count, false), job }
    }
}
