//! Layouts and points whose axes have names: `(4,2):(1@tp,8)`.
//!
//! [`AxisStride`] and [`Point`] number their axes. Here a table gives every number its name, in order of first
//! appearance, so `==` is structural, and `Display` and `FromStr` are inverse of each other. A name is that
//! of a mesh axis, or a plain number: CuTe's unnamed basis, as in `1@0`.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

mod linear;
mod points;

pub use points::NamedPoint;

use crate::modes::{Mode, Modes};
use crate::notation::{Cursor, read, write_layout};
use crate::stride::{AxisStride, Stride};
use crate::{Error, IntTuple, Layout, Point};

/// The names of axes `0, 1, ...`, all different.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Names(SmallVec<[Arc<str>; 4]>);

impl Deref for Names {
    type Target = [Arc<str>];

    fn deref(&self) -> &[Arc<str>] {
        &self.0
    }
}

impl Names {
    /// Returns the number of a name, which is the next one if it is new.
    fn number(&mut self, name: &Arc<str>) -> u32 {
        let known = self.0.iter().position(|other| other == name);
        known.unwrap_or_else(|| {
            self.0.push(name.clone());
            self.0.len() - 1
        }) as u32
    }

    /// Writes `1@tp`, or a plain number for the local buffer.
    fn write(&self, at: AxisStride, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", at.step())?;
        match at.axis().and_then(|axis| self.0.get(axis as usize)) {
            Some(name) => write!(f, "@{name}"),
            None => Ok(()),
        }
    }

    /// Returns the text that [`write`](Self::write) writes.
    fn text(&self, at: AxisStride) -> String {
        match at.axis().and_then(|axis| self.0.get(axis as usize)) {
            Some(name) => format!("{}@{name}", at.step()),
            None => at.step().to_string(),
        }
    }

    /// Reads the text that [`write`](Self::write) writes.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<AxisStride, Error> {
        let step = cursor.integer()?;
        if !cursor.eat('@') {
            return Ok(AxisStride::local(step));
        }
        let name = cursor.axis()?;
        // 0 is 0 along every axis, and names none.
        Ok(if step == 0 { AxisStride::ZERO } else { AxisStride::along(step, self.number(&name)) })
    }
}

/// A stride of which each axis has a name: a step, or two of them.
pub(crate) trait NamedStride: Stride {
    /// Returns the same with other numbers of axes.
    #[must_use]
    fn renumber(self, to: &mut impl FnMut(u32) -> u32) -> Self;

    fn write(self, names: &Names, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Returns the strides of a shape.
    fn read_strides(
        cursor: &mut Cursor<'_>,
        shape: &IntTuple,
        names: &mut Names,
    ) -> Result<SmallVec<[Self; 8]>, Error>;

    /// Returns the steps, one or two.
    fn steps(self) -> SmallVec<[AxisStride; 2]>;

    /// Returns the stride of these steps, of which a single one takes the first.
    fn of_steps(steps: [AxisStride; 2]) -> Self;

    /// Returns the points of a value, one or two.
    fn points(value: Self::Value) -> SmallVec<[Point; 2]>;
}

impl NamedStride for AxisStride {
    fn renumber(self, to: &mut impl FnMut(u32) -> u32) -> AxisStride {
        self.axis().map_or(AxisStride::local(self.step()), |axis| AxisStride::along(self.step(), to(axis)))
    }

    fn write(self, names: &Names, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        names.write(self, f)
    }

    fn read_strides(
        cursor: &mut Cursor<'_>,
        shape: &IntTuple,
        names: &mut Names,
    ) -> Result<SmallVec<[AxisStride; 8]>, Error> {
        cursor.strides_of(shape, |cursor| names.read(cursor))
    }

    fn steps(self) -> SmallVec<[AxisStride; 2]> {
        SmallVec::from_slice(&[self])
    }

    fn of_steps([at, _]: [AxisStride; 2]) -> AxisStride {
        at
    }

    fn points(value: Point) -> SmallVec<[Point; 2]> {
        [value].into_iter().collect()
    }
}

impl NamedStride for (AxisStride, AxisStride) {
    fn renumber(self, to: &mut impl FnMut(u32) -> u32) -> (AxisStride, AxisStride) {
        (self.0.renumber(to), self.1.renumber(to))
    }

    fn write(self, names: &Names, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        names.write(self.0, f)?;
        f.write_str(",")?;
        names.write(self.1, f)?;
        f.write_str(")")
    }

    fn read_strides(
        cursor: &mut Cursor<'_>,
        shape: &IntTuple,
        names: &mut Names,
    ) -> Result<SmallVec<[(AxisStride, AxisStride); 8]>, Error> {
        cursor.nested_strides_of(shape, |cursor| {
            cursor.expect('(')?;
            let first = names.read(cursor)?;
            cursor.expect(',')?;
            let second = names.read(cursor)?;
            cursor.expect(')')?;
            Ok((first, second))
        })
    }

