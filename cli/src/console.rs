//! Output of the command line: answers to `out`, errors to `err`.

use std::io::{self, BufRead, Write};

use serde::Serialize;
use serde_json::json;

use super::error::{CliError, Exit, printable};
use super::status::Status;

/// The widest column after which others are aligned.
pub(crate) const WIDEST: usize = 256;

/// Input and output of the command line.
pub struct Console<'a> {
    /// The source of batch requests.
    pub input: &'a mut dyn BufRead,
    /// Receives answers, and with `--json` errors too.
    pub out: &'a mut dyn Write,
    /// Receives errors, one line each.
    pub err: &'a mut dyn Write,
    /// `true` if `out` shows colours.
    pub colour: bool,
    /// `true` if `run` may draw a bar on the stderr of the process.
    pub progress: bool,
}

impl Console<'_> {
    /// Writes an answer; a reader that has closed stdout is not an error.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), CliError> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                CliError::reader_gone()
            } else {
                CliError::failed("io", format!("writing to stdout failed: {error}"))
            }
        })
    }

    /// Writes an answer as a JSON object with the version, on one line.
    pub(crate) fn print_json(&mut self, answer: &impl Serialize) -> Result<(), CliError> {
        self.print_line(&Versioned::new(answer))
    }

    /// Writes one answer of a batch as JSON on one line.
    pub(crate) fn print_line(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let line = serde_json::to_string(value).map_err(|error| {
            CliError::failed("json", format!("the answer cannot be written as JSON: {error}"))
        })?;
        self.print(&(line + "\n"))
    }

    /// Reports an error, with `--json` also as an answer, and returns its status.
    pub(crate) fn report(&mut self, error: &CliError, json: bool) -> Status {
        let status = Status(error.status());
        match error.exit() {
            Exit::ReaderGone | Exit::Told(_) => return status,
            Exit::Refused | Exit::Failed => {}
        }
        // Write errors are ignored: there is no other channel to report them.
        if json {
            let _ = self.print_json(&error_json(error));
        }
        let _ = writeln!(self.err, "error: {error}");
        if let Some(place) = error.place() {
            for line in place.lines() {
                let _ = writeln!(self.err, "  {}", printable(line));
            }
        }
        status
    }
}

/// The output of `--json`: an object with its version, which grows if a key is changed or removed.
///
/// New keys leave the version as it is. The answers of a batch have no version.
#[derive(Debug, Serialize)]
pub(crate) struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    answer: &'a T,
}

impl<'a, T: Serialize> Versioned<'a, T> {
    pub(crate) fn new(answer: &'a T) -> Versioned<'a, T> {
        Versioned { version: 2, answer }
    }

    pub(crate) fn line(&self) -> String {
        // Objects of texts and numbers are always written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The JSON of an error: `{"error":{"kind":..,"message":..}}`.
pub(crate) fn error_json(error: &CliError) -> serde_json::Value {
    let mut value = json!({"error": {"kind": error.code(), "message": error.to_string()}});
    if let Some(first) = error.first() {
        value["error"]["move"] = json!(first);
    }
    value
}
