//! The strides of modes: elements of a module over the integers.
//!
//! Coalescing, splitting and zipping need of a stride only that it can be multiplied by an extent and
//! compared. So the strides of a layout are elements of a module:
//!
//! ```text
//! i64        memory, ranks                          4:2
//! At         step@axis, CuTe's scaled basis E<k>    4:2@1      a plain number is the local buffer
//! (S, T)     two layouts of one domain              4:(1,8)    a copy: source and target
//! ```
//!
//! Operations that need an order (inverses, complements, products) or a sum as the next argument (the inner
//! operand of a composition) are defined for integers only. A composition after a layout, and so a division,
//! requires no property of its strides: [`NamedLayout::linear`](crate::NamedLayout::linear).

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::str::FromStr;

use smallvec::SmallVec;

use crate::modes::Mode;
use crate::notation::{Cursor, read};
use crate::{Error, IntTuple, Layout, Quantity};

/// An element of a module over the integers that modes can advance by.
///
/// A layout maps an index to `sum_k c_k d_k`, the sum of its strides times the coordinates of the index:
///
/// ```text
/// (s_1, ..., s_n):(d_1, ..., d_n)    maps    i  to  sum_k c_k d_k        d_k in the module
/// ```
///
/// Implementors satisfy the module axioms: `times(1)` is the identity, `times(a).times(b) = times(a b)`, and
/// `goes_on` agrees with [`times`](Self::times). Products are taken only inside the reach of a layout, which
/// `seal` has checked; only `goes_on` goes one step further.
pub trait Stride: Copy + Eq + Hash + fmt::Debug {
    /// The type of sums of strides.
    type Value: Clone + Eq + fmt::Debug + Default;
    /// Bounds on the values of a layout, which guarantee that later operations do not overflow.
    #[doc(hidden)]
    type Reach: Copy + fmt::Debug;
    /// The stride of a broadcast mode.
    const ZERO: Self;

    /// Returns `n` times this stride; requires `n` to be inside the reach of the layout.
    #[must_use]
    fn times(self, n: i64) -> Self;

    /// Returns `true` if `next` is `n` times this stride; `false` where that product does not fit.
    #[doc(hidden)]
    fn goes_on(self, n: i64, next: Self) -> bool;

    /// Adds `n` times this stride to a value.
    #[doc(hidden)]
    fn add_to(self, n: i64, value: &mut Self::Value);

    /// Returns the size and the reach of modes that are known to fit.
    #[doc(hidden)]
    fn known<I: Iterator<Item = Mode<Self>> + Clone>(modes: I) -> (i64, Self::Reach);

    /// Returns the size and the reach of modes, or why they do not fit.
    ///
    /// # Errors
    ///
    /// `bad_extent`, `overflow`.
    #[doc(hidden)]
    fn seal<I: Iterator<Item = Mode<Self>> + Clone>(modes: I) -> Result<(i64, Self::Reach), Error>;
}

/// The least and the greatest value of a layout of integers.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub(crate) min: i64,
    pub(crate) max: i64,
}

fn overflow(quantity: Quantity, left: i64, right: i64) -> Error {
    Error::Overflow { quantity, left, right }
}

impl Stride for i64 {
    type Value = i64;
    type Reach = Span;
    const ZERO: i64 = 0;

    #[inline]
    fn times(self, n: i64) -> i64 {
        self.wrapping_mul(n)
    }

    #[inline]
    fn goes_on(self, n: i64, next: i64) -> bool {
        self.checked_mul(n) == Some(next)
    }

    /// The sum may leave the 64 bits in between, and wraps: the result is a value of the layout, which fits.
    #[inline]
    fn add_to(self, n: i64, value: &mut i64) {
        *value = value.wrapping_add(self.wrapping_mul(n));
    }

