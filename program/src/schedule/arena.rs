//! Where slots lie in the arena.
//!
//! ```text
//! without sharing   one behind the other
//! with              the largest first, each at the lowest place that no slot has which is there at some time with it
//! ```
//!
//! No slot ends behind the sum of those that were placed before it and itself, so that sharing never takes more.

use crate::Error;
use crate::schedule::ArenaSlice;
use crate::schedule::build::refused;

/// Every slot begins at a multiple of so many bytes.
pub(super) const ALIGNMENT: usize = 64;

/// A buffer, and the instructions for which it is there: from the first to the last, both included.
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

/// The places of all slots, and the bytes of the arena.
pub(super) fn lay_out(slots: &[Slot], share: bool) -> Result<(Vec<ArenaSlice>, usize), Error> {
    let mut order: Vec<usize> = (0..slots.len()).filter(|&slot| slots[slot].bytes > 0).collect();
    if share {
        // Of equal ones in the order in which they are made.
        order.sort_by_key(|&slot| core::cmp::Reverse(slots[slot].bytes));
    }
    let mut args = vec![ArenaSlice::default(); slots.len()];
    // Those with a place, by where they begin; each with where the next may begin.
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
                "the buffers of a rank take more than {} bytes, the most that memory can have: cut them over more ranks",
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
