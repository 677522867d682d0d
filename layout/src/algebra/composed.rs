//! Lazy composition, for compositions that are not a layout.
//!
//! ```text
//! (outer o offset o inner)(i)  =  outer(offset + inner(i))
//! ```
//!
//! Operations on indices act on the inner layout, because composition is associative:
//! `(A o B) o C = A o (B o C)`. A tile of a swizzled layout is the swizzle of the tile, whatever the swizzle
//! does. So regrouping, division and products of a composition are those of its inner layout
//! ([`map_inner`](ComposedLayout::map_inner)). Operations that need strides or the set of values are not, and are
//! defined separately: [`recast`](ComposedLayout::upcast), [inverses](ComposedLayout::right_inverse).

use std::fmt;
use std::str::FromStr;

use crate::notation::Cursor;
use crate::{Error, IntTuple, Layout, Operation, Swizzle};

/// The function that a [`ComposedLayout`] applies last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum Outer {
    /// A layout.
    Layout(Layout),
    /// A swizzle.
    Swizzle(Swizzle),
}

/// The function `i -> outer(offset + inner(i))`, whether it is a layout or not.
///
/// ```
/// use reshard_layout::{Layout, algebra::ComposedLayout};
///
/// let (a, b): (Layout, Layout) = ("(12,2):(1,100)".parse()?, "(2,2,2):(3,4,6)".parse()?);
/// assert_eq!(a.compose(&b).unwrap_err().code(), "not_representable");
/// let lazy = ComposedLayout::new(a.into(), 0, b)?;
/// assert_eq!((lazy.size(), lazy.at(7)?), (8, 101));
/// assert_eq!(lazy.to_string(), "(12,2):(1,100) o 0 o (2,2,2):(3,4,6)");
/// assert_eq!(lazy.to_string().parse::<ComposedLayout>()?, lazy);
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ComposedLayout {
    outer: Outer,
    offset: i64,
    inner: Layout,
}

impl From<Layout> for Outer {
    fn from(layout: Layout) -> Self {
        Self::Layout(layout)
    }
}

impl From<Swizzle> for Outer {
    fn from(swizzle: Swizzle) -> Self {
        Self::Swizzle(swizzle)
    }
}

impl Outer {
    fn at(&self, index: i64) -> Result<i64, Error> {
        match self {
            Self::Layout(layout) => layout.at(index),
            Self::Swizzle(swizzle) => swizzle.at(index),
        }
    }

    /// Returns the first index beyond the domain; a swizzle takes every index.
    fn size(&self) -> i64 {
        match self {
            Self::Layout(layout) => layout.size(),
            Self::Swizzle(_) => i64::MAX,
        }
    }
}

impl ComposedLayout {
    /// Returns the composition, after checking that all of `offset + inner(i)` are in the domain of `outer`.
    ///
    /// # Errors
    ///
    /// `out_of_domain`; `partial` has no value there instead.
    pub fn new(outer: Outer, offset: i64, inner: Layout) -> Result<Self, Error> {
        let composed = Self::partial(outer, offset, inner);
        composed.check_total()?;
        Ok(composed)
    }

