//! A watchdog for calls that block without a timeout.

use crate::last_words;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Interval between the exits of processes that give up at the same time.
///
/// The first exit makes the launcher end the others. Many simultaneous exits have been seen to block it (Open
/// MPI 4.1).
const STAGGER: Duration = Duration::from_millis(100);

/// Runs a call; after the timeout it reports the call and ends the process with a failure status.
///
/// A process that ends so ends the whole job.
pub(crate) fn within<T>(time_out: Duration, what: &str, call: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (returned, wait) = channel::<()>();
        let guard = std::thread::Builder::new().spawn_scoped(scope, move || {
            if wait.recv_timeout(time_out) == Err(RecvTimeoutError::Timeout) {
                last_words::say(&format!("{what} did not end within {time_out:?}; the job ends here"));
                std::thread::sleep(STAGGER * (std::process::id() % 10));
                std::process::abort();
            }
        });
        // If no thread can be started, the call runs without a guard.
        drop(guard);
        let result = call();
        drop(returned);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_returns_is_not_disturbed() {
        assert_eq!(within(Duration::from_mins(1), "nothing", || 7), 7);
    }
}