    #[inline]
    fn known<I: Iterator<Item = Mode<i64>> + Clone>(modes: I) -> (i64, Span) {
        let (mut size, mut min, mut max) = (1_i64, 0_i64, 0_i64);
        for mode in modes {
            size = size.wrapping_mul(mode.extent);
            let reach = (mode.extent - 1).wrapping_mul(mode.stride);
            min = min.wrapping_add(reach.min(0));
            max = max.wrapping_add(reach.max(0));
        }
        (size, Span { min, max })
    }

    fn seal<I: Iterator<Item = Mode<i64>> + Clone>(modes: I) -> Result<(i64, Span), Error> {
        let (mut size, mut min, mut max) = (1_i64, 0_i64, 0_i64);
        for Mode { extent, stride } in modes {
            if extent < 1 {
                return Err(Error::BadExtent { extent });
            }
            size = size.checked_mul(extent).ok_or_else(|| overflow(Quantity::Size, size, extent))?;
            let reach = (extent - 1).checked_mul(stride);
            let reach = reach.ok_or_else(|| overflow(Quantity::Span, extent, stride))?;
            let bound = if reach < 0 { &mut min } else { &mut max };
            *bound = bound.checked_add(reach).ok_or_else(|| overflow(Quantity::Span, *bound, reach))?;
        }
        if max.checked_sub(min).and_then(|span| span.checked_add(1)).is_none() {
            return Err(overflow(Quantity::Span, min, max));
        }
        Ok((size, Span { min, max }))
    }
}

/// `step` along an axis, or in the local buffer: CuTe's scaled basis element, `step@axis` or a plain number.
///
/// ```
/// use reshard_layout::AxisStride;
///
/// assert_eq!(AxisStride::along(2, 1).to_string(), "2@1");
/// assert_eq!("2@1".parse::<AxisStride>()?, AxisStride::along(2, 1));
/// assert_eq!(AxisStride::local(8).to_string(), "8");
/// assert_eq!((AxisStride::local(8).axis(), AxisStride::along(2, 1).axis()), (None, Some(1)));
/// # Ok::<(), reshard_layout::Error>(())
/// ```
///
/// A step of 0 is 0 along every axis: `0@1`, `0@0` and `0` are equal, and have no axis.
///
/// Source: CuTe's `E<k>` and Axe's named axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AxisStride {
    /// The length of the step.
    step: i64,
    /// The number of the axis and one more; none for a step of 0.
    along: Option<NonZeroU32>,
}

impl AxisStride {
    /// The greatest number of an axis.
    #[doc(hidden)]
    pub const MAX_AXIS: u32 = u32::MAX - 1;

    /// Returns a step in the local buffer.
    #[inline]
    pub const fn local(step: i64) -> AxisStride {
        AxisStride { step, along: None }
    }

    /// Returns a step along an axis; requires a number below `u32::MAX`.
    #[inline]
    pub const fn along(step: i64, axis: u32) -> AxisStride {
        AxisStride { step, along: if step == 0 { None } else { NonZeroU32::new(axis.saturating_add(1)) } }
    }

    /// Returns the length of the step.
    #[inline]
    pub const fn step(self) -> i64 {
        self.step
    }

    /// Returns the axis, if it is not the local buffer; none for a step of 0.
    #[inline]
    pub fn axis(self) -> Option<u32> {
        self.along.map(|n| n.get() - 1)
    }

    /// Returns `true` if it steps in the local buffer, or the step is 0.
    #[inline]
    pub fn is_local(self) -> bool {
        self.along.is_none()
    }

    /// Returns another step in the same direction.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn with_step(self, step: i64) -> AxisStride {
        AxisStride { step, along: if step == 0 { None } else { self.along } }
    }
}

/// A sum of steps: an offset in the local buffer and one coordinate for every axis that occurs.
///
/// ```
/// use reshard_layout::{AxisStride, Layout};
///
/// let layout: Layout<AxisStride> = "(4,2,3):(1,1@0,2@1)".parse()?;
/// assert_eq!(layout.value(23)?.to_string(), "3+1@0+4@1");
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Point {
    /// The offset in the local buffer.
    pub local: i64,
    /// Steps along axes, by axis; none of 0.
    along: SmallVec<[AxisStride; 4]>,
}

