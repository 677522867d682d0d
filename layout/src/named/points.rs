//! Points with the names of their axes: the values and strides of layouts with named axes.

use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;

use super::{NamedStride, Names};
use crate::notation::{Cursor, read, write_tuple};
use crate::profile::{MAX_DEPTH, MAX_LEAVES, Nest, Profile};
use crate::stride::{AxisStride, Point, Stride, read_point};
use crate::{Counted, Error, IntTuple, Layout};

/// A point `3+1@tp`, or a nested tuple of points, with the names of the axes.
///
/// ```
/// use reshard_layout::{NamedLayout, NamedPoint};
///
/// let a: NamedLayout = "(4,(2,3)):(1,(1@tp,1@dp))".parse()?;
/// assert_eq!(a.value(15)?.to_string(), "3+1@tp+1@dp");
/// assert_eq!(a.stride()?.to_string(), "(1,(1@tp,1@dp))");
/// assert_eq!("(1,(1@tp,1@dp))".parse::<NamedPoint>()?, a.stride()?);
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPoint {
    /// Their axes are numbered in order of first appearance.
    flat: SmallVec<[Point; 2]>,
    profile: Profile,
    names: Names,
}

impl NamedPoint {
    /// Points whose axes are numbered in this table, some of which may not occur.
    fn of(points: impl Iterator<Item = Point>, profile: Profile, names: &Names) -> NamedPoint {
        let mut own = Names::default();
        let points = points.map(|point| {
            let mut renumbered = Point::from(AxisStride::local(point.local));
            for at in point.steps() {
                at.renumber(&mut |axis| names.get(axis as usize).map_or(0, |name| own.number(name)))
                    .add_to(1, &mut renumbered);
            }
            renumbered
        });
        NamedPoint { flat: points.collect(), profile, names: own }
    }

    /// Returns the value of a layout: a point, or a pair of them.
    pub(super) fn of_value<S: NamedStride>(value: S::Value, names: &Names) -> NamedPoint {
        let points = S::points(value);
        let profile = if points.len() == 1 { Profile::scalar() } else { Profile::flat(points.len()) };
        NamedPoint::of(points.into_iter(), profile, names)
    }

    /// Returns the strides of a layout; pairs are tuples.
    pub(super) fn of_strides<S: NamedStride>(layout: &Layout<S>, names: &Names) -> Result<NamedPoint, Error> {
        let (mut points, mut nests) = (SmallVec::<[Point; 2]>::new(), SmallVec::<[Nest; 8]>::new());
        let mut pairs = false;
        for (mode, nest) in layout.flat().iter().zip(layout.profile().nests()) {
            let steps = mode.stride.steps();
            pairs |= steps.len() > 1;
            if pairs {
                nests.extend([
                    Nest { open: nest.open + 1, close: 0 },
                    Nest { open: 0, close: nest.close + 1 },
                ]);
            } else {
                nests.push(*nest);
            }
            points.extend(steps.into_iter().map(Point::from));
        }
        if nests.len() > MAX_LEAVES {
            return Err(Error::TooLarge { what: Counted::Leaves, limit: MAX_LEAVES });
        }
        if pairs && layout.depth() >= MAX_DEPTH {
            return Err(Error::TooDeep { limit: MAX_DEPTH });
        }
        Ok(NamedPoint::of(points.into_iter(), Profile::from_nests(nests), names))
    }

    /// Returns `true` if this is one point and not a tuple.
    #[doc(hidden)]
    pub fn is_scalar(&self) -> bool {
        self.profile.is_scalar()
    }

    /// Returns the points, leftmost first, with their axes numbered as they first appear.
    pub fn points(&self) -> &[Point] {
        &self.flat
    }

    /// Returns the names of the axes `0, 1, ...`.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.names.iter().map(|name| &**name)
    }

    /// Returns the integers, if no axis occurs.
    #[doc(hidden)]
    pub fn integers(&self) -> Option<IntTuple> {
        let values = || self.flat.iter().map(|point| point.local).collect();
        self.names.is_empty().then(|| IntTuple::from_parts(values(), self.profile.clone()))
    }
}

impl From<AxisStride> for Point {
    fn from(at: AxisStride) -> Point {
        let mut point = Point::default();
        at.add_to(1, &mut point);
        point
    }
}

impl fmt::Display for NamedPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_tuple(f, self.flat.iter(), self.profile.nests(), |f, point| {
            point.write(f, |f, at| self.names.write(at, f))
        })
    }
}

impl FromStr for NamedPoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<NamedPoint, Error> {
        let mut names = Names::default();
        let (points, profile) =
            read(text, |cursor: &mut Cursor<'_>| cursor.tuple_of(|c| read_point(c, |c| names.read(c))))?;
        // What cancels out names nothing.
        Ok(NamedPoint::of(points.into_iter(), profile, &names))
    }
}
