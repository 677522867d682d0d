//! Numbers of rules: digits, or `$h` with a value that is given later.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, ErrorKind, shown};

/// The values of `$h`, by name.
pub(crate) type Numbers = BTreeMap<String, usize>;

/// A number of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Literal(usize),
    Named(String),
}

impl Number {
    /// Returns the number that a text is: `None` if it is neither digits nor `$` and a name.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, Error> {
        if let Some(name) = text.strip_prefix('$') {
            return Ok(is_name(name).then(|| Self::Named(name.to_owned())));
        }
        if text.is_empty() || !text.bytes().all(|c| c.is_ascii_digit()) {
            return Ok(None);
        }
        text.parse().map(|n| Some(Self::Literal(n))).map_err(|_| {
            let message = format!("the number {} is over the limit of {}", shown(text), usize::MAX);
            Error::new(ErrorKind::TooLarge, message)
        })
    }

    pub(crate) fn value(&self, numbers: &Numbers) -> Result<usize, Error> {
        match self {
            Self::Literal(n) => Ok(*n),
            Self::Named(name) => value_of(name, numbers),
        }
    }
}

/// Returns the value of `$name`.
pub(crate) fn value_of(name: &str, numbers: &Numbers) -> Result<usize, Error> {
    numbers.get(name).copied().ok_or_else(|| {
        let name = shown(name);
        let message = format!("`${name}` has no value; add `{name} = N` to [let] or pass --let {name}=N");
        Error::new(ErrorKind::UnknownNumber, message)
    })
}

/// Returns `true` if a text is letters, digits and underscores.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_word)
}

/// Returns `true` for a letter, a digit and `_`.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(n) => write!(f, "{n}"),
            Self::Named(name) => write!(f, "${name}"),
        }
    }
}