impl Point {
    /// Returns the coordinate along an axis.
    pub fn along(&self, axis: u32) -> i64 {
        self.along.iter().find(|at| at.axis() == Some(axis)).map_or(0, |at| at.step)
    }

    /// Returns the steps along axes, by axis; none of 0.
    pub fn steps(&self) -> &[AxisStride] {
        &self.along
    }
}

impl Stride for AxisStride {
    type Value = Point;
    type Reach = ();
    const ZERO: AxisStride = AxisStride::local(0);

    #[inline]
    fn times(self, n: i64) -> AxisStride {
        self.with_step(self.step.wrapping_mul(n))
    }

    #[inline]
    fn goes_on(self, n: i64, next: AxisStride) -> bool {
        self.along == next.along && self.step.checked_mul(n) == Some(next.step)
    }

    fn add_to(self, n: i64, value: &mut Point) {
        let step = self.step.wrapping_mul(n);
        if self.is_local() {
            value.local = value.local.wrapping_add(step);
            return;
        }
        match value.along.binary_search_by_key(&self.along, |at| at.along) {
            Ok(i) => {
                value.along[i].step = value.along[i].step.wrapping_add(step);
                if value.along[i].step == 0 {
                    value.along.remove(i);
                }
            }
            Err(i) if step != 0 => value.along.insert(i, self.with_step(step)),
            Err(_) => {}
        }
    }

    #[inline]
    fn known<I: Iterator<Item = Mode<AxisStride>> + Clone>(modes: I) -> (i64, ()) {
        (modes.map(|mode| mode.extent).product(), ())
    }

    /// Checks that the reach of the layout along each axis fits, and returns its size.
    fn seal<I: Iterator<Item = Mode<AxisStride>> + Clone>(modes: I) -> Result<(i64, ()), Error> {
        // Below the greatest number: the length of an interval of values is its reach plus one.
        let (mut size, mut all) = (1_i64, 0_u64);
        for Mode { extent, stride } in modes.clone() {
            if extent < 1 {
                return Err(Error::BadExtent { extent });
            }
            size = size.checked_mul(extent).ok_or_else(|| overflow(Quantity::Size, size, extent))?;
            all = all.saturating_add(stride.step.unsigned_abs().saturating_mul(extent as u64 - 1));
        }
        if all >= i64::MAX as u64 {
            // The directions do not all fit as one sum: check each separately.
            for mode in modes.clone() {
                let same = modes.clone().filter(|other| other.stride.along == mode.stride.along);
                i64::seal(same.map(|m| m.map(|at| at.step)))?;
            }
        }
        Ok((size, ()))
    }
}

impl<S: Stride, T: Stride> Stride for (S, T) {
    type Value = (S::Value, T::Value);
    type Reach = (S::Reach, T::Reach);
    const ZERO: (S, T) = (S::ZERO, T::ZERO);

    #[inline]
    fn times(self, n: i64) -> (S, T) {
        (self.0.times(n), self.1.times(n))
    }

    #[inline]
    fn goes_on(self, n: i64, next: (S, T)) -> bool {
        self.0.goes_on(n, next.0) && self.1.goes_on(n, next.1)
    }

    fn add_to(self, n: i64, value: &mut Self::Value) {
        self.0.add_to(n, &mut value.0);
        self.1.add_to(n, &mut value.1);
    }

    fn known<I: Iterator<Item = Mode<(S, T)>> + Clone>(modes: I) -> (i64, Self::Reach) {
        let (size, first) = S::known(modes.clone().map(|m| m.map(|d| d.0)));
        (size, (first, T::known(modes.map(|m| m.map(|d| d.1))).1))
    }

    fn seal<I: Iterator<Item = Mode<(S, T)>> + Clone>(modes: I) -> Result<(i64, Self::Reach), Error> {
        let (size, first) = S::seal(modes.clone().map(|m| m.map(|d| d.0)))?;
        Ok((size, (first, T::seal(modes.map(|m| m.map(|d| d.1)))?.1)))
    }
}

