//! Mesh axes and their divisors, the sub-axes.
//!
//! An axis of size `n` counts `0..n`. A sub-axis `(pre)size` of it is one mixed-radix digit of that count: with
//! `pre * size * post = n`, coordinate `c` has the digit
//!
//! ```text
//! digit(c) = floor(c / post) mod size                 most significant sub-axis: pre = 1
//! ```
//!
//! The whole axis is the sub-axis `(1)n`. Two sub-axes are consecutive if one's `pre * size` is the other's `pre`;
//! together they are the sub-axis `(pre)(size * size')`.

use core::fmt;
use std::sync::Arc;

use reshard_layout::Layout;

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
    /// A name, if the text is one.
    pub fn new(text: &str) -> Result<AxisName, Error> {
        let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if starts && text.chars().all(AxisName::continues) {
            return Ok(AxisName(text.into()));
        }
        Err(Error::Mesh {
            reason: format!(
                "{text:?} is not an axis name: start with a letter or _, go on with letters, digits, _ - . or /"
            ),
        })
    }

    /// Whether a character may stand in a name after its first.
    pub(crate) fn continues(c: char) -> bool {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')
    }

    /// The text of the name.
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
    /// The name of the axis.
    pub fn name(&self) -> &AxisName {
        &self.name
    }

    /// The number of coordinates.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Coordinate to offset in ranks; hierarchical for flattened axes that are not one stride.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// A divisor of a mesh axis, `tp:(pre)size`: one mixed-radix digit of its coordinate (see the [module](self)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubAxis {
    /// Which axis of the mesh, counted from the outermost.
    pub axis: usize,
    /// The product of the sizes of the more significant sub-axes.
    pub pre: usize,
    /// The number of values of this digit.
    pub size: usize,
}

impl SubAxis {
    /// The digit of this sub-axis in coordinate `c` of an axis of `n`.
    ///
    /// ```
    /// use reshard_sharding::SubAxis;
    /// let minor = SubAxis { axis: 0, pre: 2, size: 4 };
    /// assert_eq!(minor.digit(7, 8), 3);
    /// assert_eq!(minor.digit(3, 8), 3);
    /// ```
    pub fn digit(self, c: usize, n: usize) -> usize {
        c / self.post(n) % self.size
    }

    /// What one step of this digit adds to the coordinate of an axis of `n`: `n / (pre * size)`.
    pub fn post(self, n: usize) -> usize {
        n / (self.pre * self.size)
    }

    /// The sub-axis that this one and the next minor one are together, if they are consecutive.
    pub(crate) fn joined(self, minor: SubAxis) -> Option<SubAxis> {
        (self.axis == minor.axis && self.pre * self.size == minor.pre)
            .then_some(SubAxis { size: self.size * minor.size, ..self })
    }

    /// Whether both may stand in one sharding or group: sub-axes of different axes, or digits of one mixed-radix number.
    ///
    /// `(1)2` and `(3)2` of an axis of 6 do not overlap, but the numbers that they count are not independent.
    pub(crate) fn nests_beside(self, other: SubAxis) -> bool {
        let (major, minor) = if self.pre <= other.pre { (self, other) } else { (other, self) };
        major.axis != minor.axis || minor.size == 1 || minor.pre.is_multiple_of(major.pre * major.size)
    }

    /// The text of the sub-axis with the names of a mesh's axes: `tp` for a whole axis, otherwise `tp:(pre)size`.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, SubAxis};
    /// let mesh: Mesh = "dp=2,tp=8".parse()?;
    /// assert_eq!(SubAxis { axis: 1, pre: 1, size: 8 }.printed(mesh.axes()), "tp");
    /// assert_eq!(SubAxis { axis: 1, pre: 2, size: 4 }.printed(mesh.axes()), "tp:(2)4");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn printed(self, axes: &[Axis]) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, axes);
        text
    }

    /// Prints the sub-axis with the names of a mesh: `tp` for a whole axis, otherwise `tp:(pre)size`.
    pub(crate) fn write(self, f: &mut impl fmt::Write, axes: &[Axis]) -> fmt::Result {
        let axis = &axes[self.axis];
        if self.pre == 1 && self.size == axis.size {
            write!(f, "{}", axis.name)
        } else {
            write!(f, "{}:({}){}", axis.name, self.pre, self.size)
        }
    }
}

/// Sub-axes with consecutive ones of the same axis joined, in the order given; size 1 vanishes.
pub(crate) fn join<A: smallvec::Array<Item = SubAxis>>(
    subs: impl IntoIterator<Item = SubAxis>,
) -> smallvec::SmallVec<A> {
    let mut out: smallvec::SmallVec<A> = smallvec::SmallVec::new();
    for sub in subs {
        if sub.size == 1 {
            continue;
        }
        match out.last().and_then(|last| last.joined(sub)) {
            Some(joined) => *out.last_mut().expect("just seen") = joined,
            None => out.push(sub),
        }
    }
    out
}

/// What some sub-axes leave of the axes, outermost first, joined.
///
/// Sub-axes that overlap are the caller's fault: what they leave is then only part of the answer.
pub(crate) fn complement(used: &[SubAxis], axes: &[Axis]) -> smallvec::SmallVec<[SubAxis; 4]> {
    let mut used: smallvec::SmallVec<[SubAxis; 8]> = smallvec::SmallVec::from_slice(used);
    used.sort();
    let mut out: smallvec::SmallVec<[SubAxis; 8]> = smallvec::SmallVec::new();
    for (axis, a) in axes.iter().enumerate() {
        let mut pre = 1;
        for u in used.iter().filter(|u| u.axis == axis) {
            if u.pre < pre {
                continue;
            }
            if u.pre > pre {
                out.push(SubAxis { axis, pre, size: u.pre / pre });
            }
            pre = u.pre * u.size;
        }
        if pre < a.size() {
            out.push(SubAxis { axis, pre, size: a.size() / pre });
        }
    }
    join(out)
}
