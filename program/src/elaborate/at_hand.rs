//! Interned sets of the types in which a value is available, so that a state is a few words.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::elaborate::moves::TypeId;
use crate::elaborate::numbered::Numbered;

/// An interned set of available types; equal sets, sorted by type, have one number.
///
/// A [list in another order](Sets::behind) has a different number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AtHand(u32);

/// The available types of values from outside, by value number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside(Vec<Option<AtHand>>);

impl Outside {
    /// Returns the available types of a value, or `None` if it does not come from outside.
    pub(crate) fn of(&self, value: usize) -> Option<AtHand> {
        self.0.get(value).copied().flatten()
    }

    pub(crate) fn put(&mut self, value: usize, at_hand: AtHand) {
        if self.0.len() <= value {
            self.0.resize(value + 1, None);
        }
        self.0[value] = Some(at_hand);
    }
}

/// All interned sets and lists.
#[derive(Debug)]
pub(crate) struct Sets {
    lists: Numbered<Box<[TypeId]>>,
    /// Cached results of `join`; `behind` has those of the method of that name.
    joined: FxHashMap<(AtHand, AtHand), AtHand>,
    behind: FxHashMap<(AtHand, AtHand), AtHand>,
}

impl Sets {
    /// Returns a table with the empty set only, which has the number 0.
    pub(crate) fn new() -> Sets {
        let (joined, behind) = (FxHashMap::default(), FxHashMap::default());
        let mut sets = Sets { lists: Numbered::default(), joined, behind };
        sets.number(&[]);
        sets
    }

    /// Interns the set of these types, which must be sorted.
    pub(crate) fn number(&mut self, types: &[TypeId]) -> AtHand {
        AtHand(self.lists.number(types))
    }

    /// Returns the types of a set, sorted, or of a list, in its order.
    pub(crate) fn of(&self, set: AtHand) -> &[TypeId] {
        self.lists.of(set.0)
    }

    /// Returns a set with `more` added, none of which it contains.
    pub(crate) fn with(&mut self, set: AtHand, more: &[TypeId]) -> AtHand {
        let mut types: SmallVec<[TypeId; 16]> = self.of(set).iter().chain(more).copied().collect();
        types.sort_unstable();
        self.number(&types)
    }

    /// Returns the union of two sets.
    pub(crate) fn join(&mut self, a: AtHand, b: AtHand) -> AtHand {
        if a == b || b == AtHand::default() {
            return a;
        }
        if let Some(&known) = self.joined.get(&(a, b)) {
            return known;
        }
        let mut types: SmallVec<[TypeId; 16]> = self.of(a).iter().chain(self.of(b)).copied().collect();
        types.sort_unstable();
        types.dedup();
        let joined = self.number(&types);
        self.joined.insert((a, b), joined);
        joined
    }

    /// Returns the list `a`, in any order, followed by the elements of `b` that are not in it.
    pub(crate) fn behind(&mut self, a: AtHand, b: AtHand) -> AtHand {
        if let Some(&known) = self.behind.get(&(a, b)) {
            return known;
        }
        let mut types: SmallVec<[TypeId; 64]> = self.of(a).into();
        for is in self.of(b) {
            if !types.contains(is) {
                types.push(*is);
            }
        }
        let list = self.number(&types);
        self.behind.insert((a, b), list);
        list
    }
}
