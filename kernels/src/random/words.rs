//! Words of many indices at once: loops over arrays, so that they are vectorised.

use super::key::Key;
use super::philox;
use super::threefry::threefry2x32;
use reshard_layout::IndexRun;

/// How many elements are made at once: their words and what becomes of them stay in the nearest cache.
pub(super) const BLOCK: usize = 256;

/// The indices of up to [`BLOCK`] elements.
pub(super) struct Block {
    /// How many there are.
    pub(super) len: usize,
    /// The first, where the others follow it one by one.
    dense: Option<u64>,
    /// Where they do not, all of them.
    indices: [u64; BLOCK],
}

impl Block {
    /// Goes through runs block by block, in order.
    pub(super) fn each(runs: impl Iterator<Item = IndexRun>, mut visit: impl FnMut(&Block)) {
        let mut block = Block { len: 0, dense: None, indices: [0; BLOCK] };
        for mut run in runs {
            while run.len > 0 {
                let len = run.len.min((BLOCK - block.len) as u64);
                if block.len == 0 && run.stride == 1 && len == BLOCK as u64 {
                    block.dense = Some(run.start);
                } else {
                    let mut index = run.start;
                    for slot in &mut block.indices[block.len..block.len + len as usize] {
                        *slot = index;
                        index = index.wrapping_add(run.stride);
                    }
                }
                block.len += len as usize;
                // The last start of all may not fit, and then nothing is left.
                run.start = run.start.wrapping_add(len.wrapping_mul(run.stride));
                run.len -= len;
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

    /// All slots that are worth computing: what is left over is not looked at.
    fn used(&self) -> usize {
        self.len.next_multiple_of(16).min(BLOCK)
    }
}

/// Threefry's two words of every index, made one.
#[inline(always)]
fn threefry<W>(key: [u32; 2], block: &Block, out: &mut [W; BLOCK], joined: impl Fn([u32; 2]) -> W) {
    match block.dense {
        Some(start) if start >> 32 == (start + (BLOCK - 1) as u64) >> 32 => {
            let (high, low) = ((start >> 32) as u32, start as u32);
            for (i, out) in out.iter_mut().enumerate() {
                *out = joined(threefry2x32(key, [high, low + i as u32]));
            }
        }
        Some(start) => {
            for (i, out) in out.iter_mut().enumerate() {
                let index = start + i as u64;
                *out = joined(threefry2x32(key, [(index >> 32) as u32, index as u32]));
            }
        }
        None => {
            let used = block.used();
            for (out, &index) in out[..used].iter_mut().zip(&block.indices[..used]) {
                *out = joined(threefry2x32(key, [(index >> 32) as u32, index as u32]));
            }
        }
    }
}

/// Philox's words of every index, of which a counter has `PER`.
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
        Some(start) => {
            for (i, out) in out.iter_mut().enumerate() {
                let index = start + i as u64;
                *out = of(philox::block(seed, offset.wrapping_add(index / per)))[(index % per) as usize];
            }
        }
        None => {
            let used = block.used();
            for (out, &index) in out[..used].iter_mut().zip(&block.indices[..used]) {
                *out = of(philox::block(seed, offset.wrapping_add(index / per)))[(index % per) as usize];
            }
        }
    }
}

/// 32 bits of every index of the block.
pub(super) fn words32(key: &Key, block: &Block, out: &mut [u32; BLOCK]) {
    match *key {
        Key::Threefry(key) => threefry(key, block, out, |[a, b]| a ^ b),
        Key::Philox { seed, offset } => philox((seed, offset), block, out, |words| words),
    }
}

/// 64 bits of every index of the block.
pub(super) fn words64(key: &Key, block: &Block, out: &mut [u64; BLOCK]) {
    let joined = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    match *key {
        Key::Threefry(key) => threefry(key, block, out, |[a, b]| joined(a, b)),
        Key::Philox { seed, offset } => {
            philox((seed, offset), block, out, |[a, b, c, d]| [joined(a, b), joined(c, d)]);
        }
    }
}
