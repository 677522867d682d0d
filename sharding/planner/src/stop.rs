//! Stopping: a search checks from time to time if its result is still needed.
//!
//! A budget bounds the work of a problem, but it may be large or unlimited. A caller that can be interrupted,
//! as an interpreter by Ctrl-C, runs a request as [`stoppable`]. Once its `stop` returns `true`, every search
//! of this thread ends as if its budget were exhausted, and the request fails with [`Error::Stopped`]. So an
//! incomplete result is never returned or cached.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::Error;

/// Interval between calls of `stop`.
const EVERY: Duration = Duration::from_millis(20);

/// Number of checks between two readings of the clock.
const LOOKS: u32 = 32;

/// The callback, the time of its last call, and its result.
struct Watch {
    stop: Rc<dyn Fn() -> bool>,
    asked: Instant,
    stopped: bool,
}

thread_local! {
    /// Checks left until the clock is read again; 0 without a watch.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Runs a closure whose searches end once `stop` returns `true`.
///
/// Its requests then fail with [`Error::Stopped`]. `stop` is called on this thread about every 20 ms, and not
/// again once it has returned `true`.
pub fn stoppable<T>(stop: impl Fn() -> bool + 'static, run: impl FnOnce() -> T) -> T {
    /// Restores the previous watch when dropped, also after a panic.
    struct Before(u32, Option<Watch>);
    impl Drop for Before {
        fn drop(&mut self) {
            LEFT.set(self.0);
            WATCH.set(self.1.take());
        }
    }
    let watch = Watch { stop: Rc::new(stop), asked: Instant::now(), stopped: false };
    let _before = Before(LEFT.replace(LOOKS), WATCH.replace(Some(watch)));
    run()
}

/// Returns `true` if the result is no longer needed.
#[inline]
pub fn is_stopped() -> bool {
    match LEFT.get() {
        0 => false,
        1 => asks(),
        left => {
            LEFT.set(left - 1);
            false
        }
    }
}

/// Returns an error if the result is no longer needed.
#[inline]
pub fn go_on() -> Result<(), Error> {
    if is_stopped() { Err(Error::Stopped) } else { Ok(()) }
}

/// Calls `stop`, unless that was done less than [`EVERY`] ago.
#[cold]
fn asks() -> bool {
    let stop = WATCH.with_borrow_mut(|watch| {
        let Watch { stop, asked, .. } = watch.as_mut().filter(|watch| !watch.stopped)?;
        (asked.elapsed() >= EVERY).then(|| {
            *asked = Instant::now();
            Rc::clone(stop)
        })
    });
    // The callback may start a request itself, so the watch is not borrowed during the call.
    let stops = stop.is_some_and(|stop| stop());
    WATCH.with_borrow_mut(|watch| {
        let Some(watch) = watch else { return false };
        watch.stopped |= stops;
        // Once stopped, every check returns `true`.
        LEFT.set(if watch.stopped { 1 } else { LOOKS });
        watch.stopped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks for up to 20 s; returns `true` if it was stopped.
    fn looks() -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            if is_stopped() {
                return true;
            }
        }
        false
    }

    #[test]
    fn who_is_watched_stops_and_nobody_else() {
        assert!(!is_stopped());
        assert!(stoppable(|| true, looks));
        assert!(!is_stopped());
        // Nested: each stops only its own closure.
        stoppable(
            || false,
            || {
                assert!(stoppable(|| true, || looks() && is_stopped() && go_on() == Err(Error::Stopped)));
                assert!((0..1000).all(|_| !is_stopped()));
            },
        );
        assert!((0..1000).all(|_| !is_stopped()));
    }
}
