//! What a process says before it ends a job: in one write, as the others may say the same at the same time.

use std::io::Write as _;

/// Says on stderr why.
pub(crate) fn say(why: &str) {
    let line = format!("error: {why}\n");
    // Nobody is left to hear that it cannot be said.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
