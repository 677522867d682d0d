//! The fast copy in host memory. Only this file and that of its registers, `lanes`, have unsafe code in this crate.
//!
//! A grid whose elements have 1, 2, 4, 8 or 16 bytes is copied in tiles of 64 bytes by 64 bytes. Segments of
//! 64 bytes of the source rows are transposed 16 by 16 bytes in registers into a small buffer, which is then
//! written as segments of 64 bytes of the target rows. So every cache line is read once and written once, for
//! all strides: strides that are powers of two map many rows to one cache set and must not depend on lines
//! staying there. Where an extent is not a multiple of the tile, the last tile overlaps the one before it and
//! writes the same bytes again.
//!
//! Copies too large for the caches bypass them (non-temporal stores) and go along the rows of the source, which
//! the processor prefetches. Rows of the target that begin anywhere in a line are still written in whole
//! lines: the last 64 bytes of every row are held until the next ones complete the line.
//!
//! # Soundness
//!
//! [`PreparedCopy::new`] is the only constructor, in a file without unsafe code. It computes the least and the
//! greatest byte that the loops reach on either side; [`PreparedCopy::run`] compares them with the lengths of the
//! slices, once. After that every pointer below is `start + sum_k i_k stride_k` with `0 <= i_k < extent_k`,
//! in range by construction.

use crate::prepared::{Body, ByteLoop, check_range};
use crate::{CopySide, Error, PreparedCopy, lanes};

/// Minimum bytes of a copy whose writes bypass the caches.
const STREAM_BYTES: usize = 4 << 20;
/// Bytes of a cache line, and the side of a tile.
pub(crate) const LINE: usize = 64;

impl PreparedCopy {
    /// Copies, and returns the number of bytes written.
    ///
    /// Neither plans nor allocates; checks only that both ranges are within the slices.
    /// Errors: [`Error::OutOfBounds`], and then nothing was written.
    pub fn run(&self, dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
        check_range(&self.source, src.len(), CopySide::Source)?;
        check_range(&self.target, dst.len(), CopySide::Target)?;
        #[allow(unsafe_code, reason = "strided access without a bounds check per element")]
        // SAFETY: both ranges are within the slices. `source_start` and `target_start`, with all that the
        // loops add to them, are within the ranges (see the head of this file). `dst` is borrowed
        // exclusively, so that the two do not overlap.
        unsafe {
            let (src, dst) = (src.as_ptr().add(self.source_start), dst.as_mut_ptr().add(self.target_start));
            let stream = self.bytes >= STREAM_BYTES;
            match &self.body {
                Body::Nothing => {}
                Body::Run { bytes } => walk(&self.outer, src, dst, &mut |s, d| copy_item(s, d, *bytes)),
                Body::Row { along, item } => {
                    walk(&self.outer, src, dst, &mut |s, d| row(s, d, *along, *item));
                }
                Body::Grid { a, b, item } => {
                    walk(&self.outer, src, dst, &mut |s, d| grid(s, d, *a, *b, *item, stream));
                    if stream {
                        lanes::fence();
                    }
                }
            }
        }
        Ok(self.bytes)
    }
}

#[allow(unsafe_code, reason = "pointers in range by construction, see the head of this file")]
#[allow(clippy::inline_always, reason = "the bodies of the innermost loops")]
mod unchecked {
    use super::{ByteLoop, LINE};
    use crate::lanes::{self, REGISTER};

    /// Calls `body` at every point of the loops.
    ///
    /// SAFETY: for the callers of this module: `src` and `dst` plus every combination of the strides of the
    /// loops, and of the offsets that the bodies add, are within live allocations, with exclusive access to
    /// that of `dst`.
    pub(super) unsafe fn walk(
        loops: &[ByteLoop],
        src: *const u8,
        dst: *mut u8,
        body: &mut impl FnMut(*const u8, *mut u8),
    ) {
        let Some((first, rest)) = loops.split_first() else { return body(src, dst) };
        for i in 0..first.extent as isize {
            // SAFETY: `i` is below the extent, so this is a point of the loops.
            unsafe {
                let (src, dst) = (src.offset(i * first.source), dst.offset(i * first.target));
                if rest.is_empty() { body(src, dst) } else { walk(rest, src, dst, body) }
            }
        }
    }

