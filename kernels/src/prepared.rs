//! A checked copy with fixed loops, ready to run.
//!
//! ```text
//! LoopNest -> reduce -> reject overlaps -> byte strides -> PreparedCopy { outer loops, body, byte ranges }
//!
//! body  Run    n contiguous bytes                                    no inner loop
//!       Row    n elements, strided                                   one inner loop
//!       Grid   a x b elements; the target is dense along a, the source along b (a transpose)
//! ```
//!
//! [`PreparedCopy::new`] is the only constructor. It computes, with checked arithmetic, the least and the greatest
//! byte that the loops reach on either side, and nothing changes a `PreparedCopy` afterwards: the code that runs it
//! may rely on both ranges.

use std::ops::Range;

use smallvec::SmallVec;

use crate::host::LINE;
use crate::{CopySide, Error, LoopNest};

/// A copy between two buffers: checked and laid out once, run many times.
///
/// ```
/// use reshard_kernels::{PreparedCopy, LoopNest};
/// use reshard_layout::Mode;
/// // Column 1 of a 3 x 4 matrix of u16.
/// let copy = PreparedCopy::new(&LoopNest::new(1, 0, [Mode::new(3, (4, 1))]), 2)?;
/// let source: Vec<u8> = (0u16..12).flat_map(u16::to_ne_bytes).collect();
/// let mut column = [0; 6];
/// copy.run(&mut column, &source)?;
/// assert_eq!(column, *[1u16, 5, 9].map(u16::to_ne_bytes).as_flattened());
/// let error = copy.run(&mut column, &source[..18]).unwrap_err();
/// assert_eq!(error.to_string(), "the source is accessed from byte 2 to byte 20 but has 18 bytes");
/// # Ok::<(), reshard_kernels::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreparedCopy {
    pub(crate) source: Range<usize>,
    pub(crate) target: Range<usize>,
    pub(crate) source_start: usize,
    pub(crate) target_start: usize,
    /// Slowest first.
    pub(crate) outer: SmallVec<[ByteLoop; 4]>,
    pub(crate) body: Body,
    pub(crate) bytes: usize,
}

/// A loop whose strides are bytes; the target's is positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByteLoop {
    pub(crate) extent: usize,
    pub(crate) source: isize,
    pub(crate) target: isize,
}

/// The operation at each point of the outer loops.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    Nothing,
    Run { bytes: usize },
    Row { along: ByteLoop, item: usize },
    Grid { a: ByteLoop, b: ByteLoop, item: usize },
}

impl PreparedCopy {
    /// Prepares the copy of a nest's pairs of elements of `item_bytes` bytes.
    ///
    /// Ensures: as `reference::copy_nest`.
    /// Errors: [`Error::ZeroItem`]; [`Error::Overlap`] if a target element is written twice; [`Error::OutOfBounds`] if
    /// an offset is negative; [`Error::Overflow`].
    pub fn new(nest: &LoopNest, item_bytes: usize) -> Result<PreparedCopy, Error> {
        if item_bytes == 0 {
            return Err(Error::ZeroItem);
        }
        nest.check_target_is_injective()?;
        let elements = nest.reduce()?;
        let count = elements.len()?;
        let scaled = elements.scale(item_bytes)?;
        let source = byte_range(&scaled, CopySide::Source, item_bytes)?;
        let target = byte_range(&scaled, CopySide::Target, item_bytes)?;
        let bytes = count.checked_mul(item_bytes).ok_or(Error::Overflow { what: "the size of a copy" })?;
        let mut copy = PreparedCopy {
            source,
            target,
            source_start: 0,
            target_start: 0,
            outer: SmallVec::new(),
            body: Body::Nothing,
            bytes,
        };
        if count == 0 {
            return Ok(copy);
        }
        (copy.source_start, copy.target_start) =
            (scaled.source_offset as usize, scaled.target_offset as usize);
        let stride =
            |n: i64| isize::try_from(n).map_err(|_| Error::Overflow { what: "a byte offset of a copy" });
        let (mut item, mut modes) = (item_bytes, scaled.modes.as_slice());
        if let [run, rest @ ..] = modes
            && run.stride == (item as i64, item as i64)
        {
            item *= run.extent as usize;
            modes = rest;
        }
        for mode in modes.iter().rev() {
            let (source, target) = (stride(mode.stride.0)?, stride(mode.stride.1)?);
            copy.outer.push(ByteLoop { extent: mode.extent as usize, source, target });
        }
        copy.body = choose_body(&mut copy.outer, item);
        Ok(copy)
    }

    /// Returns the bytes that one run writes.
    #[doc(hidden)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the range of source bytes that contains all reads; empty for an empty copy.
    #[doc(hidden)]
    pub fn source_range(&self) -> Range<usize> {
        self.source.clone()
    }

    /// Returns the range of target bytes that contains all writes; empty for an empty copy.
    #[doc(hidden)]
    pub fn target_range(&self) -> Range<usize> {
        self.target.clone()
    }
}

/// Returns the bytes that a nest with byte offsets reaches on one side.
pub(crate) fn byte_range(nest: &LoopNest, side: CopySide, item_bytes: usize) -> Result<Range<usize>, Error> {
    let Some((first, last)) = nest.extremes(side)? else { return Ok(0..0) };
    let end = i64::try_from(item_bytes).ok().and_then(|item| last.checked_add(item));
    let end = end.ok_or(Error::Overflow { what: "a byte offset of a copy" })?;
    if first < 0 {
        return Err(Error::OutOfBounds { side, first, end, length: None });
    }
    Ok(first as usize..end as usize)
}

/// Succeeds if the range is within a buffer of `length` bytes.
pub(crate) fn check_range(range: &Range<usize>, length: usize, side: CopySide) -> Result<(), Error> {
    if range.end > length {
        let (first, end) = (range.start as i64, range.end as i64);
        return Err(Error::OutOfBounds { side, first, end, length: Some(length) });
    }
    Ok(())
}

/// Removes the inner loops from `outer`.
///
/// These are the last loop, and for a transpose also the one along which the source is dense.
fn choose_body(outer: &mut SmallVec<[ByteLoop; 4]>, item: usize) -> Body {
    let Some(a) = outer.pop() else { return Body::Run { bytes: item } };
    let dense =
        (0..outer.len()).filter(|k| outer[*k].source != 0).min_by_key(|k| outer[*k].source.unsigned_abs());
    match dense {
        // Long elements fill cache lines in any case, so the order of the target decides.
        Some(_) if item >= 4 * LINE => {}
        Some(k) if outer[k].source.unsigned_abs() < a.source.unsigned_abs() => {
            let b = outer.remove(k);
            return Body::Grid { a, b, item };
        }
        Some(_) | None => {}
    }
    if item >= 4 * LINE {
        outer.push(a);
        return Body::Run { bytes: item };
    }
    Body::Row { along: a, item }
}
