//! Copies of boxes between two buffers, with conversions of the elements in between.
//!
//! ```text
//! no conversion   source buffer -------------------copy-------------------> target buffer
//! conversions     source buffer --copy--> scratch --convert--> scratch --copy--> target buffer
//! ```
//!
//! A box that is converted is divided into copies of at most [`MOST`] elements, so that scratch is small and stays in
//! the cache. A side that is contiguous needs no copy through scratch.

use reshard_collectives::{Error, TypedNest};
use reshard_kernels::{Cast, CopySide, DType, LoopNest, PreparedCopy};
use reshard_layout::Mode;

use crate::part::Loop;

/// The most elements of a copy with conversions.
const MOST: u64 = 1 << 14;

/// The two scratch buffers: the elements before and after a conversion.
pub(crate) type Scratch = [Vec<u8>; 2];

/// The bytes of a scratch buffer: the largest elements that can be converted are those of f64.
pub(crate) const SCRATCH_BYTES: usize = MOST as usize * 8;

/// A copy of one box, or of some of its steps.
#[derive(Clone, Debug)]
pub(crate) struct BoxTransfer {
    /// The byte of the source buffer that `read` counts from.
    source_start: usize,
    /// The byte of the target buffer that `write` counts from.
    target_start: usize,
    op: Op,
}

#[derive(Clone, Debug)]
enum Op {
    Copy(Box<PreparedCopy>),
    Convert(Box<Conversion>),
}

/// Elements that are read, converted in turn, and written; a side without a copy is contiguous.
#[derive(Clone, Debug)]
struct Conversion {
    read: Option<PreparedCopy>,
    casts: Vec<Cast>,
    write: Option<PreparedCopy>,
    elements: usize,
}

/// The memory of one side of a box.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory {
    /// The buffer of a tensor.
    Tensor,
    /// A message, in which the elements of the box are contiguous from this byte on.
    Message(usize),
}

/// A box: its loops, outermost first, and its first element on both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nest<'a> {
    pub(crate) loops: &'a [Loop],
    pub(crate) source: u64,
    pub(crate) target: u64,
}

impl Nest<'_> {
    fn elements(&self) -> u64 {
        self.loops.iter().map(|one| one.extent).product()
    }

    /// Returns the loops with both strides; a side that is not `strided` is contiguous from element 0.
    fn with_strides(&self, strided: [bool; 2]) -> LoopNest {
        let mut dense = 1;
        let mode = |one: &Loop| {
            let own = [one.source_stride, one.target_stride];
            let [source, target] = [0, 1].map(|k| if strided[k] { own[k] as i64 } else { dense });
            dense *= one.extent as i64;
            Mode::new(one.extent as i64, (source, target))
        };
        let modes: Vec<_> = self.loops.iter().rev().map(mode).collect();
        let [source, target] = [(strided[0], self.source), (strided[1], self.target)];
        let offset = |(strided, offset): (bool, u64)| if strided { offset as i64 } else { 0 };
        LoopNest::new(offset(source), offset(target), modes)
    }

    /// Calls `each` for parts of at most `most` elements, in order.
    fn divided(&self, most: u64, each: &mut impl FnMut(&Nest<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let [outer, inner @ ..] = self.loops else { return each(self) };
        if self.elements() <= most {
            return each(self);
        }
        let steps = (most / inner.iter().map(|one| one.extent).product::<u64>()).max(1);
        for start in (0..outer.extent).step_by(steps as usize) {
            let extent = steps.min(outer.extent - start);
            let mut loops = vec![Loop { extent, ..*outer }];
            loops.extend_from_slice(inner);
            let part = Nest {
                loops: if extent == 1 { inner } else { &loops },
                source: self.source + start * outer.source_stride,
                target: self.target + start * outer.target_stride,
            };
            part.divided(most, each)?;
        }
        Ok(())
    }
}

