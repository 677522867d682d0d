//! What a job shows while it runs: a bar, and its error at once.

use indicatif::{ProgressBar, ProgressStyle};
use reshard_checkpoint::Error;
use reshard_checkpoint::Observer;

use crate::console::Console;
use crate::error::{CliError, printable};

/// A job's view of the console.
pub(crate) struct Screen<'a, 'b> {
    console: &'a mut Console<'b>,
    json: bool,
    bar: ProgressBar,
}

impl<'a, 'b> Screen<'a, 'b> {
    pub(crate) fn new(console: &'a mut Console<'b>, json: bool) -> Self {
        Self { console, json, bar: ProgressBar::hidden() }
    }
}

impl Observer for Screen<'_, '_> {
    fn begins(&mut self, bytes: u64) {
        if self.console.progress {
            self.bar = bar(bytes);
        }
    }

    fn reaches(&mut self, tensor: &str) {
        self.bar.set_message(printable(tensor).into_owned());
    }

    fn moved(&mut self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn ends(&mut self) {
        self.bar.finish_and_clear();
    }

    fn fails(&mut self, error: &Error) {
        self.bar.finish_and_clear();
        // Its status is that of the error, which the job returns.
        let _ = self.console.report(&CliError::from(error), self.json);
    }
}

/// A bar over the bytes of the checkpoint.
fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {wide_msg}")
    {
        bar.set_style(style);
    }
    bar
}
