//! The values of expressions.

use std::fmt;

use crate::algebra::{ComposedLayout, Outer, SlicePattern, Tiler};
use crate::properties::Answer;
use crate::{AxisStride, Error, IntTuple, Layout, NamedLayout, NamedPoint, Swizzle};

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
    Named(Box<NamedLayout>),
    /// A layout of pairs.
    Pairs(Box<NamedLayout<(AxisStride, AxisStride)>>),
    /// A point on a mesh, or a tuple of points.
    Points(Box<NamedPoint>),
    /// A composition that is not a layout.
    Composed(Box<ComposedLayout>),
    /// A swizzle.
    Swizzle(Swizzle),
    /// A tiler.
    Tiler(Tiler),
    /// A coordinate with open positions.
    Pattern(SlicePattern),
}

/// Access to a value as one kind: `None` for every other kind.
impl Value {
    /// Returns the integer that this is.
    #[doc(hidden)]
    pub fn as_integer(&self) -> Option<i64> {
        if let Self::Integer(integer) = self { Some(*integer) } else { None }
    }

    /// Returns the tuple that this is; an integer is one.
    ///
    /// ```
    /// use reshard_layout::expression::evaluate;
    ///
    /// assert_eq!(evaluate("shape((4,2):(1,4))")?.to_tuple(), Some("(4,2)".parse()?));
    /// assert_eq!(evaluate("(4,2):(1,4)")?.to_tuple(), None);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn to_tuple(&self) -> Option<IntTuple> {
        if let Self::Tuple(tuple) = self {
            Some(tuple.clone())
        } else {
            self.as_integer().map(IntTuple::scalar)
        }
    }

    /// Returns the layout of integers that this is.
    #[doc(hidden)]
    pub fn as_layout(&self) -> Option<&Layout> {
        if let Self::Layout(layout) = self { Some(layout) } else { None }
    }

    /// Returns the layout with axes that this is.
    #[doc(hidden)]
    pub fn as_named(&self) -> Option<&NamedLayout> {
        if let Self::Named(named) = self { Some(named) } else { None }
    }

    /// Returns the layout of pairs that this is.
    #[doc(hidden)]
    pub fn as_pairs(&self) -> Option<&NamedLayout<(AxisStride, AxisStride)>> {
        if let Self::Pairs(pairs) = self { Some(pairs) } else { None }
    }

    /// Returns the composition that this is.
    #[doc(hidden)]
    pub fn as_composed(&self) -> Option<&ComposedLayout> {
        if let Self::Composed(composed) = self { Some(composed) } else { None }
    }

    /// Returns the swizzle that this is.
    pub(crate) fn as_swizzle(&self) -> Option<Swizzle> {
        if let Self::Swizzle(swizzle) = self { Some(*swizzle) } else { None }
    }

    /// Returns the pattern that this is.
    pub(crate) fn as_pattern(&self) -> Option<&SlicePattern> {
        if let Self::Pattern(pattern) = self { Some(pattern) } else { None }
    }

    /// Returns the layout or composition that this is.
    pub(crate) fn to_composed(&self) -> Option<ComposedLayout> {
        self.as_composed().cloned().or_else(|| self.as_layout().cloned().map(ComposedLayout::from))
    }

    /// Returns the value as an outer function: a layout or a swizzle.
    #[doc(hidden)]
    pub fn to_outer(&self) -> Option<Outer> {
        self.as_swizzle().map(Outer::from).or_else(|| self.as_layout().cloned().map(Outer::from))
    }

    /// Returns the extents, of whatever kind the layout is.
    #[doc(hidden)]
    pub fn shape(&self) -> Option<IntTuple> {
        let integers = self.as_layout().or_else(|| self.as_composed().map(ComposedLayout::inner));
        integers
            .map(Layout::shape)
            .or_else(|| self.as_named().map(|named| named.layout().shape()))
            .or_else(|| self.as_pairs().map(|pairs| pairs.layout().shape()))
    }

    /// Returns the value at an index or a coordinate, if this is a function of these.
    pub(super) fn at(&self, coordinate: &IntTuple) -> Option<Result<Self, Error>> {
        if let Some(named) = self.as_named() {
            return Some(named.value_at(coordinate).map(Self::from));
        }
        if let Some(pairs) = self.as_pairs() {
            return Some(pairs.value_at(coordinate).map(Self::from));
        }
        let integers = self.as_layout().map(|layout| layout.offset_at(coordinate));
        integers
            .or_else(|| self.as_composed().map(|composed| composed.value_at(coordinate)))
            .map(|value| value.map(Self::Integer))
    }

    /// Returns the kind of the value, as used in messages.
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

impl From<ComposedLayout> for Value {
    fn from(composed: ComposedLayout) -> Self {
        Self::Composed(Box::new(composed))
    }
}

impl Value {
    /// Returns the layout, where nothing is applied last and the first value is 0; else the composition.
    pub(super) fn of_composed(composed: ComposedLayout) -> Self {
        if composed.is_layout() { Self::Layout(composed.inner().clone()) } else { composed.into() }
    }

    /// Returns the same value, a layout where it is one that is written as a composition.
    pub(super) fn plain(self) -> Self {
        if let Self::Composed(composed) = self { Self::of_composed(*composed) } else { self }
    }

    /// Returns `true` if [`plain`](Self::plain) changes the value.
    pub(super) fn is_plain_composition(&self) -> bool {
        self.as_composed().is_some_and(ComposedLayout::is_layout)
    }
}

/// Without axes it is a layout of integers.
impl From<NamedLayout> for Value {
    fn from(named: NamedLayout) -> Self {
        match named.integers() {
            Some(layout) => Self::Layout(layout),
            None => Self::Named(Box::new(named)),
        }
    }
}

impl From<NamedLayout<(AxisStride, AxisStride)>> for Value {
    fn from(pairs: NamedLayout<(AxisStride, AxisStride)>) -> Self {
        Self::Pairs(Box::new(pairs))
    }
}

/// Without axes they are integers.
impl From<NamedPoint> for Value {
    fn from(points: NamedPoint) -> Self {
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
