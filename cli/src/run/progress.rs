//! The progress of a job on the console: a bar, and for `run` its error at once.

use indicatif::{ProgressBar, ProgressStyle};
use reshard_checkpoint::Error;
use reshard_checkpoint::Observer;

use crate::console::Console;
use crate::error::{CliError, printable};

/// The console as the observer of a job.
pub(crate) struct Screen<'a, 'b> {
    console: &'a mut Console<'b>,
    json: bool,
    bar: Bar,
}

/// A bar over the bytes of a checkpoint, if one is shown.
pub(crate) struct Bar {
    shown: bool,
    bar: ProgressBar,
}

impl<'a, 'b> Screen<'a, 'b> {
    pub(crate) fn new(console: &'a mut Console<'b>, json: bool) -> Self {
        let bar = Bar::new(console.progress);
        Self { console, json, bar }
    }
}

impl Bar {
    pub(crate) fn new(shown: bool) -> Self {
        Self { shown, bar: ProgressBar::hidden() }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Bar {
    fn on_start(&mut self, bytes: u64) {
        if self.shown {
            self.bar = bar(bytes);
        }
    }

    fn on_tensor(&mut self, tensor: &str) {
        self.bar.set_message(printable(tensor).into_owned());
    }

    fn on_progress(&mut self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn on_finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Screen<'_, '_> {
    fn on_start(&mut self, bytes: u64) {
        self.bar.on_start(bytes);
    }

    fn on_tensor(&mut self, tensor: &str) {
        self.bar.on_tensor(tensor);
    }

    fn on_progress(&mut self, bytes: u64) {
        self.bar.on_progress(bytes);
    }

    fn on_finish(&mut self) {
        self.bar.on_finish();
    }

    fn on_error(&mut self, error: &Error) {
        self.bar.on_finish();
        // Its status is that of the error, which the job returns.
        let _ = self.console.report(&CliError::from(error), self.json);
    }
}

/// Makes a bar with rate and remaining time.
fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta} {wide_msg}")
    {
        bar.set_style(style);
    }
    bar
}