impl fmt::Display for AxisStride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.axis() {
            None => self.step.fmt(f),
            Some(axis) => write!(f, "{}@{axis}", self.step),
        }
    }
}

impl FromStr for AxisStride {
    type Err = Error;

    fn from_str(text: &str) -> Result<AxisStride, Error> {
        read(text, <AxisStride as ReadStride>::read)
    }
}

impl Point {
    /// Returns the local offset, if it is not 0 or there is nothing else, and the steps: `3+1@0+4@1`.
    pub(crate) fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        step: impl Fn(&mut fmt::Formatter<'_>, AxisStride) -> fmt::Result,
    ) -> fmt::Result {
        let mut between = "";
        if self.local != 0 || self.along.is_empty() {
            write!(f, "{}", self.local)?;
            between = "+";
        }
        for &at in &self.along {
            f.write_str(between)?;
            step(f, at)?;
            between = "+";
        }
        Ok(())
    }
}

/// Reads steps with a `+` between them.
pub(crate) fn read_point(
    cursor: &mut Cursor<'_>,
    mut step: impl FnMut(&mut Cursor<'_>) -> Result<AxisStride, Error>,
) -> Result<Point, Error> {
    let mut point = Point::default();
    loop {
        let place = cursor.place();
        let at = step(cursor)?;
        let known = at.axis().map_or(point.local, |axis| point.along(axis));
        if known.checked_add(at.step).is_none() {
            return Err(cursor.overflow_at(place));
        }
        at.add_to(1, &mut point);
        if !cursor.eat('+') {
            return Ok(point);
        }
    }
}

impl fmt::Display for Point {
    /// Writes `3+1@0+4@1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |f, at| fmt::Display::fmt(&at, f))
    }
}

impl FromStr for Point {
    type Err = Error;

    fn from_str(text: &str) -> Result<Point, Error> {
        read(text, |cursor| read_point(cursor, <AxisStride as ReadStride>::read))
    }
}

/// A stride that the notation of layouts writes and reads.
pub(crate) trait ReadStride: Stride {
    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Error>;

    /// Returns the strides of a shape, as a layout.
    fn read_strides(cursor: &mut Cursor<'_>, shape: IntTuple) -> Result<Layout<Self>, Error> {
        let strides = cursor.strides_of(&shape, Self::read)?;
        Layout::side_by_side(&shape, strides)
    }
}

impl ReadStride for i64 {
    #[inline]
    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self, f)
    }

    #[inline]
    fn read(cursor: &mut Cursor<'_>) -> Result<i64, Error> {
        cursor.integer()
    }

    fn read_strides(cursor: &mut Cursor<'_>, shape: IntTuple) -> Result<Layout, Error> {
        Layout::new(shape, cursor.tuple()?)
    }
}

impl ReadStride for AxisStride {
    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self, f)
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<AxisStride, Error> {
        let step = cursor.integer()?;
        if !cursor.eat('@') {
            return Ok(AxisStride::local(step));
        }
        let place = cursor.place();
        match u32::try_from(cursor.integer()?) {
            Ok(axis) if axis <= AxisStride::MAX_AXIS => Ok(AxisStride::along(step, axis)),
            Ok(_) | Err(_) => Err(cursor.expected_at(place, "the number of an axis")),
        }
    }
}

impl<S: ReadStride, T: ReadStride> ReadStride for (S, T) {
    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        self.0.write(f)?;
        f.write_str(",")?;
        self.1.write(f)?;
        f.write_str(")")
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<(S, T), Error> {
        cursor.expect('(')?;
        let first = S::read(cursor)?;
        cursor.expect(',')?;
        let second = T::read(cursor)?;
        cursor.expect(')')?;
        Ok((first, second))
    }

    fn read_strides(cursor: &mut Cursor<'_>, shape: IntTuple) -> Result<Layout<(S, T)>, Error> {
        let strides = cursor.nested_strides_of(&shape, Self::read)?;
        Layout::side_by_side(&shape, strides)
    }
}