    /// Copies `bytes` bytes, short ones without a call.
    #[inline(always)]
    pub(super) unsafe fn copy_item(src: *const u8, dst: *mut u8, bytes: usize) {
        /// Copies two possibly overlapping parts of the size of `T` that jointly cover `bytes`.
        #[inline(always)]
        unsafe fn ends<T: Copy>(src: *const u8, dst: *mut u8, bytes: usize) {
            let last = bytes - size_of::<T>();
            // SAFETY: `size_of::<T>() <= bytes`, by the choice below; both parts are read before either is
            // written.
            unsafe {
                let (head, tail) =
                    (src.cast::<T>().read_unaligned(), src.add(last).cast::<T>().read_unaligned());
                dst.cast::<T>().write_unaligned(head);
                dst.add(last).cast::<T>().write_unaligned(tail);
            }
        }
        // SAFETY: `bytes` bytes are valid on both sides, by the contract of this module.
        unsafe {
            match bytes {
                0 => {}
                1 => *dst = *src,
                2..=3 => ends::<u16>(src, dst, bytes),
                4..=7 => ends::<u32>(src, dst, bytes),
                8..=15 => ends::<u64>(src, dst, bytes),
                16..=32 => ends::<u128>(src, dst, bytes),
                _ => src.copy_to_nonoverlapping(dst, bytes),
            }
        }
    }