    fn steps(self) -> SmallVec<[AxisStride; 2]> {
        SmallVec::from_slice(&[self.0, self.1])
    }

    fn of_steps([first, second]: [AxisStride; 2]) -> (AxisStride, AxisStride) {
        (first, second)
    }

    fn points(value: (Point, Point)) -> SmallVec<[Point; 2]> {
        [value.0, value.1].into_iter().collect()
    }
}

/// A layout whose steps go along named axes, or a layout of pairs of such steps, with the names.
///
/// ```
/// use reshard_layout::{AxisStride, NamedLayout};
///
/// let a: NamedLayout = "(4,2):(1@tp,4@tp)".parse()?;
/// assert_eq!(a.names().collect::<Vec<_>>(), ["tp"]);
/// assert_eq!(a.try_map(|a| Ok(a.coalesce()))?.to_string(), "8:1@tp");
/// assert_eq!("(4,2):(1@tp,8)".parse::<NamedLayout>()?.value(7)?.to_string(), "8+3@tp");
///
/// let copy: NamedLayout<(AxisStride, AxisStride)> = "(4,2):((1,1@tp),(4,1@dp))".parse()?;
/// assert_eq!(copy.value(5)?.to_string(), "(5,1@tp+1@dp)");
/// # Ok::<(), reshard_layout::Error>(())
/// ```
///
/// A name is a letter or `_`, then letters, digits, `_`, `-`, `.` or `/`, as of a mesh axis, or a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedLayout<S: Stride = AxisStride> {
    /// Its axes are numbered in order of first appearance.
    layout: Layout<S>,
    names: Names,
}

#[allow(private_bounds, reason = "the strides that have names are those of this crate")]
impl<S: NamedStride> NamedLayout<S> {
    /// Returns a layout and the name of each of its axes; axes of one name become one.
    ///
    /// ```
    /// use reshard_layout::{AxisStride, Layout, NamedLayout};
    ///
    /// let layout: Layout<AxisStride> = "(4,2):(1@1,1@0)".parse()?;
    /// assert_eq!(NamedLayout::new(&layout, |axis| ["dp", "tp"][axis as usize])?.to_string(), "(4,2):(1@tp,1@dp)");
    /// assert_eq!(NamedLayout::new(&layout, |_| "2dp").unwrap_err().code(), "parse");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `parse` for an invalid name; `overflow`.
    pub fn new<N: AsRef<str>>(layout: &Layout<S>, mut name: impl FnMut(u32) -> N) -> Result<Self, Error> {
        let (mut names, mut bad) = (Names::default(), None);
        let layout = layout.map(|stride| {
            stride.renumber(&mut |axis| match read(name(axis).as_ref(), Cursor::axis) {
                Ok(name) => names.number(&name),
                Err(error) => {
                    bad.get_or_insert(error);
                    0
                }
            })
        });
        if let Some(error) = bad {
            return Err(error);
        }
        Ok(Self { layout: layout?, names })
    }

    /// Returns a layout whose axes are numbered in this table, some of which may not occur.
    fn of(layout: &Layout<S>, names: &Names) -> Result<Self, Error> {
        let mut own = Names::default();
        let layout = layout.map(|stride| {
            stride.renumber(&mut |axis| names.get(axis as usize).map_or(0, |n| own.number(n)))
        })?;
        Ok(Self { layout, names: own })
    }

    /// Returns the layout of a shape whose strides were read with these names.
    pub(crate) fn read(shape: &IntTuple, strides: SmallVec<[S; 8]>, names: Names) -> Result<Self, Error> {
        Ok(Self { layout: Layout::side_by_side(shape, strides)?, names })
    }

    /// Returns the layout, with its axes numbered as they first appear.
    pub fn layout(&self) -> &Layout<S> {
        &self.layout
    }

