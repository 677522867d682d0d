//! The types in which a value is at hand: sets, by number, so that states are a few words each.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::elaborate::moves::TypeId;

/// A set of types in which a value is at hand, by number: equal sets have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AtHand(u32);

/// All sets that there were.
#[derive(Debug)]
pub(crate) struct Sets {
    list: Vec<Box<[TypeId]>>,
    numbers: FxHashMap<Box<[TypeId]>, AtHand>,
}

impl Sets {
    /// The empty set alone, which has the number 0.
    pub(crate) fn new() -> Sets {
        let mut sets = Sets { list: Vec::new(), numbers: FxHashMap::default() };
        sets.number(&[]);
        sets
    }

    /// The set of these, which are in the order of their numbers.
    pub(crate) fn number(&mut self, types: &[TypeId]) -> AtHand {
        if let Some(&known) = self.numbers.get(types) {
            return known;
        }
        let number = AtHand(self.list.len() as u32);
        self.list.push(types.into());
        self.numbers.insert(types.into(), number);
        number
    }

    /// The types of a set, in the order of their numbers.
    pub(crate) fn of(&self, set: AtHand) -> &[TypeId] {
        &self.list[set.0 as usize]
    }

    /// A set and these, which are not in it.
    pub(crate) fn with(&mut self, set: AtHand, more: &[TypeId]) -> AtHand {
        let mut types: SmallVec<[TypeId; 8]> = self.of(set).iter().chain(more).copied().collect();
        types.sort_unstable();
        self.number(&types)
    }
}
