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
/// Where no thread can be had, the caller's does its part.
pub(crate) fn for_each<T: Send, W>(
    threads: usize,
    items: &mut [T],
    own: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &mut T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let all = |items: &mut [T]| {
        let mut mine = own();
        items.iter_mut().try_for_each(|item| work(&mut mine, item))
    };
    if threads <= 1 || items.len() <= 1 {
        return all(items);
    }
    let all = &all;
    thread::scope(|scope| {
        let each = items.len().div_ceil(threads);
        let (mine, others) = items.split_at_mut(each);
        let handles: Vec<_> = others.chunks_mut(each).map(|part| begin(scope, part, all)).collect();
        // The caller is one of the threads.
        let done = all(mine);
        handles.into_iter().fold(done, |done, outcome| done.and(outcome.end()))
    })
}

/// A part of the work, on a thread of its own or done already.
enum Part<'scope> {
    Begun(ScopedJoinHandle<'scope, Result<(), Error>>),
    Done(Result<(), Error>),
}

fn begin<'scope, T: Send>(
    scope: &'scope Scope<'scope, '_>,
    part: &'scope mut [T],
    all: &'scope (impl Fn(&mut [T]) -> Result<(), Error> + Sync),
) -> Part<'scope> {
    // A thread that is refused takes the closure with it, so the part stays where both can reach it.
    let part = Arc::new(Mutex::new(part));
    let given = Arc::clone(&part);
    let work = move || all(&mut given.lock().unwrap_or_else(PoisonError::into_inner));
    match thread::Builder::new().spawn_scoped(scope, work) {
        Ok(handle) => Part::Begun(handle),
        Err(_) => Part::Done(all(&mut part.lock().unwrap_or_else(PoisonError::into_inner))),
    }
}

impl Part<'_> {
    fn end(self) -> Result<(), Error> {
        match self {
            Self::Begun(handle) => {
                handle.join().unwrap_or_else(|_| Err(Error::failed("internal", "a working thread panicked")))
            }
            Self::Done(outcome) => outcome,
        }
    }
}
