//! Lists by number, so that what holds one is a word: equal ones have one.

use std::borrow::Borrow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Lists that there were, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Numbered<L> {
    list: Vec<L>,
    numbers: FxHashMap<L, u32>,
}

impl<L> Default for Numbered<L> {
    fn default() -> Numbered<L> {
        Numbered { list: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<L> Numbered<L> {
    /// The number of a list; a new one has the next.
    pub(crate) fn number<T: Eq + Hash>(&mut self, list: &[T]) -> u32
    where
        L: Borrow<[T]> + Clone + Eq + Hash + for<'l> From<&'l [T]>,
    {
        if let Some(&known) = self.numbers.get(list) {
            return known;
        }
        let number = self.list.len() as u32;
        let own = L::from(list);
        self.list.push(own.clone());
        self.numbers.insert(own, number);
        number
    }

    /// All lists, by number.
    pub(crate) fn all<'l, T: 'l>(&'l self) -> impl Iterator<Item = &'l [T]>
    where
        L: Borrow<[T]>,
    {
        self.list.iter().map(L::borrow)
    }

    /// The list of a number.
    pub(crate) fn of<T>(&self, number: u32) -> &[T]
    where
        L: Borrow<[T]>,
    {
        self.list[number as usize].borrow()
    }
}
