//! Errors: a kind for programs, and a one-line message that names the rule and the values.

use std::fmt;

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A rule does not follow the grammar.
    Syntax,
    /// The TOML form has an unknown key, another version or a value of another type.
    File,
    /// `$NAME` has no value.
    UnknownNumber,
    /// A rule or a `drop` matches no tensor.
    NoMatch,
    /// A tensor that a rule names does not exist.
    Missing,
    /// Two rules produce one name, or two sources have it.
    Duplicate,
    /// An extent does not split into the given blocks, shares or axes.
    Indivisible,
    /// The parts of a concatenation differ in dtype.
    MixedTypes,
    /// A dim, a range or a size does not fit the shape of a tensor.
    Shape,
    /// The numbers of a `stack` are not 0, 1, .. without a gap.
    Gap,
    /// A rule cannot be read backwards.
    NotInvertible,
    /// With `rest = "error"`, no rule names a tensor.
    Unnamed,
    /// Two tensors that must be equal differ in shape or dtype.
    Differ,
    /// A `cast` of a tensor whose elements are not floating-point numbers.
    NotFloat,
    /// An extent is over the limit.
    TooLarge,
    /// A rule is nested too deeply, or results in more loop nests than the limit.
    TooComplex,
}

/// An error of a mapping.
///
/// ```
/// use reshard_mapping::{ErrorKind, Mapping};
///
/// let error = "a = b + c | d".parse::<Mapping>().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Syntax);
/// assert_eq!(
///     error.to_string(),
///     "rule `a = b + c | d`: a side has both + and | (column 11); write one of them within cat(..)"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    rule: Option<String>,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, rule: None, message: message.into() }
    }

    /// Adds the rule that the error is about; the innermost rule wins.
    pub(crate) fn in_rule(mut self, rule: &str) -> Self {
        self.rule.get_or_insert_with(|| shown(rule));
        self
    }

    /// Adds the tensor that the error is about.
    pub(crate) fn about(mut self, tensor: &str) -> Self {
        self.message = format!("`{}`: {}", shown(tensor), self.message);
        self
    }

    /// Returns the class of the error, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rule) = &self.rule {
            write!(f, "rule `{rule}`: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The number of characters of a user's text that a message has.
const MOST_SHOWN: usize = 160;

/// Returns a user's text on one line: control characters are escaped, and the end of a long text is left out.
pub fn shown(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut safe = String::new();
    for (index, c) in text.chars().enumerate() {
        if index == MOST_SHOWN {
            safe.push_str("..");
            break;
        }
        if steers(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}
