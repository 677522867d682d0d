//! Work on many ranks' shards, spread over the processors where there is enough of it.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::Error;

/// Below so many bytes a second thread costs more than it saves.
const WORTH_A_THREAD: usize = 1 << 20;

/// How many threads so many bytes are worth.
pub(crate) fn threads_for(bytes: usize) -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(bytes / WORTH_A_THREAD).max(1)
}

/// Calls `work` on every item, on so many threads, with what each thread has made for itself by `own`; the error of the
/// first item that has one, in the order of items.
///
/// Threads take items in turns, since neighbours are often alike. Where no thread can be had, the caller's does its part.
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
        // The caller is one of the threads, and does what those would have done that are not there.
        all(0);
        (others + 1..threads).for_each(all);
    });
    first.or(whole)
}

/// What one thread does: items with their places.
type Part<'a, T> = Vec<(usize, &'a mut T)>;

/// The error of the first item that has one.
#[derive(Default)]
pub(crate) struct First(Mutex<Option<(usize, Error)>>);

impl First {
    pub(crate) fn failed(&self, at: usize, error: Error) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(other, _)| at < *other) {
            *first = Some((at, error));
        }
    }

    /// That error; else one of threads that did not all come to their end.
    pub(crate) fn or(self, whole: bool) -> Result<(), Error> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None if whole => Ok(()),
            None => Err(Error::failed("internal", "a working thread panicked")),
        }
    }
}

/// Calls `other` with 1, 2, .., each on a thread, until there are `most` or no more can be had, and `mine` with how many there are.
/// Returns whether all came to their end.
///
/// It knows nothing of the work, so that threads are compiled once.
pub(crate) fn beside(most: usize, other: &(dyn Fn(usize) + Sync), mine: &mut dyn FnMut(usize)) -> bool {
    thread::scope(|scope| {
        let others: Vec<_> = (1..=most)
            .map_while(|number| thread::Builder::new().spawn_scoped(scope, move || other(number)).ok())
            .collect();
        mine(others.len());
        // Each is waited for, whatever the one before did.
        others.into_iter().map(|other| other.join().is_err()).filter(|panicked| *panicked).count() == 0
    })
}