    /// Returns the composition without checking its domain.
    ///
    /// It has no value where `offset + inner(i)` is outside the domain of `outer`.
    ///
    /// It describes a tensor whose tiles extend past its end: its tiles can be named, and those within it can
    /// be read.
    ///
    /// ```
    /// use reshard_layout::{Layout, algebra::ComposedLayout};
    ///
    /// let (a, b): (Layout, Layout) = ("(2,3):(3,1)".parse()?, "(2,4):(1,2)".parse()?);
    /// let partial = ComposedLayout::partial(a.into(), 2, b);
    /// assert_eq!((partial.is_total(), partial.at(3)?), (false, 5));
    /// assert_eq!(partial.at(4).unwrap_err().code(), "out_of_domain");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn partial(outer: Outer, offset: i64, inner: Layout) -> Self {
        Self { outer, offset, inner }
    }

    /// Returns the function `i -> offset + inner(i)`: a layout that begins at another value than 0.
    ///
    /// The outer function is the identity swizzle.
    pub(crate) fn from_offset(offset: i64, inner: Layout) -> Self {
        Self::partial(Swizzle::IDENTITY.into(), offset, inner)
    }

    /// Fails with `out_of_domain` unless every index has a value.
    pub(crate) fn check_total(&self) -> Result<(), Error> {
        match self.outside() {
            None => Ok(()),
            Some(value) => {
                let size = self.outer.size();
                Err(Error::OutOfDomain { operation: Operation::Compose, value, size })
            }
        }
    }

    /// Returns `true` if every index has a value.
    #[doc(hidden)]
    pub fn is_total(&self) -> bool {
        self.outside().is_none()
    }

    /// Returns an extreme of `offset + inner(i)` that is outside the domain of `outer`, if one is.
    fn outside(&self) -> Option<i64> {
        let extremes = [self.inner.min_value(), self.inner.max_value()];
        extremes
            .map(|extreme| self.offset.saturating_add(extreme))
            .into_iter()
            .find(|value| !(0..self.outer.size()).contains(value))
    }

    /// Returns the function that is applied last.
    pub fn outer(&self) -> &Outer {
        &self.outer
    }

    /// Returns the number that is added to the values of the inner layout.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Returns the layout that is applied first.
    pub fn inner(&self) -> &Layout {
        &self.inner
    }

    /// Returns the number of indices.
    pub fn size(&self) -> i64 {
        self.inner.size()
    }

    /// Returns the value at `index` in `[0, size)`.
    ///
    /// # Errors
    ///
    /// `out_of_domain`, for an index beyond the size and where the composition is partial.
    pub fn at(&self, index: i64) -> Result<i64, Error> {
        self.value_of(self.inner.at(index)?)
    }

    /// Returns the value at a coordinate nested like the shape, or less.
    ///
    /// # Errors
    ///
    /// As [`Layout::offset_at`].
    pub fn value_at(&self, coordinate: &IntTuple) -> Result<i64, Error> {
        self.value_of(self.inner.offset_at(coordinate)?)
    }

    /// Returns the value where the inner layout has this one.
    fn value_of(&self, inner: i64) -> Result<i64, Error> {
        // A sum that does not fit is outside every domain.
        self.outer.at(self.offset.saturating_add(inner))
    }

    /// Returns the layout of the same function, if there is one.
    ///
    /// The offset must be 0, and the shape refines that of `inner`.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::compose`] and [`Swizzle::compose`]; with an offset the function of a layout at
    /// index 0 must be 0, or it is `out_of_domain`.
    pub fn to_layout(&self) -> Result<Layout, Error> {
        if self.offset != 0 {
            return Err(Error::OutOfDomain { operation: Operation::Compose, value: self.offset, size: 1 });
        }
        match &self.outer {
            Outer::Layout(outer) => outer.compose(&self.inner),
            Outer::Swizzle(outer) => outer.compose(&self.inner),
        }
    }
}

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(layout) => layout.fmt(f),
            Self::Swizzle(swizzle) => swizzle.fmt(f),
        }
    }
}

impl fmt::Display for ComposedLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {} o {}", self.outer, self.offset, self.inner)
    }
}

impl FromStr for ComposedLayout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut cursor = Cursor::new(text);
        let outer = if cursor.peek() == Some('S') {
            Outer::Swizzle(cursor.swizzle()?)
        } else {
            Outer::Layout(cursor.layout()?)
        };
        cursor.expect('o')?;
        let offset = cursor.integer()?;
        cursor.expect('o')?;
        let inner = cursor.layout()?;
        cursor.finish()?;
        Ok(Self::partial(outer, offset, inner))
    }
}
