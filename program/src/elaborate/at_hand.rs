//! The types in which a value is at hand: sets, by number, so that states are a few words each.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::elaborate::moves::TypeId;
use crate::elaborate::numbered::Numbered;

/// A set of types in which a value is at hand, by number: equal sets, in the order of their types, have one. A [list in another order](Sets::behind) has
/// another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AtHand(u32);

/// Where values are at hand that come from outside, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside(Vec<Option<AtHand>>);

impl Outside {
    /// Where a value is at hand, if it comes from outside.
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

/// By value, in order.
impl FromIterator<Option<AtHand>> for Outside {
    fn from_iter<I: IntoIterator<Item = Option<AtHand>>>(values: I) -> Outside {
        Outside(values.into_iter().collect())
    }
}

/// All sets and lists that there were.
#[derive(Debug)]
pub(crate) struct Sets {
    lists: Numbered<Box<[TypeId]>>,
    /// What two came to.
    joined: FxHashMap<(AtHand, AtHand), AtHand>,
    behind: FxHashMap<(AtHand, AtHand), AtHand>,
}

impl Sets {
    /// The empty set alone, which has the number 0.
    pub(crate) fn new() -> Sets {
        let (joined, behind) = (FxHashMap::default(), FxHashMap::default());
        let mut sets = Sets { lists: Numbered::default(), joined, behind };
        sets.number(&[]);
        sets
    }

    /// The set of these, which are in the order of their numbers.
    pub(crate) fn number(&mut self, types: &[TypeId]) -> AtHand {
        AtHand(self.lists.number(types))
    }

    /// The types of a set, in the order of their numbers, or of a list.
    pub(crate) fn of(&self, set: AtHand) -> &[TypeId] {
        self.lists.of(set.0)
    }

    /// A set and these, which are not in it.
    pub(crate) fn with(&mut self, set: AtHand, more: &[TypeId]) -> AtHand {
        let mut types: SmallVec<[TypeId; 16]> = self.of(set).iter().chain(more).copied().collect();
        types.sort_unstable();
        self.number(&types)
    }

    /// The set of what is in one or the other, which are sets.
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

    /// A list, which need not be in order, and behind it those of another that are not in it.
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
