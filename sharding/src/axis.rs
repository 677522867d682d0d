//! Mesh axes and their divisors, the sub-axes.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use reshard_layout::{Excerpt, Layout};

use crate::Error;

/// The name of a mesh axis: a letter or `_`, then letters, digits, `_`, `-`, `.` or `/`.
///
/// ```
/// use reshard_sharding::AxisName;
/// assert_eq!(AxisName::new("dp_shard")?.as_str(), "dp_shard");
/// assert!(AxisName::new("2dp").is_err());
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AxisName(Arc<str>);

impl AxisName {
    /// Returns a name, if the text is one.
    pub fn new(text: &str) -> Result<AxisName, Error> {
        let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if starts && text.chars().all(AxisName::continues) {
            return Ok(AxisName(text.into()));
        }
        Err(Error::Mesh {
            reason: format!(
                "{text:?} is not an axis name: use letters, digits, `_`, `-`, `.` and `/`, and begin with a letter or \
                 `_`"
            ),
        })
    }

    /// Returns `true` if a character may occur in a name after its first.
    pub(crate) fn continues(c: char) -> bool {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')
    }

    /// Returns the text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AxisName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One axis of a mesh: a name and a layout from its coordinate to an offset in ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    pub(crate) name: AxisName,
    pub(crate) size: usize,
    pub(crate) layout: Layout,
}

impl Axis {
    /// Returns the name of the axis.
    pub fn name(&self) -> &AxisName {
        &self.name
    }

    /// Returns the number of coordinates.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the layout from coordinate to offset in ranks; hierarchical for flattened axes of several
    /// strides.
    ///
    /// Where the mesh has a [`rank_table`](crate::Mesh::rank_table), to offset in positions.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// A divisor of a mesh axis, `tp:(pre)size`: one mixed-radix digit of its coordinate.
///
/// An axis of size `n` counts `0..n`. A sub-axis `(pre)size` of it is one mixed-radix digit of that count:
/// with `pre * size * post = n`, coordinate `c` has the digit
///
/// ```text
/// digit(c) = floor(c / post) mod size                 most significant sub-axis: pre = 1
/// ```
///
/// That is the mode `size : post@axis`, and `(pre)size` is how it is written:
/// [`Mesh::mode`](crate::Mesh::mode) and [`Mesh::sub_axis`](crate::Mesh::sub_axis) lead from one to the
/// other. The whole axis is `(1)n`, the mode `n : 1@axis`. Sub-axes that follow one another are one by
/// coalescing their modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubAxis {
    /// Index of the mesh axis, counted from the outermost.
    pub axis: usize,
    /// The product of the sizes of the more significant sub-axes.
    pub pre_size: usize,
    /// The number of values of this digit.
    pub size: usize,
}

impl SubAxis {
    /// Returns the digit of this sub-axis in coordinate `c` of an axis of `n`.
    ///
    /// Fails where `c` is not below `n`, or `(pre)size` does not divide `n`.
    ///
    /// ```
    /// use reshard_sharding::SubAxis;
    /// let minor = SubAxis { axis: 0, pre_size: 2, size: 4 };
    /// assert_eq!(minor.digit(7, 8)?, 3);
    /// assert_eq!(minor.digit(3, 8)?, 3);
    /// assert!(minor.digit(8, 8).is_err() && minor.digit(0, 6).is_err());
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn digit(self, c: usize, n: usize) -> Result<usize, Error> {
        self.divides(n)?;
        if c >= n {
            return Err(Error::Mesh { reason: format!("an axis of {n} has no coordinate {c}") });
        }
        Ok(self.known_digit(c, n))
    }

    /// Returns the coordinate step of this digit on an axis of `n`: `n / (pre * size)`.
    ///
    /// Fails where that does not divide.
    #[doc(hidden)]
    pub fn post(self, n: usize) -> Result<usize, Error> {
        self.divides(n)?;
        Ok(self.known_post(n))
    }

    /// Returns [`SubAxis::digit`], without checks, of a sub-axis of an axis of `n`.
    #[doc(hidden)]
    #[inline]
    pub fn known_digit(self, c: usize, n: usize) -> usize {
        c / self.known_post(n) % self.size
    }

