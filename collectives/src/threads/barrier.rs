//! The rendezvous of the threads engine, where ranks read each other's buffers, and its thread pool.
//!
//! This is the only file of the crate with unsafe code. Two things are lent across threads beyond what
//! lifetimes can express:
//!
//! * a rank's source, for as long as the rank is inside [`Seat::while_showing`]. Readers hold the seat's read
//!   lock while they read it. The owner, on every exit path (also while it panics), takes the write lock to
//!   hide it again, and so waits for the active readers. A later reader finds nothing;
//! * the job of a [`Workshop::run`], which returns only when every worker has finished with it.

#![allow(unsafe_code, reason = "buffers and jobs are lent to other threads for the length of a call")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// The state of one rank in a group.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Seat {
    /// The number of exchanges and barriers of the group at which the rank has arrived.
    pub(super) arrivals: AtomicU64,
    /// The last of them in which it has completed all its reads.
    pub(super) departures: AtomicU64,
    /// The number of completed reads by other ranks, over all exchanges.
    pub(super) reads: AtomicU64,
    /// The tag of the rank's plan, while ranks compare.
    pub(super) agreed: AtomicU64,
    shown: RwLock<Option<Shown>>,
    /// Copies of small sources, of even and of odd exchanges.
    ///
    /// A rank that arrives at the next exchange but one has read them.
    mail: [RwLock<Mail>; 2],
}

/// A copy of a source, and its exchange.
#[derive(Debug, Default)]
struct Mail {
    number: u64,
    tag: u64,
    bytes: Vec<u8>,
}

/// A published source, and its exchange.
#[derive(Debug)]
struct Shown {
    source: *const [u8],
    number: u64,
    tag: u64,
    wanted: u64,
}

// SAFETY: the pointer is dereferenced only in `Seat::look`, under the lock, while the bytes are borrowed and unchanged.
unsafe impl Send for Shown {}
// SAFETY: as above; the bytes are only read.
unsafe impl Sync for Shown {}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look<R> {
    /// The source, with the count of reads at which the owner must be woken if it waits for its readers.
    Found { result: R, wanted: Option<u64> },
    /// A source of another plan.
    Other,
    /// Nothing: the owner has left.
    Nothing,
}

impl Seat {
    /// Publishes `source` to the other ranks until `body` returns or panics and all readers have finished.
    pub(super) fn while_showing<R>(
        &self,
        source: &[u8],
        number: u64,
        tag: u64,
        wanted: u64,
        body: impl FnOnce() -> R,
    ) -> R {
        struct Hide<'a>(&'a Seat);
        impl Drop for Hide<'_> {
            fn drop(&mut self) {
                *self.0.shown.write().unwrap_or_else(PoisonError::into_inner) = None;
            }
        }
        let hide = Hide(self);
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Shown { source, number, tag, wanted });
        let result = body();
        drop(hide);
        result
    }

    /// Stores a copy of the source for the other ranks, so that the owner need not wait for them.
    pub(super) fn post(&self, source: &[u8], number: u64, tag: u64) {
        let mut mail = self.mail(number).write().unwrap_or_else(PoisonError::into_inner);
        (mail.number, mail.tag) = (number, tag);
        mail.bytes.clear();
        mail.bytes.extend_from_slice(source);
    }

    fn mail(&self, number: u64) -> &RwLock<Mail> {
        &self.mail[(number % 2) as usize]
    }

    /// Reads the source that the owner has published or stored in exchange `number`.
    pub(super) fn look<R>(&self, number: u64, tag: u64, body: impl FnOnce(&[u8]) -> R) -> Look<R> {
        let mail = self.mail(number).read().unwrap_or_else(PoisonError::into_inner);
        if mail.number == number {
            let is_mine = mail.tag == tag;
            return if is_mine {
                Look::Found { result: body(&mail.bytes), wanted: None }
            } else {
                Look::Other
            };
        }
        drop(mail);
        let guard = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        match &*guard {
            Some(shown) if shown.number == number && shown.tag == tag => {
                // SAFETY: something is published, so its owner is inside `while_showing`, which borrows these
                // bytes and cannot end before it has the write lock, that is before `guard` is dropped at the
                // end of this function.
                let source = unsafe { &*shown.source };
                Look::Found { result: body(source), wanted: Some(shown.wanted) }
            }
            Some(shown) if shown.number == number => Look::Other,
            Some(_) | None => Look::Nothing,
        }
    }
}

/// A group of ranks with a seat for each.
#[derive(Debug)]
pub(super) struct Meeting {
    /// The ranks, ascending.
    pub(super) members: Box<[usize]>,
    pub(super) seats: Box<[Seat]>,
    /// The sum of all arrivals.
    pub(super) arrived: Arrived,
}

/// Aligned to a separate cache line, since all ranks spin on it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Arrived(AtomicU64);

impl Meeting {
    pub(super) fn new(members: &[usize]) -> Meeting {
        let seats = members.iter().map(|_| Seat::default()).collect();
        Meeting { members: members.into(), seats, arrived: Arrived::default() }
    }

    /// Arrives at the exchange `number`; returns `true` if that completes the group.
    pub(super) fn arrive(&self, place: usize, number: u64) -> bool {
        self.seats[place].arrivals.store(number, Ordering::Release);
        self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == number * self.members.len() as u64
    }

