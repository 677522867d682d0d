//! Errors: a kind for programs, and a one-line message with the values.

use std::fmt;

pub(crate) use reshard_mapping::internal::shown;

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A source rank lacks a tensor that another rank has, or a rule reads one that no rank has.
    SourceLacks,
    /// Two ranks describe one tensor differently.
    SidesDiffer,
    /// No rule writes some elements of a target tensor.
    Unwritten,
    /// Two rules or two boxes write one element.
    WrittenTwice,
    /// A type changes, and no cast names the tensor.
    DtypeMismatch,
    /// The target has no tensor of a name that is made or that no rule reads.
    TargetLacks,
    /// A rule matches no source tensor, or a pattern no target tensor.
    UnusedRule,
    /// A target buffer has another shape than its parts make.
    LocalShape,
    /// Ranks planned from different descriptions or rules.
    HashDiffers,
    /// The sender and the receiver of a message list different boxes.
    MessagesDiffer,
    /// A description, a rule or an exported file is not valid.
    Invalid,
    /// A plan is over a limit.
    TooLarge,
}

impl ErrorKind {
    /// Returns the name of the kind, as it is in JSON.
    pub fn code(self) -> &'static str {
        match self {
            Self::SourceLacks => "source_lacks",
            Self::SidesDiffer => "sides_differ",
            Self::Unwritten => "unwritten",
            Self::WrittenTwice => "written_twice",
            Self::DtypeMismatch => "dtype_mismatch",
            Self::TargetLacks => "target_lacks",
            Self::UnusedRule => "unused_rule",
            Self::LocalShape => "local_shape",
            Self::HashDiffers => "hash_differs",
            Self::MessagesDiffer => "messages_differ",
            Self::Invalid => "invalid",
            Self::TooLarge => "too_large",
        }
    }
}

/// An error of a transfer.
///
/// ```
/// use reshard_transfer::{ErrorKind, Side};
///
/// let error = Side::from_json("{").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.kind().code(), "invalid");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Returns the class of the error, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