    /// Copies strided elements.
    #[inline(always)]
    pub(super) unsafe fn row(src: *const u8, dst: *mut u8, along: ByteLoop, item: usize) {
        #[inline(always)]
        unsafe fn typed<T: Copy>(src: *const u8, dst: *mut u8, along: ByteLoop) {
            let dense = size_of::<T>() as isize;
            // SAFETY: each `i` is below the extent, and elements have the size of `T`.
            unsafe {
                if along.target == dense {
                    for i in 0..along.extent as isize {
                        let value = src.offset(i * along.source).cast::<T>().read_unaligned();
                        dst.offset(i * dense).cast::<T>().write_unaligned(value);
                    }
                } else {
                    for i in 0..along.extent as isize {
                        let value = src.offset(i * along.source).cast::<T>().read_unaligned();
                        dst.offset(i * along.target).cast::<T>().write_unaligned(value);
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            match item {
                1 => typed::<u8>(src, dst, along),
                2 => typed::<u16>(src, dst, along),
                4 => typed::<u32>(src, dst, along),
                8 => typed::<u64>(src, dst, along),
                16 => typed::<u128>(src, dst, along),
                _ => {
                    for i in 0..along.extent as isize {
                        copy_item(src.offset(i * along.source), dst.offset(i * along.target), item);
                    }
                }
            }
        }
    }

    /// Copies a grid of elements, in tiles if the element size and the strides allow.
    pub(super) unsafe fn grid(
        src: *const u8,
        dst: *mut u8,
        a: ByteLoop,
        b: ByteLoop,
        item: usize,
        stream: bool,
    ) {
        let transpose = a.target == item as isize && b.source == item as isize;
        // SAFETY: the same grid, in any loop order.
        unsafe {
            match item {
                1 if transpose => tiled::<1>(src, dst, a, b, stream),
                2 if transpose => tiled::<2>(src, dst, a, b, stream),
                4 if transpose => tiled::<4>(src, dst, a, b, stream),
                8 if transpose => tiled::<8>(src, dst, a, b, stream),
                16 if transpose => tiled::<16>(src, dst, a, b, stream),
                _ => blocked(src, dst, a, b, item),
            }
        }
    }

    /// Copies a grid in blocks that fit the first cache, row by row along its longer side.
    unsafe fn blocked(src: *const u8, dst: *mut u8, a: ByteLoop, b: ByteLoop, item: usize) {
        let (side, across) = ((512 / item.max(1)).max(8), (2048 / item.max(1)).max(8));
        let (a, b) = if a.extent < side.min(b.extent) { (b, a) } else { (a, b) };
        for b0 in (0..b.extent).step_by(across) {
            for a0 in (0..a.extent).step_by(side) {
                let along = ByteLoop { extent: side.min(a.extent - a0), ..a };
                for i in b0..b.extent.min(b0 + across) {
                    let (a0, i) = (a0 as isize, i as isize);
                    // SAFETY: `a0` and `i` are below the extents, and the row ends within the grid.
                    unsafe {
                        let src = src.offset(a0 * a.source + i * b.source);
                        row(src, dst.offset(a0 * a.target + i * b.target), along, item);
                    }
                }
            }
        }
    }

    /// Returns where part `k` of `size` begins, the last one so that it ends with the extent.
    #[inline(always)]
    fn begin(k: usize, size: usize, extent: usize) -> usize {
        (k * size).min(extent - size)
    }

    /// Transposes elements of `W` bytes in tiles of 64 x 64 bytes, or smaller ones if the grid is.
    unsafe fn tiled<const W: usize>(src: *const u8, dst: *mut u8, a: ByteLoop, b: ByteLoop, stream: bool) {
        let (tile, small) = (LINE / W, REGISTER / W);
        let least = a.extent.min(b.extent);
        // SAFETY: the same grid; parts of it are within its extents.
        unsafe {
            if least < small {
                return blocked(src, dst, a, b, W);
            }
            if least < tile {
                return slim::<W>(src, dst, a, b);
            }
            if !stream {
                return through_caches::<W>(src, dst, a, b);
            }
            // Reads and writes `extent` elements of each row of the target, from element `from` on.
            let part = |from: usize, extent: usize| {
                let i = from as isize;
                (src.offset(i * a.source), dst.offset(i * W as isize), ByteLoop { extent, ..a })
            };
            // Lines can be written directly if every row of the target has the same offset in its line.
            let aligned = b.target.unsigned_abs().is_multiple_of(LINE) && (dst as usize).is_multiple_of(W);
            let head = if aligned { dst.align_offset(LINE) / W } else { 0 };
            let whole = (a.extent - head) / tile * tile;
            let (from, to, along) = part(head, whole);
            if aligned {
                past_caches::<W>(from, to, along, b);
            } else {
                shifted::<W>(from, to, along, b);
            }
            if head > 0 {
                let (from, to, along) = part(0, tile);
                through_caches::<W>(from, to, along, b);
            }
            if head + whole < a.extent {
                let (from, to, along) = part(a.extent - tile, tile);
                through_caches::<W>(from, to, along, b);
            }
        }
    }

    /// Transposes a grid that has a side shorter than a tile, in tiles of 16 x 16 bytes, along its longer side.
    unsafe fn slim<const W: usize>(src: *const u8, dst: *mut u8, a: ByteLoop, b: ByteLoop) {
        let small = REGISTER / W;
        let (columns, strips) = (a.extent.div_ceil(small), b.extent.div_ceil(small));
        let tile = |column: usize, strip: usize| {
            let i = begin(column, small, a.extent) as isize;
            let j = begin(strip, small, b.extent) as isize;
            // SAFETY: a tile at (i, j) ends within the extents, which are not below its side.
            unsafe {
                let (src, dst) =
                    (src.offset(i * a.source + j * W as isize), dst.offset(i * W as isize + j * b.target));
                lanes::transpose::<W>(src, a.source, dst, b.target);
            }
        };
        if columns < strips {
            (0..strips).for_each(|strip| (0..columns).for_each(|column| tile(column, strip)));
        } else {
            (0..columns).for_each(|column| (0..strips).for_each(|strip| tile(column, strip)));
        }
    }

    /// Transposes a grid of at least a tile, in blocks of 256 bytes of the target's rows by 1024 bytes of the source's.
    #[inline(never)]
    unsafe fn through_caches<const W: usize>(src: *const u8, dst: *mut u8, a: ByteLoop, b: ByteLoop) {
        let tile = LINE / W;
        let (columns, strips) = (a.extent.div_ceil(tile), b.extent.div_ceil(tile));
        for strip0 in (0..strips).step_by(16) {
            for column0 in (0..columns).step_by(4) {
                for strip in strip0..strips.min(strip0 + 16) {
                    for column in column0..columns.min(column0 + 4) {
                        let i = begin(column, tile, a.extent) as isize;
                        let j = begin(strip, tile, b.extent) as isize;
                        // SAFETY: a tile at (i, j) ends within the extents.
                        unsafe {
                            let src = src.offset(i * a.source + j * W as isize);
                            let dst = dst.offset(i * W as isize + j * b.target);
                            line_tile::<W, false>(src, a.source, dst, b.target);
                        }
                    }
                }
            }
        }
    }

    /// Rows of the target of one block: their pages and the source's fit the second TLB.
    const ROWS: usize = 512;

    /// Fetches the source of the tile after the next one along the source's rows; past the end, of whatever follows.
    #[inline(always)]
    fn fetch_ahead<const W: usize>(src: *const u8, step: isize) {
        for k in 0..(LINE / W) as isize {
            lanes::prefetch::<W>(src.wrapping_offset(k * step).wrapping_add(2 * LINE));
        }
    }

    /// Transposes whole tiles to aligned lines, tile after tile along the source's rows.
    #[inline(never)]
    unsafe fn past_caches<const W: usize>(src: *const u8, dst: *mut u8, a: ByteLoop, b: ByteLoop) {
        let tile = LINE / W;
        let strips = b.extent.div_ceil(tile);
        for strip0 in (0..strips).step_by(ROWS / tile) {
            for i in (0..a.extent).step_by(tile) {
                for strip in strip0..strips.min(strip0 + ROWS / tile) {
                    let (i, j) = (i as isize, begin(strip, tile, b.extent) as isize);
                    // SAFETY: a tile at (i, j) ends within the extents.
                    unsafe {
                        let src = src.offset(i * a.source + j * W as isize);
                        fetch_ahead::<W>(src, a.source);
                        let dst = dst.offset(i * W as isize + j * b.target);
                        line_tile::<W, true>(src, a.source, dst, b.target);
                    }
                }
            }
        }
    }

    /// Transposes whole tiles to rows that begin anywhere in a line, and writes whole lines but for their ends.
    #[inline(never)]
    unsafe fn shifted<const W: usize>(src: *const u8, dst: *mut u8, a: ByteLoop, b: ByteLoop) {
        /// The last 64 bytes of a row, not all of them written, and the next 64.
        #[derive(Clone, Copy)]
        #[repr(align(64))]
        struct Kept(#[allow(dead_code, reason = "used through a pointer")] [u8; 2 * LINE]);
        const PITCH: usize = size_of::<Kept>();
        let mut kept = std::mem::MaybeUninit::<[Kept; ROWS]>::uninit();
        let kept = kept.as_mut_ptr().cast::<u8>();
        let tile = LINE / W;
        let strips = b.extent.div_ceil(tile);
        for strip0 in (0..strips).step_by(ROWS / tile) {
            let block = strip0..strips.min(strip0 + ROWS / tile);
            // SAFETY: tiles end within the extents, and `block` has at most `ROWS` rows. Of a row that begins `past`
            // bytes after a line, the lines written begin `past` bytes before the tile: in the row, as the first
            // tile writes less. The bytes read from `kept` were written by the same tile or by the one before it.
            unsafe {
                for i in (0..a.extent).step_by(tile) {
                    for strip in block.clone() {
                        let j = begin(strip, tile, b.extent) as isize;
                        let src = src.offset(i as isize * a.source + j * W as isize);
                        fetch_ahead::<W>(src, a.source);
                        let kept = kept.add((strip - strip0) * tile * PITCH);
                        transpose_tile::<W>(src, a.source, kept.add(LINE), PITCH);
                        for k in 0..tile {
                            let (dst, kept) =
                                (dst.offset((j + k as isize) * b.target).add(i * W), kept.add(k * PITCH));
                            let past = dst as usize % LINE;
                            if i == 0 && past > 0 {
                                kept.add(LINE).copy_to_nonoverlapping(dst, LINE - past);
                            } else {
                                lanes::write_line::<true>(kept.add(LINE - past), dst.sub(past));
                            }
                            lanes::write_line::<false>(kept.add(LINE), kept);
                        }
                    }
                }
                for strip in block {
                    let j = begin(strip, tile, b.extent) as isize;
                    for k in 0..tile {
                        let dst = dst.offset((j + k as isize) * b.target).add(a.extent * W);
                        let past = dst as usize % LINE;
                        let kept = kept.add(((strip - strip0) * tile + k) * PITCH);
                        kept.add(LINE - past).copy_to_nonoverlapping(dst.sub(past), past);
                    }
                }
            }
        }
    }

    /// Transposes one tile of 64 x 64 bytes into rows at distance `row`.
    #[inline(always)]
    unsafe fn transpose_tile<const W: usize>(src: *const u8, step: isize, to: *mut u8, row: usize) {
        let small = REGISTER / W;
        for i in 0..4 {
            for j in 0..4 {
                // SAFETY: segments within the tile at `src`, and within rows `0 .. LINE / W` at `to`.
                unsafe {
                    let from = src.offset((small * i) as isize * step).add(REGISTER * j);
                    lanes::transpose::<W>(from, step, to.add(small * j * row + REGISTER * i), row as isize);
                }
            }
        }
    }

    /// Copies one tile of 64 x 64 bytes through a buffer.
    #[inline(always)]
    unsafe fn line_tile<const W: usize, const STREAM: bool>(
        src: *const u8,
        step: isize,
        dst: *mut u8,
        row: isize,
    ) {
        #[repr(align(64))]
        struct Tile(#[allow(dead_code, reason = "used through a pointer")] [[u8; LINE]; LINE]);
        let mut tile = std::mem::MaybeUninit::<Tile>::uninit();
        let buffer = tile.as_mut_ptr().cast::<u8>();
        // SAFETY: the tile is written in full, and then read; the target's segments are within the tile at `dst`.
        unsafe {
            transpose_tile::<W>(src, step, buffer, LINE);
            for j in 0..LINE / W {
                lanes::write_line::<STREAM>(buffer.add(j * LINE), dst.offset(j as isize * row));
            }
        }
    }
}
use unchecked::{copy_item, grid, row, walk};
