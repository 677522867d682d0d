//! Errors of a job: a kind for programs, a message for people, and a class.

use crate::shown::Shown;
use std::fmt;
use std::path::Path;

pub use reshard_layout::ErrorKind;

/// An error: a stable kind for programs, and a one-line message with the offending values.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, ErrorKind};
///
/// let error = Checkpoint::open(Some("/nowhere".as_ref())).err().unwrap();
/// assert_eq!((error.kind(), error.code()), (ErrorKind::Io, "input"));
/// assert!(error.to_string().starts_with("the input /nowhere cannot be read"));
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    code: &'static str,
    message: String,
    place: Option<(String, usize)>,
    class: ErrorClass,
}

/// The class of an error, which decides the exit status.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The input or the request is invalid; no work was begun.
    Refused,
    /// The job failed, by verification, by an engine or by I/O.
    Failed,
    /// Another process of the job reports the error; this one ends with the given status.
    ToldElsewhere(u8),
}

impl Error {
    fn new(class: ErrorClass, kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), place: None, class }
    }

    /// Returns an error for invalid input or an invalid request.
    pub(crate) fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, ErrorKind::InvalidInput, code, message)
    }

    /// Returns an error for an input that cannot be read, found before any work was begun.
    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, ErrorKind::Io, "input", message)
    }

    /// Returns an error with this code for a file that cannot be read, found before any work was begun.
    pub(crate) fn unreadable_as(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, ErrorKind::Io, code, message)
    }

    /// Returns an error for a file or a text that does not follow its format.
    pub(crate) fn malformed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, ErrorKind::Parse, code, message)
    }

    /// Returns an error for a valid input or request that is not implemented, or over a stated limit.
    pub(crate) fn unsupported(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, ErrorKind::Unsupported, code, message)
    }

    /// Returns an error for an input whose content differs from its checksum, definition or replica.
    pub(crate) fn mismatch(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, ErrorKind::Verification, code, message)
    }

    /// Returns an error for a job that failed.
    pub(crate) fn failed(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Failed, kind, code, message)
    }

    /// Returns an error for output that differs from its definition.
    pub(crate) fn verification(message: impl Into<String>) -> Self {
        Self::failed(ErrorKind::Verification, "verification", message)
    }

    /// Returns an error for a bug of the library.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::failed(ErrorKind::Internal, "internal", message)
    }

    /// Returns an error for an I/O failure on `path` during the work.
    pub(crate) fn io(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::failed(ErrorKind::Io, "io", format!("{doing} {} failed: {error}", path.display()))
    }

    /// Returns an error for a process whose job failed in another process, with that exit status.
    pub(crate) fn told_elsewhere(status: u8) -> Self {
        let message = "another process of the job reports the error";
        Self::new(ErrorClass::ToldElsewhere(status), ErrorKind::RankFailed, "elsewhere", message)
    }

    /// Prefixes the message with its subject: `about: message`.
    pub(crate) fn about(mut self, about: impl fmt::Display) -> Self {
        self.message = format!("{about}: {}", self.message);
        self
    }

    /// Prefixes the message with the name of a tensor.
    pub(crate) fn about_tensor(self, name: &str) -> Self {
        self.about(format_args!("tensor `{}`", name.shown()))
    }

    /// Returns the stable identifier of the problem: `input`, `rank_files`, `verification`, ..
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the class: invalid, failed, or reported by another process.
    #[doc(hidden)]
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// Returns the exit status of the process: 2 for invalid input or requests, 1 for failures.
    #[doc(hidden)]
    pub fn status(&self) -> u8 {
        match self.class {
            ErrorClass::Failed => 1,
            ErrorClass::Refused => 2,
            ErrorClass::ToldElsewhere(status) => status,
        }
    }

    /// Returns the text that does not parse and the byte of the error, for parse errors.
    #[doc(hidden)]
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
        let refused = Self::new(ErrorClass::Refused, error.kind(), error.code(), error.to_string());
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
        Self::new(ErrorClass::Refused, error.kind(), error.code(), error.to_string())
    }
}

/// An exchange that failed is a job that failed.
impl From<reshard_collectives::Error> for Error {
    fn from(error: reshard_collectives::Error) -> Self {
        Self::failed(error.kind(), error.code(), error.to_string())
    }
}
