//! The kinds of errors that all crates share.

use core::fmt;
use core::str::FromStr;

/// The kind of an error, to match on; each crate's `Error` has one, and a finer `code` as text.
///
/// ```
/// use reshard_layout::{ErrorKind, Layout};
///
/// let error = Layout::from_modes(&[(0, 1)]).unwrap_err();
/// assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, "bad_extent"));
/// assert_eq!("not_representable".parse(), Ok(ErrorKind::NotRepresentable));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A text or a file that does not follow its format.
    Parse,
    /// Values that do not fit one another, or are out of range.
    InvalidInput,
    /// A valid request that is not implemented, or exceeds a stated limit.
    Unsupported,
    /// A result that exists, but not in the requested notation or shape.
    NotRepresentable,
    /// An op or a view that needs a redistribution first.
    NeedsRedistribution,
    /// No plan stays within the requested memory.
    MemoryLimit,
    /// Ranks that run different plans or programs.
    PlanMismatch,
    /// A rank that failed, panicked or left.
    RankFailed,
    /// A rank that did not arrive in time.
    Timeout,
    /// The operating system, a file, the network or a library of a device failed.
    Io,
    /// Data that differs from its definition or its checksum.
    Verification,
    /// The caller cancelled the request.
    Cancelled,
    /// A bug of the library.
    Internal,
}

impl ErrorKind {
    /// All kinds.
    #[doc(hidden)]
    pub const ALL: [ErrorKind; 13] = [
        ErrorKind::Parse,
        ErrorKind::InvalidInput,
        ErrorKind::Unsupported,
        ErrorKind::NotRepresentable,
        ErrorKind::NeedsRedistribution,
        ErrorKind::MemoryLimit,
        ErrorKind::PlanMismatch,
        ErrorKind::RankFailed,
        ErrorKind::Timeout,
        ErrorKind::Io,
        ErrorKind::Verification,
        ErrorKind::Cancelled,
        ErrorKind::Internal,
    ];

    /// Returns the name in `snake_case`.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Parse => "parse",
            ErrorKind::InvalidInput => "invalid_input",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::NotRepresentable => "not_representable",
            ErrorKind::NeedsRedistribution => "needs_redistribution",
            ErrorKind::MemoryLimit => "memory_limit",
            ErrorKind::PlanMismatch => "plan_mismatch",
            ErrorKind::RankFailed => "rank_failed",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Io => "io",
            ErrorKind::Verification => "verification",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ErrorKind {
    type Err = UnknownErrorKind;

    fn from_str(text: &str) -> Result<ErrorKind, UnknownErrorKind> {
        ErrorKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| UnknownErrorKind(text.into()))
    }
}

/// A text that does not name an [`ErrorKind`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct UnknownErrorKind(Box<str>);

impl fmt::Display for UnknownErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = ErrorKind::ALL.map(ErrorKind::as_str).join(", ");
        write!(f, "unknown kind of error `{}`; expected one of: {known}", crate::Excerpt::of(&self.0))
    }
}

impl core::error::Error for UnknownErrorKind {}
