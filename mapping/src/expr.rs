//! The sides of rules as trees, and their canonical text.

use std::fmt;

use safetensors::Dtype;

use crate::axes::Axes;
use crate::dtype;
use crate::name::Name;
use crate::number::Number;

/// One side of a rule.
///
/// On the right side it computes a tensor, on the left side it splits one. Numbers that are `None` have their
/// default: dim 0, one block, one share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expr {
    Name(Name),
    Cat(Cat),
    Stack { inner: Box<Expr>, dim: Option<Number> },
    Slice { inner: Box<Expr>, ranges: Vec<Vec<Option<Range>>> },
    Pad { inner: Box<Expr>, size: Number, dim: Option<Number> },
    Rearrange { inner: Box<Expr>, axes: Axes },
    Cast { inner: Box<Expr>, to: Dtype },
}

/// A concatenation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cat {
    pub(crate) parts: Vec<Share>,
    pub(crate) dim: Option<Number>,
    pub(crate) blocks: Option<Number>,
    /// `true` for `|`: concatenated on each rank.
    pub(crate) local: bool,
}

/// A part of a concatenation, with the number of its shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) shares: Option<Number>,
    pub(crate) expr: Expr,
}

/// The indices `start .. stop` of a dim; without `stop` up to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: Number,
    pub(crate) stop: Option<Number>,
}

impl Expr {
    /// Calls a function with each name, and `true` for those within a stack, from left to right.
    pub(crate) fn each_name<'a>(&'a self, in_stack: bool, call: &mut impl FnMut(&'a Name, bool)) {
        match self {
            Self::Name(name) => call(name, in_stack),
            Self::Cat(cat) => cat.parts.iter().for_each(|part| part.expr.each_name(in_stack, call)),
            Self::Stack { inner, .. } => inner.each_name(true, call),
            Self::Slice { inner, .. }
            | Self::Pad { inner, .. }
            | Self::Rearrange { inner, .. }
            | Self::Cast { inner, .. } => inner.each_name(in_stack, call),
        }
    }

    /// Returns the first name, whose matches are the matches of the rule.
    pub(crate) fn first_name(&self) -> Option<&Name> {
        match self {
            Self::Name(name) => Some(name),
            Self::Cat(cat) => cat.parts.first().and_then(|part| part.expr.first_name()),
            Self::Stack { inner, .. }
            | Self::Slice { inner, .. }
            | Self::Pad { inner, .. }
            | Self::Rearrange { inner, .. }
            | Self::Cast { inner, .. } => inner.first_name(),
        }
    }
}

impl Cat {
    /// Writes the parts without `on` and `by`.
    pub(crate) fn write_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, part) in self.parts.iter().enumerate() {
            if k > 0 {
                f.write_str(if self.local { " | " } else { " + " })?;
            }
            if let Some(shares) = &part.shares {
                write!(f, "{shares} ")?;
            }
            write!(f, "{}", part.expr)?;
        }
        Ok(())
    }

    /// Writes ` on DIM by BLOCKS`.
    pub(crate) fn write_dim(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_on(self.dim.as_ref(), f)?;
        self.blocks.as_ref().map_or(Ok(()), |blocks| write!(f, " by {blocks}"))
    }
}

fn write_on(dim: Option<&Number>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    dim.map_or(Ok(()), |dim| write!(f, " on {dim}"))
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Cat(cat) => {
                f.write_str("cat(")?;
                cat.write_parts(f)?;
                cat.write_dim(f)?;
                f.write_str(")")
            }
            Self::Stack { inner, dim } => {
                write!(f, "stack({inner}")?;
                write_on(dim.as_ref(), f)?;
                f.write_str(")")
            }
            Self::Slice { inner, ranges } => {
                write!(f, "{inner}")?;
                for group in ranges {
                    let texts: Vec<String> = group.iter().map(|range| range_text(range.as_ref())).collect();
                    write!(f, "[{}]", texts.join(", "))?;
                }
                Ok(())
            }
            Self::Pad { inner, size, dim } => {
                write!(f, "pad({inner}, {size}")?;
                write_on(dim.as_ref(), f)?;
                f.write_str(")")
            }
            Self::Rearrange { inner, axes } => write!(f, "rearrange({inner}, {axes})"),
            Self::Cast { inner, to } => write!(f, "cast({inner}, {})", dtype::name(*to).unwrap_or("?")),
        }
    }
}

fn range_text(range: Option<&Range>) -> String {
    let Some(range) = range else { return ":".to_owned() };
    range.stop.as_ref().map_or_else(|| format!("{}:", range.start), |stop| format!("{}:{stop}", range.start))
}
