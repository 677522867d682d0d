//! Stopping: a search asks from time to time whether its answer is still wanted.
//!
//! A budget bounds what a question takes, but it may be large, or none. Whoever can be told to stop, as an interpreter is by Ctrl-C,
//! runs a question [`stoppable`]: once its `stop` says so every search of this thread ends as if its budget were spent, and what
//! was asked fails with [`Error::Stopped`], so that nothing that was cut short is taken for an answer or remembered as one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::Error;

/// How often it is asked.
const EVERY: Duration = Duration::from_millis(20);

/// How many looks are taken without a look at the clock.
const LOOKS: u32 = 32;

/// Who is asked, when that was, and whether it said so.
struct Watch {
    stop: Rc<dyn Fn() -> bool>,
    asked: Instant,
    stopped: bool,
}

thread_local! {
    /// Looks until the next at the clock; 0 where nobody watches.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Runs something whose searches end, and whose questions fail with [`Error::Stopped`], once `stop` says so. It is asked on this thread,
/// every 20 ms or so, and not again once it has.
pub fn stoppable<T>(stop: impl Fn() -> bool + 'static, run: impl FnOnce() -> T) -> T {
    /// Whoever watched before does again, also after a panic.
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

/// Whether what is asked is no longer wanted.
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

/// Fails where what is asked is no longer wanted.
#[inline]
pub fn go_on() -> Result<(), Error> {
    if is_stopped() { Err(Error::Stopped) } else { Ok(()) }
}

/// Asks, unless that was just done.
#[cold]
fn asks() -> bool {
    let stop = WATCH.with_borrow_mut(|watch| {
        let Watch { stop, asked, .. } = watch.as_mut().filter(|watch| !watch.stopped)?;
        (asked.elapsed() >= EVERY).then(|| {
            *asked = Instant::now();
            Rc::clone(stop)
        })
    });
    // Whoever is asked may ask something itself.
    let stops = stop.is_some_and(|stop| stop());
    WATCH.with_borrow_mut(|watch| {
        let Some(watch) = watch else { return false };
        watch.stopped |= stops;
        // Once it has stopped, every look says so.
        LEFT.set(if watch.stopped { 1 } else { LOOKS });
        watch.stopped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks for some time; whether it was stopped.
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
        // One within another: each stops its own.
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
