//! Why a job did not succeed: a kind for programs, a sentence for people, and whether it was refused or failed.

use crate::shown::Shown;
use std::fmt;
use std::path::Path;

/// One error: the kind is stable and for programs, the message is one sentence with the offending values.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, Class};
///
/// let error = Checkpoint::open(Some("/nowhere".as_ref())).err().unwrap();
/// assert_eq!((error.kind(), error.class(), error.status()), ("input", Class::Refused, 2));
/// assert!(error.to_string().starts_with("the input /nowhere cannot be read"));
/// ```
#[derive(Debug)]
pub struct Error {
    kind: &'static str,
    message: String,
    place: Option<(String, usize)>,
    class: ErrorKind,
}

/// What kind of end an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The input is bad or the request is refused; nothing was begun.
    Refused,
    /// The job failed, by verification, by an engine or by I/O.
    Failed,
    /// Another process of the job says what is wrong, and ends with this status.
    ToldElsewhere(u8),
}

impl Error {
    /// Bad input, or a request that is refused.
    pub(crate) fn refused(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), place: None, class: ErrorKind::Refused }
    }

    /// A job that failed.
    pub(crate) fn failed(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), place: None, class: ErrorKind::Failed }
    }

    /// Reading or writing `path` failed in the middle of the work.
    pub(crate) fn io(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::failed("io", format!("{doing} {} failed: {error}", path.display()))
    }

    /// What another process of the job says, which ends with this status.
    pub(crate) fn told_elsewhere(status: u8) -> Self {
        Self {
            kind: "elsewhere",
            message: "another process of the job says what is wrong".to_owned(),
            place: None,
            class: ErrorKind::ToldElsewhere(status),
        }
    }

    /// The same error, said about something: `about: message`.
    pub(crate) fn about(mut self, about: impl fmt::Display) -> Self {
        self.message = format!("{about}: {}", self.message);
        self
    }

    /// The same error, said about one tensor.
    pub(crate) fn about_tensor(self, name: &str) -> Self {
        self.about(format_args!("tensor `{}`", name.shown()))
    }

    /// The stable word for what is wrong: `input`, `rank_files`, `verification`, ..
    pub fn code(&self) -> &'static str {
        self.kind
    }

    /// Whether it was refused or failed, or is told elsewhere.
    pub fn class(&self) -> ErrorKind {
        self.class
    }

    /// The status that a process ends with after it: 2 for what is refused, 1 for what failed.
    pub fn status(&self) -> u8 {
        match self.class {
            ErrorKind::Failed => 1,
            ErrorKind::Refused => 2,
            ErrorKind::ToldElsewhere(status) => status,
        }
    }

    /// Of a text that does not parse: the text, and the byte where it does not.
    pub fn place(&self) -> Option<(&str, usize)> {
        self.place.as_ref().map(|(text, at)| (&text[..], *at))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<reshard_sharding::Error> for Error {
    fn from(error: reshard_sharding::Error) -> Self {
        let refused = Self::refused(error.code(), error.to_string());
        let reshard_sharding::Error::Parse { input, at, .. } = error else {
            return refused;
        };
        Self { place: Some((input, at)), ..refused }
    }
}

impl From<reshard_planner::Error> for Error {
    fn from(error: reshard_planner::Error) -> Self {
        if let reshard_planner::Error::Sharding(error) = error {
            return error.into();
        }
        Self::refused(error.code(), error.to_string())
    }
}

/// An exchange that went wrong is a job that failed.
impl From<reshard_collectives::Error> for Error {
    fn from(error: reshard_collectives::Error) -> Self {
        Self::failed(error.code(), error.to_string())
    }
}
