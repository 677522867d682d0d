//! Composition that is not done: what is not a layout can still be used.
//!
//! ```text
//! (outer o offset o inner)(i)  =  outer(offset + inner(i))
//! ```

use std::fmt;
use std::str::FromStr;

use crate::notation::Cursor;
use crate::{Error, Layout, Operation, Swizzle};

/// What a [`Composed`] applies last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outer {
    /// A layout.
    Layout(Layout),
    /// A swizzle.
    Swizzle(Swizzle),
}

/// The function `i -> outer(offset + inner(i))`, whether it is a layout or not.
///
/// ```
/// use reshard_layout::{Layout, algebra::Composed};
///
/// let (a, b): (Layout, Layout) = ("(12,2):(1,100)".parse()?, "(2,2,2):(3,4,6)".parse()?);
/// assert_eq!(a.compose(&b).unwrap_err().kind(), "not_representable");
/// let lazy = Composed::new(a.into(), 0, b)?;
/// assert_eq!((lazy.size(), lazy.at(7)?), (8, 101));
/// assert_eq!(lazy.to_string(), "(12,2):(1,100) o 0 o (2,2,2):(3,4,6)");
/// assert_eq!(lazy.to_string().parse::<Composed>()?, lazy);
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Composed {
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

    /// The first index beyond the domain; a swizzle takes every index.
    fn size(&self) -> i64 {
        match self {
            Self::Layout(layout) => layout.size(),
            Self::Swizzle(_) => i64::MAX,
        }
    }
}

impl Composed {
    /// The composition, once it is known that all of `offset + inner(i)` lie in the domain of `outer`.
    ///
    /// # Errors
    ///
    /// `out_of_domain`.
    pub fn new(outer: Outer, offset: i64, inner: Layout) -> Result<Self, Error> {
        let size = outer.size();
        for extreme in [inner.min_value(), inner.max_value()] {
            let value = offset.saturating_add(extreme);
            if !(0..size).contains(&value) {
                return Err(Error::OutOfDomain { operation: Operation::Compose, value, size });
            }
        }
        Ok(Self { outer, offset, inner })
    }

    /// What is applied last.
    pub fn outer(&self) -> &Outer {
        &self.outer
    }

    /// What is added to the values of the inner layout.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// What is applied first.
    pub fn inner(&self) -> &Layout {
        &self.inner
    }

    /// The number of indices.
    pub fn size(&self) -> i64 {
        self.inner.size()
    }

    /// The value at `index` in `[0, size)`.
    ///
    /// # Errors
    ///
    /// `out_of_domain`.
    pub fn at(&self, index: i64) -> Result<i64, Error> {
        self.outer.at(self.offset + self.inner.at(index)?)
    }

    /// The layout of the same function, if the offset is 0 and there is one whose shape refines that of `inner`.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::compose`] and [`Swizzle::compose`]; with an offset the function of a layout at index 0 must
    /// be 0, or it is `out_of_domain`.
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

impl fmt::Display for Composed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {} o {}", self.outer, self.offset, self.inner)
    }
}

impl FromStr for Composed {
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
        Self::new(outer, offset, inner)
    }
}
