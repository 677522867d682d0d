//! Meshes: named axes and the ranks at their coordinates.
//!
//! A mesh is an offset and one layout per axis; the rank at coordinate `c` is
//!
//! ```text
//! rank(c) = offset + sum over axes a of layout_a(c_a)
//! ```
//!
//! Modes must be radix-separable (sorted by stride, each stride exceeds the span of those below), which makes `rank`
//! injective and its inverse a division per mode. The last axis is fastest unless strides say otherwise. A mesh may be
//! a slice of the world: then it does not cover it, and its offset need not be 0.

mod from_ranks;
pub mod recipes;
mod transform;

pub(crate) use from_ranks::modes_of_line;

use core::fmt;
use std::str::FromStr;
use std::sync::Arc;

use reshard_layout::Layout;
use smallvec::SmallVec;

use crate::Error;
use crate::axis::{Axis, AxisName, SubAxis, complement};
use crate::group::{Group, separable};
use crate::notation::cursor::Cursor;

/// One coordinate per mesh axis.
pub type Coordinate = SmallVec<[usize; 6]>;

/// Named axes over ranks (see the [module](self)); cheap to clone.
///
/// ```
/// use reshard_sharding::Mesh;
/// let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
/// assert_eq!(mesh.to_string(), "dp=2,tp=4");
/// assert_eq!(mesh.rank_at(&[1, 2]), Some(6));
/// assert_eq!(mesh.coordinate(6).unwrap().as_slice(), [1, 2]);
/// let part: Mesh = "dp=2:8,tp=4:1@32".parse()?;
/// assert_eq!(part.ranks().collect::<Vec<_>>(), [32, 33, 34, 35, 40, 41, 42, 43]);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone)]
pub struct Mesh(Arc<Inner>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Inner {
    axes: SmallVec<[Axis; 4]>,
    offset: usize,
    size: usize,
    /// Greatest rank + 1.
    world: usize,
    /// Lowest rank: what is left when every mode is at its lower end.
    lowest: usize,
    /// (extent, stride, axis, what a step of this digit adds to the axis coordinate), by |stride| descending.
    modes: SmallVec<[(i64, i64, usize, usize); 8]>,
}

impl PartialEq for Mesh {
    fn eq(&self, other: &Mesh) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Mesh {}

impl core::hash::Hash for Mesh {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mesh({self})")
    }
}

impl Mesh {
    /// The mesh of these axes in row-major order: the last axis is fastest, ranks start at 0.
    pub fn new<N: AsRef<str>>(axes: impl IntoIterator<Item = (N, usize)>) -> Result<Mesh, Error> {
        let axes: SmallVec<[(N, usize); 4]> = axes.into_iter().collect();
        let mut stride = 1i64;
        let mut with_strides: SmallVec<[(AxisName, Layout); 4]> = SmallVec::new();
        for (name, size) in axes.iter().rev() {
            let name = AxisName::new(name.as_ref())?;
            if *size == 0 {
                return Err(Error::Mesh {
                    reason: format!("the axis {name} has no ranks: a size is at least 1"),
                });
            }
            let size =
                i64::try_from(*size).map_err(|_| Error::overflow(format!("the size of axis {name}")))?;
            with_strides.push((name, Layout::from_modes(&[(size, stride)])?));
            stride =
                stride.checked_mul(size).ok_or_else(|| Error::overflow("the number of ranks of the mesh"))?;
        }
        with_strides.reverse();
        Mesh::with_layouts(with_strides, 0)
    }

    /// The mesh of these axes, each with its own layout from coordinate to rank offset, starting at rank `offset`.
    ///
    /// Requires distinct names, modes that are separable, and ranks that are not negative.
    pub fn with_layouts(
        axes: impl IntoIterator<Item = (AxisName, Layout)>,
        offset: usize,
    ) -> Result<Mesh, Error> {
        let axes: SmallVec<[Axis; 4]> = axes
            .into_iter()
            .map(|(name, layout)| Axis { name, size: layout.size() as usize, layout: layout.coalesce() })
            .collect();
        for (i, a) in axes.iter().enumerate() {
            if axes[..i].iter().any(|b| b.name == a.name) {
                return Err(Error::Mesh {
                    reason: format!("two axes are called {}: give each its own name", a.name),
                });
            }
        }
        let too_large = || Error::overflow("the greatest rank of the mesh");
        let mut size = 1i64;
        let mut modes: SmallVec<[(i64, i64, usize, usize); 8]> = SmallVec::new();
        for (i, a) in axes.iter().enumerate() {
            size = size.checked_mul(a.layout.size()).ok_or_else(too_large)?;
            let mut step = 1usize;
            for (s, d) in a.layout.leaves() {
                if s > 1 {
                    d.checked_abs().ok_or_else(too_large)?;
                    modes.push((s, d, i, step));
                }
                step *= s as usize;
            }
        }
        modes.sort_by_key(|&(_, d, ..)| core::cmp::Reverse(d.abs()));
        let ascending: SmallVec<[(i64, i64); 8]> =
            modes.iter().rev().map(|&(s, d, ..)| (s, d.abs())).collect();
        separable(&ascending)
            .map_err(|reason| Error::Mesh { reason: format!("the axes are not orthogonal: {reason}") })?;
        let start = i64::try_from(offset).map_err(|_| too_large())?;
        let (mut low, mut high) = (start, start);
        for &(s, d, ..) in &modes {
            let reach = (s - 1).checked_mul(d).ok_or_else(too_large)?;
            let end = if d < 0 { &mut low } else { &mut high };
            *end = end.checked_add(reach).ok_or_else(too_large)?;
        }
        let world = high.checked_add(1).ok_or_else(too_large)? as usize;
        let lowest = usize::try_from(low).map_err(|_| Error::Mesh {
            reason: format!("the mesh would hold rank {low}: ranks start at 0"),
        })?;
        Ok(Mesh(Arc::new(Inner { axes, offset, size: size as usize, world, lowest, modes })))
    }

    /// The axes, outermost first.
    pub fn axes(&self) -> &[Axis] {
        &self.0.axes
    }

    /// The rank at coordinate 0.
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    /// The number of ranks: the product of the axis sizes.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// The greatest rank plus one: how many ranks a world needs to hold this mesh.
    pub fn world(&self) -> usize {
        self.0.world
    }

    /// The lowest rank of the mesh.
    pub fn lowest(&self) -> usize {
        self.0.lowest
    }

    /// The index of the axis of this name.
    pub fn axis(&self, name: &str) -> Result<usize, Error> {
        self.axes()
            .iter()
            .position(|a| a.name.as_str() == name)
            .ok_or_else(|| Error::NoSuchAxis { axis: name.to_owned(), mesh: self.to_string() })
    }

    /// The whole axis of this index as a sub-axis.
    pub fn whole(&self, axis: usize) -> SubAxis {
        SubAxis { axis, pre: 1, size: self.axes()[axis].size }
    }

    /// The coordinate of a rank, or `None` if the mesh does not hold it: one division per mode.
    pub fn coordinate(&self, rank: usize) -> Option<Coordinate> {
        let mut left = i64::try_from(rank.checked_sub(self.0.lowest)?).ok()?;
        let mut c = Coordinate::from_elem(0, self.axes().len());
        for &(s, d, axis, step) in &self.0.modes {
            let digit = left / d.abs();
            if digit >= s {
                return None;
            }
            left -= digit * d.abs();
            let digit = if d < 0 { s - 1 - digit } else { digit };
            c[axis] += digit as usize * step;
        }
        (left == 0).then_some(c)
    }

    /// The rank at a coordinate, or `None` outside the mesh.
    pub fn rank_at(&self, coordinate: &[usize]) -> Option<usize> {
        if coordinate.len() != self.axes().len() {
            return None;
        }
        let mut rank = self.0.offset as i64;
        for (a, &c) in self.axes().iter().zip(coordinate) {
            if c >= a.size {
                return None;
            }
            rank += a.layout.at(c as i64).ok()?;
        }
        usize::try_from(rank).ok()
    }

    /// Whether the mesh holds this rank.
    pub fn contains(&self, rank: usize) -> bool {
        self.coordinate(rank).is_some()
    }

    /// All ranks in the order of their coordinates, last axis fastest.
    pub fn ranks(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.size()).map(|i| self.rank_at(&self.coordinate_of_index(i)).expect("inside the mesh"))
    }

    /// The coordinate at position `i` of [`Mesh::ranks`].
    pub fn coordinate_of_index(&self, i: usize) -> Coordinate {
        let mut c = Coordinate::from_elem(0, self.axes().len());
        let mut left = i;
        for (a, x) in self.axes().iter().zip(&mut c).rev() {
            *x = left % a.size;
            left /= a.size;
        }
        c
    }

    /// The position in [`Mesh::ranks`] of a rank.
    pub fn index_of(&self, rank: usize) -> Option<usize> {
        let c = self.coordinate(rank)?;
        Some(self.axes().iter().zip(&c).fold(0, |i, (a, &x)| i * a.size + x))
    }

    /// The group of whole axes, by name, in any order.
    pub fn group_of_axes(&self, names: &[&str]) -> Result<Group, Error> {
        let subs = names
            .iter()
            .map(|n| Ok(self.whole(self.axis(n)?)))
            .collect::<Result<SmallVec<[_; 4]>, Error>>()?;
        self.group(&subs)
    }

    /// The group of some sub-axes, in any order.
    ///
    /// Requires sub-axes that are digits of one number where they are of one axis: `(1)2` and `(3)2` of 6 are not.
    pub fn group(&self, subs: &[SubAxis]) -> Result<Group, Error> {
        Group::of_modes(self.modes_of(subs)?)
    }

    /// The axis of a sub-axis, if the mesh has it and it divides.
    fn checked(&self, s: SubAxis) -> Result<&Axis, Error> {
        let Some(a) = self.axes().get(s.axis) else {
            return Err(Error::NoSuchAxis { axis: format!("number {}", s.axis), mesh: self.to_string() });
        };
        if s.pre.checked_mul(s.size).is_none_or(|p| p == 0 || a.size % p != 0) {
            return Err(Error::Mesh {
                reason: format!(
                    "{}:({}){} is no sub-axis of {}={}: (pre)size must divide it",
                    a.name, s.pre, s.size, a.name, a.size
                ),
            });
        }
        Ok(a)
    }

    /// The modes of some sub-axes: digit value to rank offset.
    ///
    /// A digit `(pre)size` of an axis whose layout is `L` has the offsets `L o (size : post)`. For an axis of several
    /// modes that is only right if all digits of the axis compose with `L` *together*: each may do so alone, and their
    /// sum still carry over a mode boundary, so that ranks of one group would be told apart by it.
    pub(crate) fn modes_of(&self, subs: &[SubAxis]) -> Result<SmallVec<[(i64, i64); 8]>, Error> {
        let mut modes = SmallVec::new();
        for (i, &s) in subs.iter().enumerate() {
            let a = self.checked(s)?;
            if let Some(u) = subs[..i].iter().find(|u| !u.nests_beside(s)) {
                let (u, s) = (u.printed(self.axes()), s.printed(self.axes()));
                return Err(Error::NotALayout {
                    reason: format!(
                        "{u} and {s} have no group: they are not digits of one number of {}",
                        a.name
                    ),
                });
            }
            if s.size == 1 {
                continue;
            }
            if s.size == a.size {
                modes.extend(a.layout.leaves().filter(|&(s, _)| s > 1));
            } else if let (1, Some((_, stride))) = (a.layout.leaves().len(), a.layout.leaves().next()) {
                // post * stride is an offset of the axis: it fits.
                modes.push((s.size as i64, s.post(a.size) as i64 * stride));
            } else {
                let of_axis: SmallVec<[SubAxis; 8]> =
                    subs.iter().copied().filter(|x| x.axis == s.axis && x.size > 1).collect();
                let rest = complement(&of_axis, self.axes());
                let digits = of_axis
                    .iter()
                    .chain(rest.iter().filter(|x| x.axis == s.axis))
                    .map(|x| Layout::scalar(x.size as i64, x.post(a.size) as i64))
                    .collect::<Result<SmallVec<[Layout; 4]>, _>>()?;
                let at = of_axis.iter().position(|&x| x == s).unwrap_or(0);
                let offsets = a.layout.compose(&Layout::concat(&digits)?)?.mode(at)?;
                modes.extend(offsets.leaves().filter(|&(s, _)| s > 1));
            }
        }
        Ok(modes)
    }

    /// Whether strides and offset are those of [`Mesh::new`].
    pub(crate) fn is_row_major(&self) -> bool {
        let mut stride = 1;
        for a in self.axes().iter().rev() {
            if a.size > 1
                && a.layout.leaves().collect::<SmallVec<[_; 4]>>().as_slice() != [(a.size as i64, stride)]
            {
                return false;
            }
            stride *= a.size as i64;
        }
        true
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.is_row_major();
        for (i, a) in self.axes().iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            if plain {
                write!(f, "{}={}", a.name, a.size)?;
            } else {
                write!(f, "{}={}", a.name, a.layout)?;
            }
        }
        if self.offset() != 0 {
            write!(f, "@{}", self.offset())?;
        }
        Ok(())
    }
}

