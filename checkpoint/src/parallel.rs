//! Work on many ranks' shards, spread over the processors where there is enough of it.

use std::num::NonZero;
use std::thread;

use crate::error::Error;

/// Below so many bytes a second thread costs more than it saves.
const WORTH_A_THREAD: usize = 1 << 20;

/// How many threads so many bytes are worth.
pub(crate) fn threads_for(bytes: usize) -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(bytes / WORTH_A_THREAD).max(1)
}

/// Calls `work` on every item, on so many threads; the error of the first item that has one, in the order of items.
pub(crate) fn for_each<T: Send>(
    threads: usize,
    items: &mut [T],
    work: impl Fn(&mut T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    if threads <= 1 || items.len() <= 1 {
        return items.iter_mut().try_for_each(work);
    }
    let work = &work;
    thread::scope(|scope| {
        let parts = items.chunks_mut(items.len().div_ceil(threads));
        let handles: Vec<_> =
            parts.map(|part| scope.spawn(move || part.iter_mut().try_for_each(work))).collect();
        handles.into_iter().try_for_each(|handle| {
            handle.join().unwrap_or_else(|_| Err(Error::failed("internal", "a working thread panicked")))
        })
    })
}
