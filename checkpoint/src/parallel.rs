//! Work on many ranks' shards, spread over the processors where there is enough of it.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

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
    let mut parts: Vec<Part<'_, T>> = std::iter::repeat_with(Vec::new).take(threads).collect();
    for (at, item) in items.iter_mut().enumerate() {
        parts[at % threads].push((at, item));
    }
    let all = |part: &mut Part<'_, T>| -> Outcome {
        let mut mine = own();
        part.iter_mut().try_for_each(|(at, item)| work(&mut mine, item).map_err(|error| (*at, error)))
    };
    let all = &all;
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let mut parts = parts.into_iter();
        let mut mine = parts.next().unwrap_or_default();
        let others: Vec<_> = parts.map(|part| begin(scope, part, all)).collect();
        // The caller is one of the threads.
        let done = all(&mut mine);
        others.into_iter().map(Begun::end).chain([done]).collect()
    });
    match outcomes.into_iter().filter_map(Result::err).min_by_key(|(at, _)| *at) {
        None => Ok(()),
        Some((_, error)) => Err(error),
    }
}

/// What one thread does: items with their places.
type Part<'a, T> = Vec<(usize, &'a mut T)>;

/// How a part went; an error with the place of its item.
type Outcome = Result<(), (usize, Error)>;

/// A part of the work, on a thread of its own or done already.
enum Begun<'scope> {
    Running(ScopedJoinHandle<'scope, Outcome>),
    Done(Outcome),
}

fn begin<'scope, 'a: 'scope, T: Send>(
    scope: &'scope Scope<'scope, '_>,
    part: Part<'a, T>,
    all: &'scope (impl Fn(&mut Part<'a, T>) -> Outcome + Sync),
) -> Begun<'scope> {
    // A thread that is refused takes the closure with it, so the part stays where both can reach it.
    let part = Arc::new(Mutex::new(part));
    let given = Arc::clone(&part);
    let work = move || all(&mut given.lock().unwrap_or_else(PoisonError::into_inner));
    match thread::Builder::new().spawn_scoped(scope, work) {
        Ok(handle) => Begun::Running(handle),
        Err(_) => Begun::Done(all(&mut part.lock().unwrap_or_else(PoisonError::into_inner))),
    }
}

impl Begun<'_> {
    fn end(self) -> Outcome {
        match self {
            Self::Running(handle) => handle.join().unwrap_or_else(|_| {
                Err((usize::MAX, Error::failed("internal", "a working thread panicked")))
            }),
            Self::Done(outcome) => outcome,
        }
    }
}
