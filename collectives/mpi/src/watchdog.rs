//! An end to calls that block without a time-out of their own.

use crate::last_words;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Processes that give up at the same time end so far apart: the first one makes the launcher end the others, and many
/// that die by themselves at once have been seen to block it (Open MPI 4.1).
const STAGGER: Duration = Duration::from_millis(100);

/// Runs a call; if it does not return in time, says what it was and ends the process without a success.
///
/// A process that ends so takes the whole job with it.
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
        // Without a thread to spare the call goes unguarded.
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
