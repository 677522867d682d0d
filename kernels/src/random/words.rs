//! Words of many indices at once: loops over arrays, so that they are vectorised.

use super::key::Key;
use super::philox;
use super::threefry::threefry2x32;
use multiversion::multiversion;
use reshard_layout::IndexRun;

/// Number of elements per block: their words and the results stay in the nearest cache.
pub(super) const BLOCK: usize = 256;

/// The indices of up to [`BLOCK`] elements, with the halves in separate arrays.
///
/// A loop over words of 32 bits processes twice as many at once as one over 64.
pub(super) struct Block {
    /// The number of indices.
    pub(super) len: usize,
    high: [u32; BLOCK],
    low: [u32; BLOCK],
    /// The first index, if there are [`BLOCK`] consecutive ones.
    dense: Option<u64>,
}

impl Block {
    /// Visits runs block by block, in order.
    pub(super) fn each(runs: impl Iterator<Item = IndexRun>, mut visit: impl FnMut(&Block)) {
        let mut block = Block { len: 0, high: [0; BLOCK], low: [0; BLOCK], dense: None };
        for mut run in runs {
            while run.len > 0 {
                let len = run.len.min((BLOCK - block.len) as u64) as usize;
                block.append(run.start, run.stride, len);
                // The last start of all may overflow, but then no index remains.
                run.start = run.start.wrapping_add((len as u64).wrapping_mul(run.stride));
                run.len -= len as u64;
                if block.len == BLOCK {
                    visit(&block);
                    (block.len, block.dense) = (0, None);
                }
            }
        }
        if block.len > 0 {
            visit(&block);
        }
    }

    /// Adds indices, for which the block must have space.
    #[inline(always)]
    fn append(&mut self, start: u64, stride: u64, len: usize) {
        let places = self.len..self.len + len;
        let last = start.wrapping_add((len as u64 - 1).wrapping_mul(stride));
        if len > 8 && start >> 32 == last >> 32 {
            let (first, step) = (start as u32, stride as u32);
            for (i, low) in self.low[places.clone()].iter_mut().enumerate() {
                *low = first.wrapping_add((i as u32).wrapping_mul(step));
            }
            self.high[places].fill((start >> 32) as u32);
            self.dense = (len == BLOCK && stride == 1).then_some(start);
        } else {
            let mut index = start;
            for (high, low) in self.high[places.clone()].iter_mut().zip(&mut self.low[places]) {
                (*high, *low) = ((index >> 32) as u32, index as u32);
                index = index.wrapping_add(stride);
            }
        }
        self.len += len;
    }

    /// Returns the number of slots to compute: slots past the length are ignored.
    fn used(&self) -> usize {
        self.len.next_multiple_of(16).min(BLOCK)
    }

    fn index(&self, i: usize) -> u64 {
        joined(self.high[i], self.low[i])
    }
}

#[inline(always)]
fn joined(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Computes philox's words of every index; a counter has `PER` of them.
#[inline(always)]
fn philox<W: Copy, const PER: usize>(
    (seed, offset): (u64, u64),
    block: &Block,
    out: &mut [W; BLOCK],
    of: impl Fn([u32; 4]) -> [W; PER],
) {
    let per = PER as u64;
    match block.dense {
        Some(start) if start.is_multiple_of(per) => {
            let first = offset.wrapping_add(start / per);
            for (i, out) in out.as_chunks_mut::<PER>().0.iter_mut().enumerate() {
                *out = of(philox::block(seed, first.wrapping_add(i as u64)));
            }
        }
        Some(_) | None => {
            for (i, out) in out[..block.len].iter_mut().enumerate() {
                let index = block.index(i);
                *out = of(philox::block(seed, offset.wrapping_add(index / per)))[(index % per) as usize];
            }
        }
    }
}

/// Computes threefry's two words of every index, with the best vectors of the machine.
///
/// The rounds take nearly all of the time of a draw.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2"))]
fn threefry(key: [u32; 2], indices: (&[u32], &[u32]), words: (&mut [u32], &mut [u32])) {
    let indices = indices.0.iter().zip(indices.1);
    for ((upper, lower), (&high, &low)) in words.0.iter_mut().zip(words.1).zip(indices) {
        [*upper, *lower] = threefry2x32(key, [high, low]);
    }
}

/// Computes 32 bits of every index of the block.
pub(super) fn words32(key: &Key, block: &Block, out: &mut [u32; BLOCK]) {
    match *key {
        Key::Threefry(key) => {
            let used = block.used();
            let mut lower = [0; BLOCK];
            threefry(key, (&block.high[..used], &block.low[..used]), (&mut out[..used], &mut lower[..used]));
            for (out, &lower) in out.iter_mut().zip(&lower) {
                *out ^= lower;
            }
        }
        Key::Philox { seed, offset } => philox((seed, offset), block, out, |words| words),
    }
}

/// Computes 64 bits of every index of the block.
pub(super) fn words64(key: &Key, block: &Block, out: &mut [u64; BLOCK]) {
    match *key {
        Key::Threefry(key) => {
            let used = block.used();
            let (mut upper, mut lower) = ([0; BLOCK], [0; BLOCK]);
            let words = (&mut upper[..used], &mut lower[..used]);
            threefry(key, (&block.high[..used], &block.low[..used]), words);
            for (out, (&high, &low)) in out.iter_mut().zip(upper.iter().zip(&lower)) {
                *out = joined(high, low);
            }
        }
        Key::Philox { seed, offset } => {
            philox((seed, offset), block, out, |[a, b, c, d]| [joined(a, b), joined(c, d)]);
        }
    }
}
