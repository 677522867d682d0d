//! The fast copy in host memory, in the only file of this crate with unsafe code.
//!
//! A grid whose elements have 1, 2, 4, 8 or 16 bytes is copied in tiles of 64 bytes by 64 bytes. Segments of
//! 64 bytes of the source rows are transposed 16 by 16 bytes in registers into a small buffer, which is then
//! written as segments of 64 bytes of the target rows. So every cache line is read once and written once, for
//! all strides: strides that are powers of two map many rows to one cache set and must not depend on lines
//! staying there. Copies too large for the caches bypass them (non-temporal stores).
//!
//! # Soundness
//!
//! [`PreparedCopy::new`] is the only constructor, in a file without unsafe code. It computes the least and the
//! greatest byte that the loops reach on either side; [`PreparedCopy::run`] compares them with the lengths of the
//! slices, once. After that every pointer below is `start + sum_k i_k stride_k` with `0 <= i_k < extent_k`,
//! in range by construction.

use crate::prepared::{Body, ByteLoop, check_range};
use crate::{CopySide, Error, PreparedCopy};

/// Minimum bytes of a copy whose writes bypass the caches.
const STREAM_BYTES: usize = 4 << 20;
/// Bytes of a cache line, and the side of a tile.
pub(crate) const LINE: usize = 64;
/// Bytes of a register, and the side of a small tile.
const REGISTER: usize = 16;

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
    use std::ops::Range;

    use super::{ByteLoop, LINE, REGISTER, lanes};

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

    /// Copies a grid in blocks that fit the first cache.
    unsafe fn blocked(src: *const u8, dst: *mut u8, a: ByteLoop, b: ByteLoop, item: usize) {
        let side = (512 / item.max(1)).clamp(8, 64);
        for b0 in (0..b.extent).step_by(side) {
            for a0 in (0..a.extent).step_by(side) {
                let along = ByteLoop { extent: side.min(a.extent - a0), ..a };
                for i in b0..b.extent.min(b0 + side) {
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

    /// Transposes elements of `W` bytes: tiles of 64 x 64 bytes, then of 16 x 16 bytes, then single elements.
    unsafe fn tiled<const W: usize>(src: *const u8, dst: *mut u8, a: ByteLoop, b: ByteLoop, stream: bool) {
        let at = |i: usize, j: usize| {
            let (i, j) = (i as isize, j as isize);
            // SAFETY: called with `i < a.extent` and `j < b.extent` only.
            unsafe { (src.offset(i * a.source + j * W as isize), dst.offset(i * W as isize + j * b.target)) }
        };
        let (tile, small) = (LINE / W, REGISTER / W);
        // Lines are written whole only if every row of the target has the same offset in its line.
        let aligned = b.target.unsigned_abs().is_multiple_of(LINE) && (dst as usize).is_multiple_of(W);
        let head = if aligned { dst.align_offset(LINE) / W } else { 0 }.min(a.extent);
        let stream = stream && aligned;
        let a_end = head + (a.extent - head) / tile * tile;
        let b_end = b.extent / tile * tile;
        let (a_range, b_range) = (head..a_end, 0..b_end);
        // SAFETY: the ranges are within the extents and contain whole tiles.
        unsafe {
            if stream {
                tiles::<W, true>(src, dst, a, b, a_range, b_range);
            } else {
                tiles::<W, false>(src, dst, a, b, a_range, b_range);
            }
        }
        let rest = |a_range: Range<usize>, b_range: Range<usize>| {
            let a_small = a_range.start + a_range.len() / small * small;
            let b_small = b_range.start + b_range.len() / small * small;
            // SAFETY: all indices are in the ranges, which are in the grid.
            unsafe {
                for j in (b_range.start..b_small).step_by(small) {
                    for i in (a_range.start..a_small).step_by(small) {
                        let (src, dst) = at(i, j);
                        lanes::transpose::<W>(src, a.source, dst, b.target);
                    }
                }
                for j in b_range.clone() {
                    let from = if j < b_small { a_small } else { a_range.start };
                    for i in from..a_range.end {
                        let (src, dst) = at(i, j);
                        copy_item(src, dst, W);
                    }
                }
            }
        };
        rest(0..head, 0..b.extent);
        rest(a_end..a.extent, 0..b.extent);
        rest(head..a_end, b_end..b.extent);
    }

    /// Copies whole tiles, in blocks of 256 bytes of the target's rows by 1024 bytes of the source's.
    ///
    /// A block has few enough pages for the TLB.
    #[inline(never)]
    unsafe fn tiles<const W: usize, const STREAM: bool>(
        src: *const u8,
        dst: *mut u8,
        a: ByteLoop,
        b: ByteLoop,
        a_range: Range<usize>,
        b_range: Range<usize>,
    ) {
        let tile = LINE / W;
        for b0 in b_range.clone().step_by(16 * tile) {
            for a0 in a_range.clone().step_by(4 * tile) {
                for j in (b0..b_range.end.min(b0 + 16 * tile)).step_by(tile) {
                    for i in (a0..a_range.end.min(a0 + 4 * tile)).step_by(tile) {
                        let (i, j) = (i as isize, j as isize);
                        // SAFETY: a tile at (i, j) ends within the ranges.
                        unsafe {
                            let src = src.offset(i * a.source + j * W as isize);
                            let dst = dst.offset(i * W as isize + j * b.target);
                            line_tile::<W, STREAM>(src, a.source, dst, b.target);
                        }
                    }
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
        let small = REGISTER / W;
        // SAFETY: the first loops write lines `0 .. LINE / W` of the buffer in full, the last ones read them;
        // source and target segments are within the tile at `src` and `dst`.
        unsafe {
            for i in 0..4 {
                for j in 0..4 {
                    let from = src.offset((small * i) as isize * step).add(REGISTER * j);
                    let to = buffer.add(small * j * LINE + REGISTER * i);
                    lanes::transpose::<W>(from, step, to, LINE as isize);
                }
            }
            for j in 0..LINE / W {
                lanes::write_line::<STREAM>(buffer.add(j * LINE), dst.offset(j as isize * row));
            }
        }
    }
}
/// Registers of 16 bytes: transposes of `16 / W` rows of `16 / W` elements, and whole lines.
///
/// The rows pass `log2(16 / W)` perfect shuffles: row `2i` and `2i + 1` become the low and the high halves of
/// rows `i` and `i + n/2` interleaved, which rotates the bits of (row, element) by one; after `log2 n`
/// rotations they are swapped.
#[allow(unsafe_code, reason = "register loads and stores; pointers in range by the contract of `unchecked`")]
#[allow(clippy::inline_always, reason = "single instructions")]
mod lanes {
    #[cfg(not(target_arch = "x86_64"))]
    use portable::{Register, fence_all, interleave, load, store, store_past_caches};
    #[cfg(target_arch = "x86_64")]
    use sse2::{Register, fence_all, interleave, load, store, store_past_caches};

    use super::{LINE, REGISTER};

    /// Makes stores that bypass the caches visible before later accesses.
    pub(super) fn fence() {
        fence_all();
    }

    /// Transposes `16 / W` rows of 16 bytes at distance `step` into rows at distance `row`.
    #[inline(always)]
    pub(super) unsafe fn transpose<const W: usize>(src: *const u8, step: isize, dst: *mut u8, row: isize) {
        let n = REGISTER / W;
        // SAFETY: `n` rows of 16 bytes are valid at both, by the contract of `unchecked`.
        unsafe {
            let mut rows: [Register; REGISTER] = [load(src); REGISTER];
            for (i, register) in rows.iter_mut().enumerate().take(n).skip(1) {
                *register = load(src.offset(i as isize * step));
            }
            let mut stage = 1;
            while stage < n {
                let old = rows;
                for i in 0..n / 2 {
                    (rows[2 * i], rows[2 * i + 1]) = interleave::<W>(old[i], old[i + n / 2]);
                }
                stage *= 2;
            }
            for (j, register) in rows.iter().enumerate().take(n) {
                store(dst.offset(j as isize * row), *register);
            }
        }
    }

    /// Copies a line from an aligned buffer; bypasses the caches only for an aligned line.
    #[inline(always)]
    pub(super) unsafe fn write_line<const STREAM: bool>(src: *const u8, dst: *mut u8) {
        for at in (0..LINE).step_by(REGISTER) {
            // SAFETY: a line is valid at both; the caller streams only to lines that are aligned.
            unsafe {
                if STREAM {
                    store_past_caches(dst.add(at), load(src.add(at)));
                } else {
                    store(dst.add(at), load(src.add(at)));
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    mod sse2 {
        use std::arch::x86_64 as x86;

        pub(super) type Register = x86::__m128i;

        #[inline(always)]
        pub(super) unsafe fn load(src: *const u8) -> Register {
            // SAFETY: 16 bytes are valid; the load may be unaligned.
            unsafe { x86::_mm_loadu_si128(src.cast()) }
        }

        #[inline(always)]
        pub(super) unsafe fn store(dst: *mut u8, value: Register) {
            // SAFETY: 16 bytes are valid; the store may be unaligned.
            unsafe { x86::_mm_storeu_si128(dst.cast(), value) }
        }

        #[inline(always)]
        pub(super) unsafe fn store_past_caches(dst: *mut u8, value: Register) {
            // SAFETY: 16 bytes are valid and aligned; `fence_all` follows before the copy returns.
            unsafe { x86::_mm_stream_si128(dst.cast(), value) }
        }

        #[inline(always)]
        pub(super) fn fence_all() {
            // SAFETY: every x86-64 processor has SSE.
            unsafe { x86::_mm_sfence() }
        }

        /// Returns the low and the high halves of `a` and `b`, with elements of `W` bytes alternating.
        #[inline(always)]
        pub(super) fn interleave<const W: usize>(a: Register, b: Register) -> (Register, Register) {
            // SAFETY: every x86-64 processor has SSE2.
            unsafe {
                match W {
                    1 => (x86::_mm_unpacklo_epi8(a, b), x86::_mm_unpackhi_epi8(a, b)),
                    2 => (x86::_mm_unpacklo_epi16(a, b), x86::_mm_unpackhi_epi16(a, b)),
                    4 => (x86::_mm_unpacklo_epi32(a, b), x86::_mm_unpackhi_epi32(a, b)),
                    _ => (x86::_mm_unpacklo_epi64(a, b), x86::_mm_unpackhi_epi64(a, b)),
                }
            }
        }
    }

    #[cfg(any(test, not(target_arch = "x86_64")))]
    #[cfg_attr(
        target_arch = "x86_64",
        allow(dead_code, reason = "the fall-back of other processors, tested here too")
    )]
    mod portable {
        use super::REGISTER;

        pub(super) type Register = [u8; REGISTER];

        #[inline(always)]
        pub(super) unsafe fn load(src: *const u8) -> Register {
            // SAFETY: 16 bytes are valid.
            unsafe { src.cast::<Register>().read_unaligned() }
        }

        #[inline(always)]
        pub(super) unsafe fn store(dst: *mut u8, value: Register) {
            // SAFETY: 16 bytes are valid.
            unsafe { dst.cast::<Register>().write_unaligned(value) }
        }

        #[inline(always)]
        pub(super) unsafe fn store_past_caches(dst: *mut u8, value: Register) {
            // SAFETY: 16 bytes are valid.
            unsafe { store(dst, value) }
        }

        #[inline(always)]
        pub(super) fn fence_all() {}

        /// Returns the low and the high halves of `a` and `b`, with elements of `W` bytes alternating.
        #[inline(always)]
        pub(super) fn interleave<const W: usize>(a: Register, b: Register) -> (Register, Register) {
            let half = |from: usize| -> Register {
                std::array::from_fn(|k| {
                    let at = from + k / (2 * W) * W + k % W;
                    if (k / W).is_multiple_of(2) { a[at] } else { b[at] }
                })
            };
            (half(0), half(REGISTER / 2))
        }
    }

    #[cfg(all(test, target_arch = "x86_64"))]
    mod tests {
        #[test]
        fn both_interleaves_agree() {
            fn check<const W: usize>() {
                let a: [u8; 16] = std::array::from_fn(|i| i as u8);
                let b = a.map(|x| x + 16);
                let (low, high) = super::portable::interleave::<W>(a, b);
                let mut fast = [[0u8; 16]; 2];
                // SAFETY: the arrays have 16 bytes each.
                unsafe {
                    let (l, h) = super::sse2::interleave::<W>(
                        super::sse2::load(a.as_ptr()),
                        super::sse2::load(b.as_ptr()),
                    );
                    super::sse2::store(fast[0].as_mut_ptr(), l);
                    super::sse2::store(fast[1].as_mut_ptr(), h);
                }
                assert_eq!([low, high], fast, "{W}");
            }
            check::<1>();
            check::<2>();
            check::<4>();
            check::<8>();
        }
    }
}
use unchecked::{copy_item, grid, row, walk};