    /// Returns `true` if all ranks have arrived at the exchange `number`.
    pub(super) fn is_complete(&self, number: u64) -> bool {
        self.arrived.0.load(Ordering::Acquire) >= number * self.members.len() as u64
    }
}

/// Work for one worker; `&mut W` is the state of that worker.
type Job<'a, W> = &'a (dyn Fn(&mut W) + Sync);

/// A thread pool whose workers wait for jobs.
pub(super) struct Workshop<W> {
    state: Mutex<State<W>>,
    given: Condvar,
    finished: Condvar,
}

struct State<W> {
    /// Counts jobs, so that a worker takes each once.
    number: u64,
    job: Option<Lent<W>>,
    /// Workers that have not finished with the job.
    busy: usize,
    closed: bool,
}

struct Lent<W>(*const (dyn Fn(&mut W) + Sync + 'static));

impl<W> Clone for Lent<W> {
    fn clone(&self) -> Self {
        Lent(self.0)
    }
}

// SAFETY: the lent job is `Sync`, and `Workshop::run` keeps it alive until all workers have finished.
unsafe impl<W> Send for Lent<W> {}

impl<W: 'static> Workshop<W> {
    pub(super) fn new() -> Self {
        let state = State { number: 0, job: None, busy: 0, closed: false };
        Workshop { state: Mutex::new(state), given: Condvar::new(), finished: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the job on `workers` workers and returns when all have finished.
    ///
    /// Requires that this number of threads is in [`work`](Workshop::work), and one call at a time.
    pub(super) fn run(&self, workers: usize, job: Job<'_, W>) {
        // SAFETY: only the lifetime changes. No worker uses the job after `busy` has reached 0, which is
        // awaited below before the borrow ends; nothing in between can panic.
        let job = unsafe { std::mem::transmute::<Job<'_, W>, Job<'static, W>>(job) };
        let mut state = self.lock();
        state.number += 1;
        state.job = Some(Lent(std::ptr::from_ref(job)));
        state.busy = workers;
        self.given.notify_all();
        while state.busy > 0 {
            state = self.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.job = None;
    }

    /// Runs jobs until the pool closes.
    pub(super) fn work(&self, own: &mut W) {
        struct Finish<'a, W: 'static>(&'a Workshop<W>);
        impl<W: 'static> Drop for Finish<'_, W> {
            fn drop(&mut self) {
                let mut state = self.0.lock();
                state.busy -= 1;
                if state.busy == 0 {
                    self.0.finished.notify_all();
                }
            }
        }
        let mut last = 0;
        loop {
            let mut state = self.lock();
            while state.number == last && !state.closed {
                state = self.given.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.closed {
                return;
            }
            last = state.number;
            let job = state.job.clone();
            drop(state);
            let finish = Finish(self);
            if let Some(job) = job {
                // SAFETY: this worker is counted in `busy` until `finish` is dropped, also if the job panics, and
                // `run`, which borrows the job, waits for that.
                unsafe { (*job.0)(own) }
            }
            drop(finish);
        }
    }

    /// Ends all [`work`](Workshop::work).
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.given.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_owner_waits_for_its_readers() {
        let seat = Arc::new(Seat::default());
        assert_eq!(seat.look(1, 0, |_| ()), Look::Nothing);
        let (started, has_started) = std::sync::mpsc::channel();
        let source = vec![7u8; 1000];
        let reader = seat.while_showing(&source, 1, 5, 1, || {
            assert_eq!(seat.look(1, 6, |_| ()), Look::Other);
            assert_eq!(seat.look(2, 5, |_| ()), Look::Nothing);
            let seat = Arc::clone(&seat);
            let reader = std::thread::spawn(move || {
                seat.look(1, 5, |bytes| {
                    started.send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                    seat.departures.store(1, Ordering::Release);
                    bytes.iter().all(|b| *b == 7)
                })
            });
            has_started.recv().unwrap();
            reader
        });
        // The reader was inside when `body` returned; now it is done.
        assert_eq!(seat.departures.load(Ordering::Acquire), 1);
        drop(source);
        assert_eq!(reader.join().unwrap(), Look::Found { result: true, wanted: Some(1) });
    }

    #[test]
    fn what_is_posted_stays_for_one_exchange_more() {
        let seat = Seat::default();
        seat.post(&[1, 2], 1, 7);
        seat.post(&[3], 2, 8);
        let look = |number, tag| seat.look(number, tag, <[u8]>::to_vec);
        assert_eq!(look(1, 7), Look::Found { result: vec![1, 2], wanted: None });
        assert_eq!((look(2, 7), look(3, 7)), (Look::Other, Look::Nothing));
        seat.post(&[4], 3, 9);
        assert_eq!((look(1, 7), look(3, 9)), (Look::Nothing, Look::Found { result: vec![4], wanted: None }));
    }

    #[test]
    fn a_panicking_owner_hides_its_source() {
        let seat = Seat::default();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            seat.while_showing(&[1], 1, 0, 0, || panic!("planted"))
        }));
        assert!(panicked.is_err() && seat.look(1, 0, |_| ()) == Look::Nothing);
    }
}
