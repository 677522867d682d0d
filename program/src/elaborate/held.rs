//! The price of memory: a part of the cost of a choice for each byte that it holds at the turn from forward to
//! backward.
//!
//! ```text
//! open input      the cheapest way to keep it for the type in which ops take it              see `keeps`
//! saved operand   min( price bytes(taken)                                                     it is held
//!                      price bytes(t) + redistribution t -> taken                             another copy is held
//!                      forward of the op that makes it as t + redistribution t -> taken )     it is computed again
//! saved result    min( price bytes,  forward of the op )
//! ```

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::elaborate::at_hand::AtHand;
use crate::elaborate::moves::TypeId;
use crate::elaborate::ways::Looked;
use crate::graph::ValueId;

/// A price of memory, in 1/1024 of a picosecond per byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemoryPrice(pub(crate) u64);

impl MemoryPrice {
    /// Returns the cost of some bytes in picoseconds, rounded down.
    pub(crate) fn of(self, bytes: u64) -> u64 {
        u64::try_from((u128::from(bytes) * u128::from(self.0)) >> 10).unwrap_or(u64::MAX)
    }
}

/// An operand that backward reads, and that counts with this op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Saved {
    /// The operand: inputs, then outputs.
    pub(crate) operand: usize,
    /// The statement that makes it, and the number of its output.
    pub(crate) made: (usize, usize),
    /// The least time to have the operands of that again, in picoseconds.
    pub(crate) before: u64,
}

/// The saved operands of an op, and the price of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SavedOperands {
    pub(crate) price: MemoryPrice,
    pub(crate) saved: SmallVec<[SavedOperand; 2]>,
    /// Each operand that is an open input, with the cost of keeping it for each type.
    pub(crate) kept: KeptOperands,
}

/// A saved operand, with the least times to make it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SavedOperand {
    /// The operand: inputs, then outputs.
    pub(crate) operand: usize,
    /// The times by the type in which an earlier op makes it.
    pub(crate) again: Vec<(TypeId, u64)>,
    /// For a result of the op itself: the time beyond that of the op, and `true` if the op's own counts.
    pub(crate) own: Option<(u64, bool)>,
}

/// The operands of an op that are open inputs, each with the cost of keeping it for each type.
pub(crate) type KeptOperands = SmallVec<[(usize, Arc<[(TypeId, u64)]>); 2]>;

impl SavedOperands {
    /// Returns `true` if the op holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.saved.is_empty() && self.kept.is_empty()
    }
}

impl HeldAtPrice {
    /// Returns the saved operands of a statement, after the strategies of all before it.
    pub(crate) fn saved_at(&self, n: usize, looked: &[Option<Arc<Looked>>]) -> SavedOperands {
        let again = |saved: &Saved| {
            let (at, output) = saved.made;
            // One call makes all outputs: it counts with the first.
            let is_first = output == 0;
            let own = (at == n).then_some((saved.before, is_first));
            let mut times: Vec<(TypeId, u64)> = Vec::new();
            for way in looked.get(at).into_iter().flatten().flat_map(|looked| &looked.list) {
                let Some(&is) = way.outputs.get(output) else { continue };
                let time = if is_first { way.forward.saturating_add(saved.before) } else { 0 };
                match times.iter_mut().find(|(known, _)| *known == is) {
                    Some((_, least)) => *least = time.min(*least),
                    None => times.push((is, time)),
                }
            }
            SavedOperand { operand: saved.operand, again: times, own }
        };
        let saved = self.saved.get(n).into_iter().flatten().map(again).collect();
        SavedOperands { price: self.price, saved, kept: self.kept.get(n).cloned().unwrap_or_default() }
    }
}

/// The role of an open input in the search.
#[derive(Debug)]
pub(crate) enum OpenInput {
    /// The result of an op with these strategies.
    Choices(Arc<Looked>),
    /// A value that is available in these types; the cost of one is a part of the only op that takes it.
    ///
    /// So no redistribution after it avoids the price of its copy.
    ForOne(AtHand),
}

/// The operands that a segment holds, at a price of memory.
#[derive(Debug, Default)]
pub(crate) struct HeldAtPrice {
    /// The open inputs that the segment takes.
    pub(crate) inputs: FxHashMap<ValueId, OpenInput>,
    /// For each statement, the operands that it alone takes; see [`OpenInput::ForOne`].
    pub(crate) kept: Vec<KeptOperands>,
    pub(crate) price: MemoryPrice,
    /// The saved operands of each statement.
    pub(crate) saved: Vec<Vec<Saved>>,
}