    /// Returns [`SubAxis::post`], without checks, of a sub-axis of an axis of `n`.
    #[doc(hidden)]
    #[inline]
    pub fn known_post(self, n: usize) -> usize {
        n / (self.pre_size * self.size)
    }

    /// Fails unless this is a sub-axis of an axis of `n`.
    pub(crate) fn divides(self, n: usize) -> Result<(), Error> {
        if self.pre_size.checked_mul(self.size).is_some_and(|p| p > 0 && n > 0 && n.is_multiple_of(p)) {
            return Ok(());
        }
        Err(Error::Mesh {
            reason: format!("{self} is not a sub-axis of an axis of {n}: pre times size must divide {n}"),
        })
    }

    /// Returns `true` if both can be in one sharding or group.
    ///
    /// They are on different axes, or are digits of one mixed-radix number.
    ///
    /// `(1)2` and `(3)2` of an axis of 6 do not overlap, but the numbers that they count are not independent.
    #[doc(hidden)]
    pub fn nests_beside(self, other: SubAxis) -> bool {
        let (major, minor) = if self.pre_size <= other.pre_size { (self, other) } else { (other, self) };
        major.axis != minor.axis
            || minor.size == 1
            || major.pre_size.checked_mul(major.size).is_some_and(|span| minor.pre_size.is_multiple_of(span))
    }

    /// Returns `true` if all digits of the other are digits of this one: `(1)4` holds `(1)2` and `(2)2`.
    #[doc(hidden)]
    pub fn contains(self, other: SubAxis) -> bool {
        let ends = |s: SubAxis| s.pre_size.checked_mul(s.size);
        other.size == 1
            || self.axis == other.axis
                && other.pre_size.is_multiple_of(self.pre_size)
                && matches!((ends(self), ends(other)), (Some(end), Some(e)) if e > 0 && end.is_multiple_of(e))
    }

    /// Returns the text of the sub-axis with the names of a mesh's axes.
    ///
    /// It is `tp` for a whole axis, otherwise `tp:(pre)size`.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, SubAxis};
    /// let mesh: Mesh = "dp=2,tp=8".parse()?;
    /// assert_eq!(SubAxis { axis: 1, pre_size: 1, size: 8 }.printed(mesh.axes()), "tp");
    /// assert_eq!(SubAxis { axis: 1, pre_size: 2, size: 4 }.printed(mesh.axes()), "tp:(2)4");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn printed(self, axes: &[Axis]) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, axes);
        text
    }

    /// Prints the sub-axis with the names of a mesh.
    ///
    /// It is `tp` for a whole axis, otherwise `tp:(pre)size`; an unknown axis is printed as its number.
    #[doc(hidden)]
    pub fn write(self, f: &mut impl fmt::Write, axes: &[Axis]) -> fmt::Result {
        match axes.get(self.axis) {
            Some(axis) if self.pre_size == 1 && self.size == axis.size => write!(f, "{}", axis.name),
            Some(axis) => write!(f, "{}:({}){}", axis.name, self.pre_size, self.size),
            None => write!(f, "{self}"),
        }
    }
}

/// `axis:(pre)size`, with the number of the axis, so that no mesh is needed; [`SubAxis::printed`] has its
/// name.
///
/// ```
/// use reshard_sharding::SubAxis;
/// let minor: SubAxis = "1:(2)4".parse()?;
/// assert_eq!(minor, SubAxis { axis: 1, pre_size: 2, size: 4 });
/// assert_eq!(minor.to_string(), "1:(2)4");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
impl fmt::Display for SubAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:({}){}", self.axis, self.pre_size, self.size)
    }
}

impl FromStr for SubAxis {
    type Err = Error;

    fn from_str(text: &str) -> Result<SubAxis, Error> {
        let parts = || {
            let (axis, rest) = text.split_once(":(")?;
            let (pre, size) = rest.split_once(')')?;
            let number = |digits: &str| {
                digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<usize>().ok()).flatten()
            };
            Some(SubAxis { axis: number(axis)?, pre_size: number(pre)?, size: number(size)? })
        };
        parts().ok_or_else(|| Error::Mesh {
            reason: format!(
                "{:?} is not a sub-axis; write axis:(pre)size, such as 1:(2)4",
                Excerpt::of(text).to_string()
            ),
        })
    }
}
