//! Assigns arena offsets to buffer slots.
//!
//! ```text
//! without sharing   contiguous
//! with sharing      largest first, each at the lowest offset that is free of slots live at the same time
//! ```
//!
//! A slot never ends above the sum of its bytes and of those assigned before it, so sharing never needs more
//! memory.

use crate::Error;
use crate::schedule::ArenaSlice;
use crate::schedule::build::refused;

/// The alignment of slots, in bytes.
pub(super) const ALIGNMENT: usize = 64;

/// A buffer and its lifetime: the first and the last instruction, both included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) bytes: usize,
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Slot {
    fn meets(&self, other: &Slot) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Returns the offsets of all slots, and the bytes of the arena.
pub(super) fn lay_out(slots: &[Slot], share: bool) -> Result<(Vec<ArenaSlice>, usize), Error> {
    let mut order: Vec<usize> = (0..slots.len()).filter(|&slot| slots[slot].bytes > 0).collect();
    if share {
        // The sort is stable: equal slots stay in the order in which they were created.
        order.sort_by_key(|&slot| core::cmp::Reverse(slots[slot].bytes));
    }
    let mut args = vec![ArenaSlice::default(); slots.len()];
    // Assigned slots by start offset, each with the first offset after it.
    let mut placed: Vec<(usize, usize, Slot)> = Vec::with_capacity(order.len());
    let mut all = 0;
    for at in order {
        let slot = slots[at];
        let mut start: usize = if share { 0 } else { all };
        if share {
            for (begin, end, other) in &placed {
                if *begin >= start.saturating_add(slot.bytes) {
                    break;
                }
                if slot.meets(other) {
                    start = start.max(*end);
                }
            }
        }
        let end = start.checked_add(slot.bytes).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        let end = end.filter(|&end| isize::try_from(end).is_ok()).ok_or_else(|| {
            refused(format!(
                "the buffers of a rank take more than {} bytes, the limit of the address space; shard them over more ranks",
                isize::MAX
            ))
        })?;
        args[at] = ArenaSlice { offset: start, bytes: slot.bytes };
        let behind = placed.partition_point(|(begin, _, _)| *begin <= start);
        placed.insert(behind, (start, end, slot));
        all = all.max(end);
    }
    Ok((args, all))
}
