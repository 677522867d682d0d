//! What an expression evaluates to.

use std::fmt;

use crate::algebra::{Composed, Pattern, Tiler};
use crate::properties::Answer;
use crate::{At, IntTuple, Layout, Named, Points, Swizzle};

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
    /// A layout of integers.
    Layout(Layout),
    /// A layout that steps along axes.
    Named(Box<Named>),
    /// A layout of pairs.
    Pairs(Box<Named<(At, At)>>),
    /// A point on a mesh, or a tuple of points.
    Points(Box<Points>),
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
            Self::Named(_) => "a layout with axes",
            Self::Pairs(_) => "a layout of pairs",
            Self::Points(_) => "a point",
            Self::Composed(_) => "a composition",
            Self::Swizzle(_) => "a swizzle",
            Self::Tiler(_) => "a tiler",
            Self::Pattern(_) => "a pattern",
        }
    }
}

impl From<IntTuple> for Value {
    fn from(tuple: IntTuple) -> Self {
        match tuple.as_scalar() {
            Some(integer) => Self::Integer(integer),
            None => Self::Tuple(tuple),
        }
    }
}

impl From<Layout> for Value {
    fn from(layout: Layout) -> Self {
        Self::Layout(layout)
    }
}

impl From<Composed> for Value {
    fn from(composed: Composed) -> Self {
        Self::Composed(Box::new(composed))
    }
}

/// Without axes it is a layout of integers.
impl From<Named> for Value {
    fn from(named: Named) -> Self {
        match named.integers() {
            Some(layout) => Self::Layout(layout),
            None => Self::Named(Box::new(named)),
        }
    }
}

impl From<Named<(At, At)>> for Value {
    fn from(pairs: Named<(At, At)>) -> Self {
        Self::Pairs(Box::new(pairs))
    }
}

/// Without axes they are integers.
impl From<Points> for Value {
    fn from(points: Points) -> Self {
        match points.integers() {
            Some(tuple) => tuple.into(),
            None => Self::Points(Box::new(points)),
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
            Self::Named(value) => value.fmt(f),
            Self::Pairs(value) => value.fmt(f),
            Self::Points(value) => value.fmt(f),
            Self::Composed(value) => value.fmt(f),
            Self::Swizzle(value) => value.fmt(f),
            Self::Tiler(value) => value.fmt(f),
            Self::Pattern(value) => value.fmt(f),
        }
    }
}
