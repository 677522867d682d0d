//! Rules, `drop` lines, and the checks of a rule that need no tensors.

use std::fmt;

use crate::error::{Error, ErrorKind, shown};
use crate::expr::Expr;
use crate::glob::Glob;
use crate::name::{Name, unbound};
use crate::parse;

/// The longest line of a mapping, in bytes.
const MOST_BYTES: usize = 1 << 16;

/// A line of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Rule(Rule),
    Drop(DropLine),
}

/// The left side is made from the right side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) left: Expr,
    pub(crate) right: Expr,
}

/// `drop PATTERN`, or `drop PATTERN == NAME`: drops tensors, the latter only if they equal another one.
#[derive(Clone, Debug)]
pub(crate) struct DropLine {
    pattern: String,
    pub(crate) glob: Glob,
    pub(crate) same: Option<String>,
}

impl PartialEq for DropLine {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.same == other.same
    }
}

impl Eq for DropLine {}

impl Line {
    /// Parses a line; `None` if it is empty or a comment.
    pub(crate) fn parse(line: &str) -> Result<Option<Self>, Error> {
        let text = line.split_once("//").map_or(line, |(text, _)| text).trim();
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > MOST_BYTES {
            let message = format!("a rule has {} bytes, over the limit of {MOST_BYTES}", text.len());
            return Err(Error::new(ErrorKind::TooLarge, message).in_rule(text));
        }
        let parsed = match text.strip_prefix("drop ") {
            Some(rest) => DropLine::parse(rest).map(Self::Drop),
            None => Rule::parse(text).map(Self::Rule),
        };
        parsed.map(Some).map_err(|error| error.in_rule(text))
    }

    /// Returns the rule that computes the right side from the left one.
    pub(crate) fn inverse(&self) -> Result<Self, Error> {
        let inverse = match self {
            Self::Rule(rule) => Rule::new(rule.right.clone(), rule.left.clone()).map(Self::Rule),
            Self::Drop(_) => {
                let message =
                    "a dropped tensor cannot be computed from the others; write a rule that makes it";
                Err(Error::new(ErrorKind::NotInvertible, message))
            }
        };
        inverse.map_err(|error| error.in_rule(&self.to_string()))
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Self, Error> {
        let (left, right) = parse::rule(text)?;
        Self::new(left, right)
    }

    /// Returns a rule, if its left side can be split and the first name of the right side binds all variables.
    fn new(left: Expr, right: Expr) -> Result<Self, Error> {
        splits(&left)?;
        stacks(&left, false)?;
        stacks(&right, false)?;
        let bound: Vec<_> = right.first_name().into_iter().flat_map(Name::variables).collect();
        let mut result = Ok(());
        for side in [&right, &left] {
            side.each_name(false, &mut |name, in_stack| {
                if result.is_err() {
                    return;
                }
                if name.variables().any(|variable| !bound.contains(&variable)) {
                    result = Err(unbound(name.text()));
                } else if name.has_index() && !in_stack {
                    let message = format!("`{}` has a # outside of stack(..)", shown(name.text()));
                    result = Err(Error::new(ErrorKind::Syntax, message));
                }
            });
        }
        let rule = result.map(|()| Self { left, right })?;
        // A rule that makes a tensor named `drop` reads as a `drop` line.
        if rule.to_string().starts_with("drop ") {
            let message = "a tensor named `drop` cannot be made by a rule; make it under another name";
            return Err(Error::new(ErrorKind::Syntax, message));
        }
        Ok(rule)
    }
}

/// Returns an error for a left side that cannot be split.
fn splits(left: &Expr) -> Result<(), Error> {
    let what = match left {
        Expr::Name(_) => return Ok(()),
        Expr::Cat(cat) => return cat.parts.iter().try_for_each(|part| splits(&part.expr)),
        Expr::Stack { inner, .. } | Expr::Rearrange { inner, .. } => return splits(inner),
        Expr::Slice { .. } => "a slice",
        Expr::Pad { .. } => "pad",
        Expr::Cast { .. } => "cast",
    };
    let message =
        format!("{what} on the side that is made does not define all of a tensor; use it on the right side");
    Err(Error::new(ErrorKind::NotInvertible, message))
}

/// Returns an error for nested stacks, and for a stack whose first name has no `#`.
fn stacks(expr: &Expr, in_stack: bool) -> Result<(), Error> {
    match expr {
        Expr::Name(_) => Ok(()),
        Expr::Cat(cat) => cat.parts.iter().try_for_each(|part| stacks(&part.expr, in_stack)),
        Expr::Stack { .. } if in_stack => {
            let message = "a stack within a stack; stack one dim by each mapping";
            Err(Error::new(ErrorKind::Syntax, message))
        }
        Expr::Stack { inner, .. } => match inner.first_name() {
            Some(name) if name.has_index() => stacks(inner, true),
            Some(_) | None => {
                let message =
                    format!("the first name in `{expr}` has no #, the number that it is stacked over");
                Err(Error::new(ErrorKind::Syntax, message))
            }
        },
        Expr::Slice { inner, .. }
        | Expr::Pad { inner, .. }
        | Expr::Rearrange { inner, .. }
        | Expr::Cast { inner, .. } => stacks(inner, in_stack),
    }
}

impl DropLine {
    fn parse(text: &str) -> Result<Self, Error> {
        let (pattern, same) = match text.split_once(" == ") {
            Some((pattern, same)) => (pattern.trim(), Some(same.trim())),
            None => (text.trim(), None),
        };
        let is_name = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
        if !is_name(pattern) || !same.is_none_or(is_name) {
            let message = "expected `drop PATTERN` or `drop PATTERN == NAME`, without blanks in names";
            return Err(Error::new(ErrorKind::Syntax, message));
        }
        let same = same.map(str::to_owned);
        Ok(Self { pattern: pattern.to_owned(), glob: Glob::new(pattern), same })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Drop(drop) => drop.fmt(f),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let right = if let Expr::Cat(cat) = &self.right { Some(cat) } else { None };
        let left = if let Expr::Cat(cat) = &self.left { Some(cat) } else { None };
        match left {
            Some(cat) => {
                cat.write_parts(f)?;
                if right.is_some() {
                    cat.write_dim(f)?;
                }
            }
            None => write!(f, "{}", self.left)?,
        }
        f.write_str(" = ")?;
        match (right, left) {
            (Some(cat), _) => {
                cat.write_parts(f)?;
                cat.write_dim(f)
            }
            (None, Some(cat)) => {
                write!(f, "{}", self.right)?;
                cat.write_dim(f)
            }
            (None, None) => write!(f, "{}", self.right),
        }
    }
}

impl fmt::Display for DropLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drop {}", self.pattern)?;
        self.same.as_ref().map_or(Ok(()), |same| write!(f, " == {same}"))
    }
}
