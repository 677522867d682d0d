//! Interned lists: equal lists share one number, so that a reference to a list is a single integer.

use std::borrow::Borrow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// An interner of lists; numbers follow the order of insertion.
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
    /// Returns the number of a list; a new list gets the next number.
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

    /// Returns all lists, in the order of their numbers.
    pub(crate) fn all<'l, T: 'l>(&'l self) -> impl Iterator<Item = &'l [T]>
    where
        L: Borrow<[T]>,
    {
        self.list.iter().map(L::borrow)
    }

    /// Returns the list of a number.
    pub(crate) fn of<T>(&self, number: u32) -> &[T]
    where
        L: Borrow<[T]>,
    {
        self.list[number as usize].borrow()
    }
}
