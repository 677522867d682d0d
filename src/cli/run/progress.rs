//! The progress bar: on a terminal only, on stderr, so that neither files nor pipes ever see it.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over the bytes of the checkpoint; invisible where nobody watches.
pub(crate) fn bar(bytes: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {wide_msg}")
    {
        bar.set_style(style);
    }
    bar
}
