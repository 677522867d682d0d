//! What an expression evaluates to.

use std::fmt;

use crate::algebra::{Composed, Pattern, Tiler};
use crate::properties::Answer;
use crate::{IntTuple, Layout, Swizzle};

/// The value of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An integer, such as a size.
    Integer(i64),
    /// Yes or no.
    Bool(bool),
    /// Yes, no or unknown.
    Answer(Answer),
    /// A tuple that is not an integer.
    Tuple(IntTuple),
    /// A layout.
    Layout(Layout),
    /// A composition that is not a layout.
    Composed(Box<Composed>),
    /// A swizzle.
    Swizzle(Swizzle),
    /// A tiler.
    Tiler(Tiler),
    /// A coordinate with open places.
    Pattern(Pattern),
}

impl Value {
    /// What kind of value this is, as messages write it.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Self::Integer(_) => "an integer",
            Self::Bool(_) | Self::Answer(_) => "a truth value",
            Self::Tuple(_) => "a tuple",
            Self::Layout(_) => "a layout",
            Self::Composed(_) => "a composition",
            Self::Swizzle(_) => "a swizzle",
            Self::Tiler(_) => "a tiler",
            Self::Pattern(_) => "a pattern",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::Answer(value) => value.fmt(f),
            Self::Tuple(value) => value.fmt(f),
            Self::Layout(value) => value.fmt(f),
            Self::Composed(value) => value.fmt(f),
            Self::Swizzle(value) => value.fmt(f),
            Self::Tiler(value) => value.fmt(f),
            Self::Pattern(value) => value.fmt(f),
        }
    }
}
