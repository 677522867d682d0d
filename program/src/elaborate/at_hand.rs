//! The types in which a value is at hand: sets, by number, so that states are a few words each.

use smallvec::SmallVec;

use crate::elaborate::moves::TypeId;
use crate::elaborate::numbered::Numbered;

/// A set of types in which a value is at hand, by number: equal sets have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AtHand(u32);

/// All sets that there were.
#[derive(Debug)]
pub(crate) struct Sets(Numbered<Box<[TypeId]>>);

impl Sets {
    /// The empty set alone, which has the number 0.
    pub(crate) fn new() -> Sets {
        let mut sets = Sets(Numbered::default());
        sets.number(&[]);
        sets
    }

    /// The set of these, which are in the order of their numbers.
    pub(crate) fn number(&mut self, types: &[TypeId]) -> AtHand {
        AtHand(self.0.number(types))
    }

    /// The types of a set, in the order of their numbers.
    pub(crate) fn of(&self, set: AtHand) -> &[TypeId] {
        self.0.of(set.0)
    }

    /// A set and these, which are not in it.
    pub(crate) fn with(&mut self, set: AtHand, more: &[TypeId]) -> AtHand {
        let mut types: SmallVec<[TypeId; 8]> = self.of(set).iter().chain(more).copied().collect();
        types.sort_unstable();
        self.number(&types)
    }
}
