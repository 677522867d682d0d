//! Work that is distributed in blocks to several threads, with progress reports.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::Error;
use crate::parallel::{First, beside};

/// The number of threads beyond which more of them cost too much memory for the time saved.
const MOST_THREADS: usize = 8;

/// Returns the number of threads that copy bytes.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS)
}

/// Distributes the blocks of `next` in sequence to `threads` threads, each with a state made by `own`.
///
/// `told` gets the size of finished blocks. Stops at the first error of a block, which is returned, or of
/// `told`.
///
/// The caller's thread is one of the workers, and the one that reports. If no other can be spawned it does
/// everything.
pub(crate) fn spread<T: Send, W>(
    threads: usize,
    next: impl FnMut() -> Result<Option<T>, Error> + Send,
    own: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, T) -> Result<u64, Error> + Sync,
    told: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let pieces = Mutex::new((next, 0_usize));
    let worker = || -> Worker<'_> {
        let (mut mine, pieces, work) = (own(), &pieces, &work);
        Box::new(move || {
            let (at, piece) = {
                let mut pieces = pieces.lock().unwrap_or_else(PoisonError::into_inner);
                pieces.1 += 1;
                (pieces.1, (pieces.0)())
            };
            let worth = piece.and_then(|piece| piece.map(|piece| work(&mut mine, piece)).transpose());
            (at, worth)
        })
    };
    all(threads, &worker, told)
}

/// A worker that processes the next block; returns its number, and its size if there was one.
type Worker<'a> = Box<dyn FnMut() -> (usize, Result<Option<u64>, Error>) + 'a>;

/// Runs the workers; not generic over the blocks, so that it is compiled once.
fn all<'a>(
    threads: usize,
    worker: &(dyn Fn() -> Worker<'a> + Sync),
    told: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let (done, stop, first) = (AtomicU64::new(0), AtomicBool::new(false), First::default());
    let failed = |at: usize, error: Error| {
        stop.store(true, Ordering::Relaxed);
        first.failed(at, error);
    };
    let work = |told: &mut dyn FnMut(u64) -> Result<(), Error>| {
        let mut next = worker();
        while !stop.load(Ordering::Relaxed) {
            match next() {
                (_, Ok(None)) => return,
                (at, Ok(Some(worth))) => {
                    done.fetch_add(worth, Ordering::Relaxed);
                    if let Err(error) = told(done.load(Ordering::Relaxed)) {
                        failed(at, error);
                    }
                }
                (at, Err(error)) => failed(at, error),
            }
        }
    };
    let mut before = 0;
    let mut tell = |now: u64| {
        let more = now.saturating_sub(before);
        before = now;
        told(more)
    };
    let whole = beside(threads.saturating_sub(1), &|_| work(&mut |_| Ok(())), &mut |_| work(&mut tell));
    if !whole {
        return Err(Error::internal("a working thread panicked"));
    }
    first.or(whole)?;
    tell(done.into_inner())
}

#[cfg(test)]
mod tests {
    use super::spread;
    use crate::error::Error;

    #[test]
    fn every_piece_is_done_and_told_once() {
        for threads in [1, 4] {
            let mut left = 0..100_u64;
            let mut told = 0;
            let done = spread(threads, || Ok(left.next()), || (), |(), piece| Ok(piece), &mut |worth| {
                told += worth;
                Ok(())
            });
            done.unwrap();
            assert_eq!(told, 4950);
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        for threads in [1, 4] {
            let mut left = 0..u64::MAX;
            let work = |(): &mut (), piece: u64| {
                if piece < 50 {
                    Ok(0)
                } else {
                    Err(Error::failed(crate::ErrorKind::Internal, "test", format!("piece {piece}")))
                }
            };
            let error = spread(threads, || Ok(left.next()), || (), work, &mut |_| Ok(())).unwrap_err();
            assert_eq!(error.to_string(), "piece 50");
        }
    }

    #[test]
    fn who_is_told_can_end_it() {
        for threads in [1, 4] {
            let (mut left, mut told) = (0..u64::MAX, 0);
            let done = spread(threads, || Ok(left.next()), || (), |(), _| Ok(1), &mut |_| {
                told += 1;
                if told == 3 {
                    Err(Error::failed(crate::ErrorKind::Internal, "test", "enough"))
                } else {
                    Ok(())
                }
            });
            assert_eq!((done.unwrap_err().to_string(), told), ("enough".to_owned(), 3));
        }
    }
}
