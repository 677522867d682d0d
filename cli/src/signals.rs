//! Signals that end the program: what a run has begun is removed first, and then the program ends as it would have.
//!
//! It ends by the signal itself, so that a shell sees what it expects, 130 of Ctrl-C and 143 of a plain kill, and a loop in a
//! script ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Removing files needs little.
const STACK: usize = 256 << 10;

/// From here on a signal that ends the program cleans up; a second one ends it at once.
///
/// Where no thread can be had, signals end the program as they would without this, and the next run cleans up.
pub(crate) fn clean_up() {
    // A file that would be larger than it may be is an error, which is said, and no reason to be ended.
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

/// Whether whoever started the program wants this signal ignored, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
