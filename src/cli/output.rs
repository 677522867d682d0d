//! The one place that writes to stdout and stderr.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use super::error::{CliError, Exit};

/// Writes `text` to stdout; a reader that has gone is not a failure of ours.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            CliError::reader_gone()
        } else {
            CliError::failed("io", format!("writing to stdout failed: {error}"))
        }
    })
}

/// Writes `value` to stdout as JSON on one line.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let line = serde_json::to_string(value).map_err(|error| {
        CliError::failed("json", format!("the answer cannot be written as JSON: {error}"))
    })?;
    print(&(line + "\n"))
}

/// The JSON of an error: `{"error":{"kind":..,"message":..}}`.
pub(crate) fn error_json(error: &CliError) -> serde_json::Value {
    let mut value = json!({"error": {"kind": error.kind(), "message": error.to_string()}});
    if let Some(first) = error.first() {
        value["error"]["move"] = json!(first);
    }
    value
}

/// Reports an error on stderr, with `--json` also on stdout, and gives the exit status it stands for.
pub(crate) fn report(error: &CliError, json: bool) -> ExitCode {
    let code = ExitCode::from(error.status());
    match error.exit() {
        Exit::ReaderGone => return code,
        #[cfg(any(test, feature = "mpi", feature = "nccl"))]
        Exit::ToldElsewhere(_) => return code,
        Exit::Refused | Exit::Failed => {}
    }
    // Nobody may be reading; there is no better place left to complain to.
    if json {
        let _ = print_json(&error_json(error));
    }
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "error: {error}");
    if let Some(place) = error.place() {
        for line in place.lines() {
            let _ = writeln!(stderr, "  {line}");
        }
    }
    code
}
