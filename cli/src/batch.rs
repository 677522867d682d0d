//! `--batch`: one JSON request a line in, one JSON answer a line out.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::console::{Console, error_json};
use super::error::CliError;
use super::guard::guarded;
use super::lines::{self, Next};

/// Answers every line in order: with the result of `answer`, or with its error.
///
/// Every line gets exactly one answer before the next line is read, so a program can communicate with this
/// one through two pipes. A panic is answered with an error of the kind `internal`.
pub(crate) fn run<Request, Answer>(
    console: &mut Console<'_>,
    mut answer: impl FnMut(&Request) -> Result<Answer, CliError>,
) -> Result<(), CliError>
where
    Request: DeserializeOwned,
    Answer: Serialize,
{
    let mut line = Vec::new();
    loop {
        let next = lines::next(&mut *console.input, &mut line)
            .map_err(|error| CliError::failed("io", format!("reading from stdin failed: {error}")))?;
        let reply = match next {
            Next::End => return Ok(()),
            Next::TooLong => Err(CliError::refused("too_large", lines::too_long())),
            Next::Line => guarded(|| request(&line).and_then(|request| answer(&request))),
        };
        match reply {
            Ok(reply) => console.print_line(&reply)?,
            Err(error) => console.print_line(&error_json(&error))?,
        }
    }
}

/// Parses a line as a request; the message of serde names the column, the unknown key or the missing one.
fn request<Request: DeserializeOwned>(line: &[u8]) -> Result<Request, CliError> {
    serde_json::from_slice(line)
        .map_err(|error| CliError::refused("parse", format!("not a request: {error}")))
}
