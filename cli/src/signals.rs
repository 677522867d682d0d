//! Signals that end the program: files of an unfinished run are removed before it ends.
//!
//! The process ends by the signal itself, so a shell gets the usual status, 130 of Ctrl-C and 143 of a plain
//! kill, and a loop in a script ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// A small stack is enough to remove files.
const STACK: usize = 256 << 10;

/// From now on a signal that ends the program cleans up; a second one ends it at once.
///
/// If no thread can be started, signals end the program as by default, and the next run cleans up.
pub(crate) fn clean_up() {
    // Exceeding the file size limit is then a write error, which is reported, and does not kill the process.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let signals = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal));
    let at_once = Arc::new(AtomicBool::new(false));
    for signal in signals.clone() {
        let _ = flag::register_conditional_default(signal, Arc::clone(&at_once));
    }
    let again = Arc::clone(&at_once);
    let watching = Signals::new(signals).and_then(|mut signals| {
        thread::Builder::new().name("signals".to_owned()).stack_size(STACK).spawn(move || {
            let Some(first) = signals.forever().next() else { return };
            again.store(true, Ordering::SeqCst);
            reshard_checkpoint::remove_staging();
            // Returns only where the system has no such default.
            let _ = emulate_default_handler(first);
            std::process::exit(128 + first);
        })
    });
    if watching.is_err() {
        at_once.store(true, Ordering::SeqCst);
    }
}

/// Returns `true` if the parent process has set this signal to be ignored, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
