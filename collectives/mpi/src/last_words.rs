//! The message of a process before it ends a job, in one write, since other ranks may write at the same time.

use std::io::Write as _;

/// Writes the reason to stderr.
pub(crate) fn say(why: &str) {
    let line = format!("error: {why}\n");
    // A failed write has no reader left, so the error is ignored.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