/// Returns the copies of a box from one memory to another.
///
/// Elements have the first of `types` in the source, and are converted to each of the others in turn.
pub(crate) fn of(
    nest: &Nest<'_>,
    types: &[DType],
    [source, target]: [Memory; 2],
) -> Result<Vec<BoxTransfer>, Error> {
    let ([first, ..], [.., last]) = (types, types) else { return Ok(Vec::new()) };
    let items = [first.element_bytes()?, last.element_bytes()?];
    let strided = [source, target].map(|memory| matches!(memory, Memory::Tensor));
    let start = |memory: Memory| match memory {
        Memory::Tensor => 0,
        Memory::Message(start) => start,
    };
    let starts = [start(source), start(target)];
    if types.len() == 1 {
        let copy = PreparedCopy::new(&nest.with_strides(strided), items[0])?;
        return Ok(vec![BoxTransfer {
            source_start: starts[0],
            target_start: starts[1],
            op: Op::Copy(Box::new(copy)),
        }]);
    }
    let cast = |pair: &[DType]| {
        let dtype = if Cast::new(pair[0], pair[0]).is_none() { pair[0] } else { pair[1] };
        let error = || reshard_kernels::Error::NoArithmetic { dtype, op: "cast".to_owned() };
        Cast::new(pair[0], pair[1]).ok_or_else(error)
    };
    let casts = types.windows(2).map(cast).collect::<Result<Vec<_>, _>>()?;
    let (mut done, mut out) = (0, Vec::new());
    nest.divided(MOST, &mut |part| {
        // The byte at which the part begins, and the copy between it and scratch.
        let side = |k: usize| -> Result<(usize, Option<PreparedCopy>), Error> {
            let (side, dtype) = [(CopySide::Source, *first), (CopySide::Target, *last)][k];
            if !strided[k] {
                return Ok((starts[k] + done * items[k], None));
            }
            let nest = TypedNest { nest: part.with_strides([k == 0, k == 1]), dtype };
            match nest.contiguous(side) {
                Some(range) => Ok((range.start, None)),
                None => Ok((0, Some(PreparedCopy::new(&nest.nest, items[k])?))),
            }
        };
        let ((source_start, read), (target_start, write)) = (side(0)?, side(1)?);
        let elements = part.elements() as usize;
        done += elements;
        let op = Op::Convert(Box::new(Conversion { read, casts: casts.clone(), write, elements }));
        out.push(BoxTransfer { source_start, target_start, op });
        Ok(())
    })?;
    Ok(out)
}

impl BoxTransfer {
    /// Copies and converts the elements. Errors: [`Error::Kernel`] for a buffer that is too small.
    pub(crate) fn run(&self, target: &mut [u8], source: &[u8], scratch: &mut Scratch) -> Result<(), Error> {
        let source = source.get(self.source_start..).unwrap_or(&[]);
        let target = target.get_mut(self.target_start..).unwrap_or(&mut []);
        let Conversion { read, casts, write, elements } = match &self.op {
            Op::Copy(copy) => {
                copy.run(target, source)?;
                return Ok(());
            }
            Op::Convert(conversion) => &**conversion,
        };
        let [ref mut before, ref mut after] = *scratch;
        let (Some(first), Some(last)) = (casts.first(), casts.last()) else { return Ok(()) };
        let mut bytes = elements * first.element_bytes().0;
        if let Some(read) = read {
            read.run(before, source)?;
        }
        // All but the last conversion are between the scratch buffers.
        let mut is_source = read.is_none();
        for cast in &casts[..casts.len() - 1] {
            let made = elements * cast.element_bytes().1;
            let from = if is_source { source } else { &before[..] };
            cast.run(&mut after[..made], checked(from, bytes, CopySide::Source)?)?;
            std::mem::swap(before, after);
            (bytes, is_source) = (made, false);
        }
        let made = elements * last.element_bytes().1;
        let from = checked(if is_source { source } else { &before[..] }, bytes, CopySide::Source)?;
        match write {
            None => {
                let length = target.len();
                let target = target.get_mut(..made).ok_or_else(|| outside(made, length, CopySide::Target))?;
                last.run(target, from)?;
            }
            Some(write) => {
                last.run(&mut after[..made], from)?;
                write.run(target, after)?;
            }
        }
        Ok(())
    }
}

/// Returns the first bytes of a buffer.
fn checked(buffer: &[u8], bytes: usize, side: CopySide) -> Result<&[u8], Error> {
    buffer.get(..bytes).ok_or_else(|| outside(bytes, buffer.len(), side))
}

fn outside(bytes: usize, length: usize, side: CopySide) -> Error {
    reshard_kernels::Error::OutOfBounds { side, first: 0, end: bytes as i64, length: Some(length) }.into()
}
