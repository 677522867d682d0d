//! Registers of 16 bytes: transposes of `16 / W` rows of `16 / W` elements, and whole lines.
//!
//! The rows pass `log2(16 / W)` perfect shuffles: row `2i` and `2i + 1` become the low and the high halves of
//! rows `i` and `i + n/2` interleaved, which rotates the bits of (row, element) by one; after `log2 n`
//! rotations they are swapped.

#![allow(
    unsafe_code,
    reason = "register loads and stores; pointers in range by the contract of `host::unchecked`"
)]
#![allow(clippy::inline_always, reason = "single instructions")]

#[cfg(not(target_arch = "x86_64"))]
use portable::{Register, fence_all, interleave, load, prefetch_line, store, store_past_caches};
#[cfg(target_arch = "x86_64")]
use sse2::{Register, fence_all, interleave, load, prefetch_line, store, store_past_caches};

use crate::host::LINE;

/// Bytes of a register, and the side of a small tile.
pub(crate) const REGISTER: usize = 16;

/// Makes stores that bypass the caches visible before later accesses.
pub(super) fn fence() {
    fence_all();
}

/// Requests the line of an address, which may be any, for a tile of elements of `W` bytes.
///
/// Tiles of elements of one byte have 64 lines, more than the first cache can await.
#[inline(always)]
pub(super) fn prefetch<const W: usize>(src: *const u8) {
    if W == 1 { prefetch_line::<false>(src) } else { prefetch_line::<true>(src) }
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

/// Copies a line; bypasses the caches only for an aligned line.
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
    pub(super) fn prefetch_line<const FIRST: bool>(src: *const u8) {
        // SAFETY: every x86-64 processor has SSE, and a prefetch of any address is allowed.
        unsafe {
            if FIRST {
                x86::_mm_prefetch::<{ x86::_MM_HINT_T0 }>(src.cast());
            } else {
                x86::_mm_prefetch::<{ x86::_MM_HINT_T1 }>(src.cast());
            }
        }
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
    pub(super) fn prefetch_line<const FIRST: bool>(_: *const u8) {}

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
