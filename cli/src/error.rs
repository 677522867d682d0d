//! The error of the command line: a kind for programs, a message for people, and an exit status.

use std::borrow::Cow;
use std::fmt;

use reshard_checkpoint::ErrorClass;
use reshard_layout::Excerpt;

/// The exit of the process after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Invalid input or a rejected request: status 2.
    Refused,
    /// A failed run, by verification or by I/O: status 1.
    Failed,
    /// The reader of stdout has closed it: nothing is printed and nothing failed, status 0.
    ReaderGone,
    /// The error was reported, here or by another process of the job; the field is the status.
    Told(u8),
}

/// An error: `kind` is stable and for programs, the message is one line with the offending values.
#[derive(Debug)]
pub(crate) struct CliError {
    kind: &'static str,
    message: String,
    /// For a text that does not parse: the text, and a line with a caret below the error.
    place: Option<String>,
    exit: Exit,
    /// The sharding to redistribute to before a view that needs communication.
    first: Option<String>,
}

impl CliError {
    /// Makes the error of invalid input or of a rejected request.
    pub(crate) fn refused(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), place: None, first: None, exit: Exit::Refused }
    }

    /// Makes the error of a failed run.
    pub(crate) fn failed(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), place: None, first: None, exit: Exit::Failed }
    }

    /// Makes the error of a stdout that its reader has closed.
    pub(crate) fn reader_gone() -> Self {
        Self { kind: "closed", message: String::new(), place: None, first: None, exit: Exit::ReaderGone }
    }

    /// Makes an error that was reported already, with its status.
    pub(crate) fn told(status: u8) -> Self {
        let exit = Exit::Told(status);
        Self { kind: "told", message: String::new(), place: None, first: None, exit }
    }

    /// Makes the error of a text that does not parse, with a caret at byte `offset`.
    pub(crate) fn parse(text: &str, offset: usize, message: impl Into<String>) -> Self {
        Self {
            kind: "parse",
            message: message.into(),
            place: Some(Excerpt::around(text, offset).caret()),
            first: None,
            exit: Exit::Refused,
        }
    }

    /// Makes the error of a command line that clap rejects.
    ///
    /// Its first paragraph is the message; the rest is advice, which `--help` gives in full.
    pub(crate) fn usage(rendered: &str) -> Self {
        let paragraph = rendered.split("\n\n").next().unwrap_or(rendered);
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        let sentence = words.join(" ");
        let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
        Self::refused("usage", format!("{sentence} (see --help)"))
    }

    /// Prefixes the message with its subject: `about: message`.
    pub(crate) fn about(mut self, about: impl fmt::Display) -> Self {
        self.message = format!("{about}: {}", self.message);
        self
    }

    pub(crate) fn code(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The exit status of the process.
    pub(crate) fn status(&self) -> u8 {
        match self.exit {
            Exit::ReaderGone => 0,
            Exit::Failed => 1,
            Exit::Refused => 2,
            Exit::Told(status) => status,
        }
    }

    /// The sharding to redistribute to first, for a view that needs communication.
    pub(crate) fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// The text and the caret line, if there is one.
    pub(crate) fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shortened(&self.message))
    }
}

impl std::error::Error for CliError {}

impl From<reshard_sharding::Error> for CliError {
    fn from(error: reshard_sharding::Error) -> Self {
        let first = if let reshard_sharding::Error::NeedsRedistribution { first, .. } = &error {
            Some(first.clone())
        } else {
            None
        };
        Self { first, ..Self::from(&reshard_checkpoint::Error::from(error)) }
    }
}

impl From<&reshard_checkpoint::Error> for CliError {
    fn from(error: &reshard_checkpoint::Error) -> Self {
        Self {
            kind: error.code(),
            message: error.to_string(),
            place: error.place().map(|(text, at)| Excerpt::around(text, at).caret()),
            exit: match error.class() {
                ErrorClass::Refused => Exit::Refused,
                ErrorClass::Failed => Exit::Failed,
                ErrorClass::ToldElsewhere(status) => Exit::Told(status),
            },
            first: None,
        }
    }
}

impl From<reshard_planner::Error> for CliError {
    fn from(error: reshard_planner::Error) -> Self {
        Self::from(&reshard_checkpoint::Error::from(error))
    }
}

impl From<reshard_kernels::Error> for CliError {
    fn from(error: reshard_kernels::Error) -> Self {
        Self::refused(error.code(), error.to_string())
    }
}

/// The longest message that is written; a longer one is shortened in the middle.
const LONGEST: usize = 2000;

/// Returns a message on one line, shortened in the middle: it may quote an argument of any length.
pub(crate) fn shortened(message: &str) -> Cow<'_, str> {
    match printable(message) {
        Cow::Borrowed(message) => short(message),
        Cow::Owned(message) => Cow::Owned(short(&message).into_owned()),
    }
}

/// Escapes characters that control the cursor, lines or text direction, like `\n` or `\u{1b}`.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

fn short(message: &str) -> Cow<'_, str> {
    let count = message.chars().count();
    if count <= LONGEST {
        return Cow::Borrowed(message);
    }
    let kept = LONGEST / 2;
    let begin: String = message.chars().take(kept).collect();
    let end: String = message.chars().skip(count - kept).collect();
    Cow::Owned(format!("{begin} … {end}"))
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, printable, shortened};

    #[test]
    fn what_steers_a_terminal_is_printed_as_its_escape() {
        assert_eq!(
            printable("a\nb\r\u{1b}[31m\u{9b}\u{202e}\u{2028}c"),
            r"a\nb\r\u{1b}[31m\u{9b}\u{202e}\u{2028}c"
        );
        assert_eq!(printable("größe ≤ 3 \u{1f600}"), "größe ≤ 3 \u{1f600}");
        let long = shortened(&"\n".repeat(3 * LONGEST)).into_owned();
        assert!(long.lines().count() == 1 && long.chars().count() <= LONGEST + 3);
    }
}
