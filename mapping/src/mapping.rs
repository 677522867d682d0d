//! A mapping: its lines and options.

use std::fmt;
use std::str::FromStr;

use safetensors::Dtype;

use crate::apply::apply;
use crate::dtype;
use crate::error::{Error, ErrorKind, shown};
use crate::glob::Glob;
use crate::mapped::{Mapped, SourceTensor};
use crate::number::{Numbers, is_name};
use crate::rule::Line;

/// The handling of tensors that no rule and no `drop` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rest {
    /// They keep their names.
    #[default]
    Keep,
    /// They are an error.
    Error,
}

/// An entry of the `[cast]` table.
#[derive(Clone, Debug)]
struct CastRule {
    pattern: String,
    glob: Glob,
    /// `None` for `keep`.
    to: Option<Dtype>,
}

impl PartialEq for CastRule {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.to == other.to
    }
}

impl Eq for CastRule {}

/// Rules that compute tensors from other tensors, and their options.
///
/// The text is one line per rule or `drop`; printing and parsing are inverse of each other, up to blanks and
/// comments. The options are not part of the text; [`Mapping::to_toml`] has both.
///
/// ```
/// use reshard_mapping::{Dtype, Mapping, SourceTensor};
///
/// let mapping: Mapping = "*.qkv =  *.q+ *.k + *.v by 2 // two groups".parse()?;
/// assert_eq!(mapping.to_string(), "*.qkv = *.q + *.k + *.v by 2\n");
/// let sources = ["a.q", "a.k", "a.v"].map(|name| SourceTensor { name, shape: &[4, 8], dtype: Dtype::F32 });
/// let mapped = mapping.apply(&sources)?;
/// assert_eq!((&mapped.tensors[0].name[..], &mapped.tensors[0].shape[..]), ("a.qkv", &[12, 8][..]));
/// assert_eq!(mapping.inverse()?.to_string(), "*.q + *.k + *.v = *.qkv by 2\n");
/// # Ok::<(), reshard_mapping::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    lines: Vec<Line>,
    rest: Rest,
    numbers: Numbers,
    casts: Vec<CastRule>,
    placements: Vec<(String, String)>,
}

impl Mapping {
    /// Returns the mapping with this handling of the tensors that no rule names.
    #[must_use]
    pub fn with_rest(mut self, rest: Rest) -> Self {
        self.rest = rest;
        self
    }

    /// Returns the mapping with a value for `$name`; the last value of a name applies.
    pub fn with_number(mut self, name: &str, value: usize) -> Result<Self, Error> {
        if !is_name(name) {
            let message =
                format!("`{}` is not a valid name of a number; use letters, digits and _", shown(name));
            return Err(Error::new(ErrorKind::Syntax, message));
        }
        self.numbers.insert(name.to_owned(), value);
        Ok(self)
    }

    /// Returns the mapping with one more entry of the `[cast]` table.
    ///
    /// The tensors that it computes and whose names match are converted to a type: `f16`, `bf16`, `f32`, `f64`,
    /// or `keep`. The first pattern that matches a name applies; types that are not floating-point stay.
    pub fn with_cast(mut self, pattern: &str, to: &str) -> Result<Self, Error> {
        let to = if to == "keep" { None } else { Some(dtype::float(to)?) };
        self.casts.push(CastRule { pattern: pattern.to_owned(), glob: Glob::new(pattern), to });
        Ok(self)
    }

    /// Returns the mapping with one more entry of the `[placements]` table, whose text is not checked.
    #[must_use]
    pub fn with_placements(mut self, pattern: &str, placements: &str) -> Self {
        self.placements.push((pattern.to_owned(), placements.to_owned()));
        self
    }

    /// Returns the rules and `drop` lines as canonical text.
    pub fn rules(&self) -> impl Iterator<Item = String> {
        self.lines.iter().map(Line::to_string)
    }

    /// Returns the handling of the tensors that no rule names.
    pub fn rest(&self) -> Rest {
        self.rest
    }

    /// Returns the values of `$name`, sorted by name.
    pub fn numbers(&self) -> impl Iterator<Item = (&str, usize)> {
        self.numbers.iter().map(|(name, value)| (&name[..], *value))
    }

    /// Returns the `[cast]` table in its order; the type is `None` for `keep`.
    pub fn casts(&self) -> impl Iterator<Item = (&str, Option<Dtype>)> {
        self.casts.iter().map(|cast| (&cast.pattern[..], cast.to))
    }

    /// Returns the `[placements]` table in its order: patterns of names, and placements as text.
    pub fn placements(&self) -> impl Iterator<Item = (&str, &str)> {
        self.placements.iter().map(|(pattern, text)| (&pattern[..], &text[..]))
    }

    /// Returns the text of the first entry of the `[placements]` table whose pattern matches a name.
    pub fn placements_of(&self, name: &str) -> Option<&str> {
        let mut entries = self.placements.iter().filter(|(pattern, _)| Glob::new(pattern).matches(name));
        entries.next().map(|(_, text)| &text[..])
    }

    /// Returns a pattern of the `[cast]` or `[placements]` table that matches none of these names.
    #[doc(hidden)]
    pub fn unmatched_pattern<'a>(&self, names: &(impl Iterator<Item = &'a str> + Clone)) -> Option<&str> {
        let casts = self.casts.iter().map(|rule| &rule.pattern);
        let mut patterns = casts.chain(self.placements.iter().map(|(pattern, _)| pattern));
        let is_unmatched = |pattern: &&String| {
            let glob = Glob::new(pattern);
            !names.clone().any(|name| glob.matches(name))
        };
        patterns.find(is_unmatched).map(|pattern| &pattern[..])
    }

    /// Returns the mapping with each rule read from right to left.
    ///
    /// The options stay as they are: `[cast]` and `[placements]` apply to the tensors that the inverse computes.
    /// A `drop` has no inverse, nor has a rule whose right side has a slice, `pad` or `cast`.
    pub fn inverse(&self) -> Result<Self, Error> {
        let lines = self.lines.iter().map(Line::inverse).collect::<Result<_, _>>()?;
        Ok(Self { lines, ..self.clone() })
    }

    /// Computes the tensors of the mapping from these sources, as loop nests.
    ///
    /// No element is read. The order of the sources decides the order of the result, see [`Mapped`].
    pub fn apply(&self, sources: &[SourceTensor<'_>]) -> Result<Mapped, Error> {
        apply(self, sources)
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub(crate) fn numbers_map(&self) -> &Numbers {
        &self.numbers
    }

    /// Returns the type that the `[cast]` table has for a name.
    pub(crate) fn cast_of(&self, name: &str) -> Option<Dtype> {
        self.casts.iter().find(|cast| cast.glob.matches(name)).and_then(|cast| cast.to)
    }
}

impl FromStr for Mapping {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let lines =
            text.lines().filter_map(|line| Line::parse(line).transpose()).collect::<Result<_, _>>()?;
        Ok(Self { lines, ..Self::default() })
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
