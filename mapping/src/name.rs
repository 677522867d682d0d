//! Names of rules: text, `*`, `{x}`, `#` and `$h`.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, ErrorKind, shown};
use crate::number::{Numbers, is_word, value_of};
use crate::pattern::NamePattern;

/// The most variables of one name.
const MOST_VARIABLES: usize = 64;

/// A variable whose text is the same in all names of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Variable {
    /// The k-th `*`.
    Star(usize),
    /// `{x}`.
    Named(String),
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Star(k) => write!(f, "* number {}", k + 1),
            Self::Named(name) => write!(f, "{{{name}}}"),
        }
    }
}

/// A part of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Variable(Variable),
    /// `#`.
    Index,
    /// `$h`.
    Number(String),
}

/// The texts of variables, and the number of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bound {
    pub(crate) texts: BTreeMap<Variable, String>,
    pub(crate) index: Option<usize>,
}

/// A name of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    text: String,
    parts: Vec<Part>,
}

impl Name {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let bad = |why: String| Error::new(ErrorKind::Syntax, why);
        let (mut parts, mut plain, mut rest, mut stars) = (Vec::new(), String::new(), text, 0);
        while let Some(c) = rest.chars().next() {
            let mut after = &rest[c.len_utf8()..];
            let word_end = after.find(|c| !is_word(c)).unwrap_or(after.len());
            let found = match c {
                '*' => {
                    stars += 1;
                    Some(Part::Variable(Variable::Star(stars - 1)))
                }
                '#' => Some(Part::Index),
                '$' if word_end > 0 => {
                    let name = after[..word_end].to_owned();
                    after = &after[word_end..];
                    Some(Part::Number(name))
                }
                '{' if word_end > 0 && after[word_end..].starts_with('}') => {
                    let name = &after[..word_end];
                    if name == "N" || !name.starts_with(char::is_alphabetic) {
                        let use_ = "use a name that begins with a letter, and # for the number of a stack";
                        return Err(bad(format!("`{{{}}}` is not a valid variable; {use_}", shown(name))));
                    }
                    after = &after[word_end + 1..];
                    Some(Part::Variable(Variable::Named(name.to_owned())))
                }
                _ => None,
            };
            match found {
                Some(part) => {
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    parts.push(part);
                }
                None => plain.push(c),
            }
            rest = after;
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        if parts.len() > 2 * MOST_VARIABLES {
            let why = format!("the name `{}` has more than {MOST_VARIABLES} variables", shown(text));
            return Err(Error::new(ErrorKind::TooComplex, why));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the variables, without `#`.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(variable) => Some(variable),
            Part::Text(_) | Part::Index | Part::Number(_) => None,
        })
    }

    /// Returns `true` if the name has a `#`.
    pub(crate) fn has_index(&self) -> bool {
        self.parts.contains(&Part::Index)
    }

    /// Returns the name of a tensor: each variable is replaced by its text.
    pub(crate) fn filled(&self, numbers: &Numbers, bound: &Bound) -> Result<String, Error> {
        let mut name = String::new();
        for part in self.with(numbers, bound)? {
            match part {
                Part::Text(text) => name.push_str(&text),
                // Rules are checked for this when they are parsed.
                Part::Variable(_) | Part::Index | Part::Number(_) => {
                    return Err(unbound(&self.text));
                }
            }
        }
        Ok(name)
    }

    /// Returns the name as a pattern in which known variables are text.
    pub(crate) fn pattern(&self, numbers: &Numbers, bound: &Bound) -> Result<NamePattern, Error> {
        NamePattern::new(self.with(numbers, bound)?)
    }

    /// Returns the parts with known variables replaced by text; adjacent texts are joined.
    fn with(&self, numbers: &Numbers, bound: &Bound) -> Result<Vec<Part>, Error> {
        let mut parts: Vec<Part> = Vec::new();
        for part in &self.parts {
            let text = match part {
                Part::Text(text) => Some(text.clone()),
                Part::Variable(variable) => bound.texts.get(variable).cloned(),
                Part::Index => bound.index.map(|index| index.to_string()),
                Part::Number(name) => Some(value_of(name, numbers)?.to_string()),
            };
            match (text, parts.last_mut()) {
                (Some(text), Some(Part::Text(last))) => last.push_str(&text),
                (Some(text), _) => parts.push(Part::Text(text)),
                (None, _) => parts.push(part.clone()),
            }
        }
        Ok(parts)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the error for a variable that no name on the right side binds.
pub(crate) fn unbound(name: &str) -> Error {
    let message = format!(
        "`{}` has a variable that the first name of the right side lacks; use only variables of that name",
        shown(name)
    );
    Error::new(ErrorKind::Syntax, message)
}
