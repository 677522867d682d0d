//! Work on the shards of many ranks, distributed over the processors if there is enough of it.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::Error;

/// The number of bytes below which a second thread costs more than it saves.
const WORTH_A_THREAD: usize = 1 << 20;

/// Returns the number of threads that are profitable for `bytes` bytes.
pub(crate) fn threads_for(bytes: usize) -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(bytes / WORTH_A_THREAD).max(1)
}

/// Calls `work` on every element of `items` from `threads` threads, each with a state made by `own`.
///
/// Returns the error of the first failed element, in the order of `items`.
///
/// Elements are assigned to threads round-robin, because neighbours often cost the same. If a thread cannot
/// be spawned, the caller's thread does its part.
pub(crate) fn for_each<T: Send, W>(
    threads: usize,
    items: &mut [T],
    own: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &mut T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let threads = threads.clamp(1, items.len().max(1));
    let mut parts: Vec<Mutex<Part<'_, T>>> = std::iter::repeat_with(Mutex::default).take(threads).collect();
    for (at, item) in items.iter_mut().enumerate() {
        parts[at % threads].get_mut().unwrap_or_else(PoisonError::into_inner).push((at, item));
    }
    let first = First::default();
    let all = |part: usize| {
        let (mut mine, mut part) = (own(), parts[part].lock().unwrap_or_else(PoisonError::into_inner));
        for (at, item) in part.iter_mut() {
            if let Err(error) = work(&mut mine, item) {
                return first.failed(*at, error);
            }
        }
    };
    let whole = beside(threads - 1, &all, &mut |others| {
        // The caller is thread 0, and does the parts of threads that could not be spawned.
        all(0);
        (others + 1..threads).for_each(all);
    });
    first.or(whole)
}

/// The work of one thread: elements with their indices.
type Part<'a, T> = Vec<(usize, &'a mut T)>;

/// The error of the first failed element.
#[derive(Default)]
pub(crate) struct First(Mutex<Option<(usize, Error)>>);

impl First {
    pub(crate) fn failed(&self, at: usize, error: Error) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(other, _)| at < *other) {
            *first = Some((at, error));
        }
    }

    /// Returns that error; otherwise an error if a thread panicked.
    pub(crate) fn or(self, whole: bool) -> Result<(), Error> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None if whole => Ok(()),
            None => Err(Error::internal("a working thread panicked")),
        }
    }
}

/// Calls `other` with 1, 2, .. on separate threads, and `mine` with their number.
///
/// Spawns threads until there are `most`, or until spawning fails. Returns `true` if none panicked.
///
/// It is not generic over the work, so that the code for threads is compiled once.
pub(crate) fn beside(most: usize, other: &(dyn Fn(usize) + Sync), mine: &mut dyn FnMut(usize)) -> bool {
    thread::scope(|scope| {
        let others: Vec<_> = (1..=most)
            .map_while(|number| thread::Builder::new().spawn_scoped(scope, move || other(number)).ok())
            .collect();
        mine(others.len());
        // Every thread is joined, even if one before it panicked.
        others.into_iter().map(|other| other.join().is_err()).filter(|panicked| *panicked).count() == 0
    })
}