    /// Returns the names of the axes `0, 1, ...` of the layout.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.names.iter().map(Deref::deref)
    }

    /// Returns the result of an operation on the layout, with the same names.
    ///
    /// ```
    /// use reshard_layout::NamedLayout;
    ///
    /// let a: NamedLayout = "(4,2):(1@tp,1@dp)".parse()?;
    /// assert_eq!(a.try_map(|a| a.mode(1))?.to_string(), "2:1@dp");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// That of the operation.
    pub fn try_map<T: NamedStride>(
        &self,
        operation: impl FnOnce(&Layout<S>) -> Result<Layout<T>, Error>,
    ) -> Result<NamedLayout<T>, Error> {
        NamedLayout::of(&operation(&self.layout)?, &self.names)
    }

    /// Returns the layout with its axes numbered in a table that others share.
    fn numbered(&self, names: &mut Names) -> Result<Layout<S>, Error> {
        self.layout.map(|stride| {
            stride.renumber(&mut |axis| self.names.get(axis as usize).map_or(0, |name| names.number(name)))
        })
    }

    /// Returns the tuple of these layouts, as [`Layout::concat`]; axes of one name are one.
    ///
    /// ```
    /// use reshard_layout::NamedLayout;
    ///
    /// let both = NamedLayout::concat(&["4:1@tp".parse::<NamedLayout>()?, "(2,3):(1@dp,4@tp)".parse()?])?;
    /// assert_eq!(both.to_string(), "(4,(2,3)):(1@tp,(1@dp,4@tp))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `overflow`, `too_deep`, `too_large`.
    pub fn concat(modes: &[Self]) -> Result<Self, Error> {
        let mut names = Names::default();
        let modes: Result<Vec<_>, _> = modes.iter().map(|mode| mode.numbered(&mut names)).collect();
        Ok(Self { layout: Layout::tuple(&modes?)?, names })
    }

    /// Returns `true` if both are the same function on the same domain; axes of one name are one.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let mut names = self.names.clone();
        other.numbered(&mut names).is_ok_and(|other| self.layout.is_equivalent(&other))
    }

    /// Returns the value at an index.
    ///
    /// # Errors
    ///
    /// `out_of_domain`.
    pub fn value(&self, index: i64) -> Result<NamedPoint, Error> {
        Ok(NamedPoint::of_value::<S>(self.layout.value(index)?, &self.names))
    }

    /// Returns the value at a coordinate nested like the shape, or less, as [`Layout::offset_at`].
    ///
    /// # Errors
    ///
    /// `no_such_mode`, `out_of_domain`.
    pub fn value_at(&self, coordinate: &IntTuple) -> Result<NamedPoint, Error> {
        // The coordinate is an index of the compact layout of this shape.
        let mut below = 1;
        let compact = self.layout.flat().iter().map(|mode| {
            let stride = below;
            below *= mode.extent;
            Mode { extent: mode.extent, stride }
        });
        let compact = Layout::known(compact.collect(), self.layout.profile().clone());
        self.value(compact.offset_at(coordinate)?)
    }

    /// Returns the strides, congruent to the shape; a layout of pairs has a pair for every leaf.
    ///
    /// # Errors
    ///
    /// `too_deep`, `too_large` where pairs are deeper or more than a tuple can be.
    pub fn stride(&self) -> Result<NamedPoint, Error> {
        NamedPoint::of_strides(&self.layout, &self.names)
    }
}

impl NamedLayout {
    /// Returns the layout of integers, if no axis occurs.
    #[doc(hidden)]
    pub fn integers(&self) -> Option<Layout> {
        let modes = || self.layout.flat().iter().map(|mode| mode.map(AxisStride::step)).collect::<Modes>();
        self.names.is_empty().then(|| Layout::known(modes(), self.layout.profile().clone()))
    }

    /// Returns both layouts side by side, as [`Layout::zip`]; axes of one name are one.
    ///
    /// ```
    /// use reshard_layout::NamedLayout;
    ///
    /// let (a, b): (NamedLayout, NamedLayout) = ("12:1".parse()?, "(3,4):(1@tp,1@dp)".parse()?);
    /// assert_eq!(a.zip(&b)?.to_string(), "(3,4):((1,1@tp),(3,1@dp))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `not_nesting`.
    pub fn zip(&self, other: &NamedLayout) -> Result<NamedLayout<(AxisStride, AxisStride)>, Error> {
        let mut names = self.names.clone();
        let other = other.numbered(&mut names)?;
        NamedLayout::of(&self.layout.zip(&other)?, &names)
    }
}

impl From<&Layout> for NamedLayout {
    /// Steps in the local buffer.
    fn from(layout: &Layout) -> NamedLayout {
        let modes = layout.flat().iter().map(|mode| mode.map(AxisStride::local)).collect();
        NamedLayout { layout: Layout::known(modes, layout.profile().clone()), names: Names::default() }
    }
}

#[allow(private_bounds, reason = "the strides that have names are those of this crate")]
impl<S: NamedStride> fmt::Display for NamedLayout<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_layout(f, &self.layout, |f, stride| stride.write(&self.names, f))
    }
}

/// Reads a layout with the names of its axes, the inverse of `Display`.
#[allow(private_bounds, reason = "the strides that have names are those of this crate")]
impl<S: NamedStride> FromStr for NamedLayout<S> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text, |cursor| {
            let shape = cursor.tuple()?;
            cursor.expect(':')?;
            let mut names = Names::default();
            let strides = S::read_strides(cursor, &shape, &mut names)?;
            Self::read(&shape, strides, names)
        })
    }
}