impl FromStr for Mesh {
    type Err = Error;

    fn from_str(text: &str) -> Result<Mesh, Error> {
        if crate::notation::shardy::is_mesh(text) {
            return crate::notation::shardy::parse_mesh(text);
        }
        let mut r = Cursor::new("mesh", text);
        let mut plain: Vec<(AxisName, usize)> = Vec::new();
        let mut strided: Vec<(AxisName, Layout)> = Vec::new();
        while !r.is_done() && !r.rest().starts_with('@') {
            if !plain.is_empty() || !strided.is_empty() {
                r.expect(",")?;
            }
            let at = r.here();
            let name = AxisName::new(r.take_while(AxisName::continues))
                .map_err(|_| r.error_at(at, "an axis name, as in dp=2,tp=4"))?;
            r.expect("=")?;
            let at = r.here();
            let extent = r.until_outside_parens(&[',', '@']);
            if extent.contains(':') {
                let layout = extent
                    .parse::<Layout>()
                    .map_err(|e| r.error_at(at, format!("a layout such as 2:4 ({e})")))?;
                strided.push((name, layout));
            } else if !extent.is_empty() && extent.bytes().all(|b| b.is_ascii_digit()) {
                let n = extent.parse::<usize>().map_err(|_| r.error_at(at, "a size below 2^63"))?;
                plain.push((name, n));
            } else {
                return Err(r.error_at(at, "a size or size:stride"));
            }
            if !plain.is_empty() && !strided.is_empty() {
                return Err(r.error_at(at, "strides for all axes or for none"));
            }
        }
        let offset = if r.eat("@") { r.number("the first rank")? } else { 0 };
        r.finish()?;
        if strided.is_empty() {
            let row_major = Mesh::new(plain.iter().map(|(n, s)| (n.as_str(), *s)))?;
            if offset == 0 {
                return Ok(row_major);
            }
            strided = row_major.axes().iter().map(|a| (a.name.clone(), a.layout.clone())).collect();
        }
        Mesh::with_layouts(strided, offset)
    }
}

impl serde::Serialize for Mesh {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Mesh {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Mesh, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
