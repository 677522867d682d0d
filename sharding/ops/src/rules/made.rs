//! Cache of the results of calls: graphs repeat the same calls on the same shapes, as in equal layers.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::{PoisonError, RwLock};

use reshard_planner::internal::{WordHasher, WordMap};

use crate::rules::call::OpCall;

/// The capacity; when it is exceeded, the cache is emptied.
const MOST: usize = 1 << 12;

/// A call on inputs of these shapes, and its result.
#[derive(Debug)]
struct Entry<A> {
    call: OpCall,
    inputs: Vec<Vec<usize>>,
    answer: A,
}

/// Results of calls on shapes, by their hashes.
///
/// Evicted results are computed again; a clone is empty.
pub(crate) struct Made<A>(RwLock<WordMap<u64, Vec<Entry<A>>>>);

impl<A> Default for Made<A> {
    fn default() -> Made<A> {
        Made(RwLock::default())
    }
}

impl<A> Clone for Made<A> {
    fn clone(&self) -> Made<A> {
        Made::default()
    }
}

impl<A> core::fmt::Debug for Made<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("answers")
    }
}

impl<A: Clone> Made<A> {
    /// Returns the cached result, or computes it; errors are not cached.
    pub(crate) fn of<E>(
        &self,
        call: &OpCall,
        inputs: &[&[usize]],
        find: impl FnOnce() -> Result<A, E>,
    ) -> Result<A, E> {
        let hash = BuildHasherDefault::<WordHasher>::default().hash_one((call, inputs));
        let is_it = |entry: &&Entry<A>| {
            entry.call == *call
                && entry.inputs.len() == inputs.len()
                && entry.inputs.iter().zip(inputs).all(|(a, b)| a == b)
        };
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = known.get(&hash).and_then(|list| list.iter().find(is_it)) {
            return Ok(entry.answer.clone());
        }
        drop(known);
        let answer = find()?;
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        let inputs = inputs.iter().map(|shape| shape.to_vec()).collect();
        known.entry(hash).or_default().push(Entry { call: call.clone(), inputs, answer: answer.clone() });
        Ok(answer)
    }

    /// Empties the cache, because the table has other ops now.
    pub(crate) fn forget(&mut self) {
        *self = Made::default();
    }
}
