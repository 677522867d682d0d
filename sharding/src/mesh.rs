//! Meshes: named axes and the ranks at their coordinates.

mod along;
mod from_ranks;
mod groups;
mod modes;
pub mod recipes;
mod table;
mod text;
mod transform;

pub use along::{coordinate_of, for_each_value, members_along, ranks_of_both};
pub(crate) use from_ranks::modes_of_line;
pub use modes::{axis_of, digit, set_digit};

use core::fmt;
use reshard_layout::InlineVec;
use std::sync::Arc;

use reshard_layout::{AxisStride, Layout, Mode, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::axis::{Axis, AxisName, SubAxis};
use crate::group::{GroupPattern, separable};
use table::Table;

/// One coordinate per mesh axis.
pub type Coordinate = InlineVec<usize, 6>;

/// Named axes over ranks; cheap to clone.
///
/// A mesh is an offset and one layout per axis; the rank at coordinate `c` is
///
/// ```text
/// rank(c) = offset + sum over axes a of layout_a(c_a)
/// ```
///
/// Modes must be radix-separable (sorted by stride, each stride exceeds the span of those below), which makes
/// `rank` injective and its inverse a division per mode. The last axis is fastest unless strides differ. A
/// mesh may be a slice of the world: then it does not cover it, and its offset need not be 0.
///
/// Ranks may come in any other order, as the devices of real machines do: then the layouts lead to positions,
/// row-major, and a table from there to ranks,
///
/// ```text
/// rank(c) = table[sum over axes a of layout_a(c_a)]
/// ```
///
/// A table exists exactly where the ranks are not a layout, so equal meshes are equal values. Shardings and
/// plans are about coordinates and do not see it; groups and costs are about ranks and do.
///
/// ```
/// use reshard_sharding::Mesh;
/// let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
/// assert_eq!(mesh.to_string(), "dp=2,tp=4");
/// assert_eq!(mesh.rank_at(&[1, 2]), Some(6));
/// assert_eq!(mesh.coordinate(6).unwrap().as_slice(), [1, 2]);
/// let part: Mesh = "dp=2:8,tp=4:1@32".parse()?;
/// assert_eq!(part.ranks().collect::<Vec<_>>(), [32, 33, 34, 35, 40, 41, 42, 43]);
/// let ring: Mesh = "x=2,y=2@[1,2,3,0]".parse()?;
/// assert_eq!(ring.rank_at(&[1, 1]), Some(0));
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
    /// Lowest rank: the one with every mode at its lower end.
    lowest: usize,
    /// Steps along axes and their distances in ranks, by |ranks| descending.
    modes: Modes<(AxisStride, i64)>,
    /// Set where the ranks are not a layout.
    ///
    /// The fields above then hold positions, and the table maps positions to ranks.
    table: Option<Table>,
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
    /// Returns the mesh of these axes in row-major order: the last axis is fastest, ranks start at 0.
    pub fn new<N: AsRef<str>>(axes: impl IntoIterator<Item = (N, usize)>) -> Result<Mesh, Error> {
        let axes: SmallVec<[(N, usize); 4]> = axes.into_iter().collect();
        let mut stride = 1i64;
        let mut with_strides: SmallVec<[(AxisName, Layout); 4]> = SmallVec::new();
        for (name, size) in axes.iter().rev() {
            let name = AxisName::new(name.as_ref())?;
            if *size == 0 {
                return Err(Error::Mesh {
                    reason: format!("the axis {name} has no ranks; its size must be at least 1"),
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

    /// Returns the mesh of these axes, starting at rank `offset`.
    ///
    /// Each axis has a separate layout from coordinate to rank offset.
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
                    reason: format!("two axes are called {}; give each a different name", a.name),
                });
            }
        }
        let too_large = || Error::overflow("the greatest rank of the mesh");
        let mut size = 1i64;
        let mut modes: Modes<(AxisStride, i64)> = Modes::new();
        for (i, a) in axes.iter().enumerate() {
            size = size.checked_mul(a.layout.size()).ok_or_else(too_large)?;
            let mut step = 1;
            for &Mode { extent, stride } in a.layout.flat() {
                if extent > 1 {
                    stride.checked_abs().ok_or_else(too_large)?;
                    modes.push(Mode::new(extent, (AxisStride::along(step, i as u32), stride)));
                }
                step *= extent;
            }
        }
        modes.sort_by_key(|m| core::cmp::Reverse(m.stride.1.abs()));
        let ascending: Modes = modes.iter().rev().map(|m| m.map(|(_, ranks)| ranks.abs())).collect();
        separable(&ascending)
            .map_err(|reason| Error::Mesh { reason: format!("the axes are not orthogonal: {reason}") })?;
        let start = i64::try_from(offset).map_err(|_| too_large())?;
        let (mut low, mut high) = (start, start);
        for Mode { extent, stride: (_, ranks) } in &modes {
            let reach = (extent - 1).checked_mul(*ranks).ok_or_else(too_large)?;
            let end = if *ranks < 0 { &mut low } else { &mut high };
            *end = end.checked_add(reach).ok_or_else(too_large)?;
        }
        let world = high.checked_add(1).ok_or_else(too_large)? as usize;
        let lowest = usize::try_from(low).map_err(|_| Error::Mesh {
            reason: format!("the mesh would hold rank {low}: ranks start at 0"),
        })?;
        Ok(Mesh(Arc::new(Inner { axes, offset, size: size as usize, world, lowest, modes, table: None })))
    }

    /// Returns the axes, outermost first.
    #[inline]
    pub fn axes(&self) -> &[Axis] {
        &self.0.axes
    }

    /// Returns the rank at coordinate 0.
    #[doc(hidden)]
    pub fn offset(&self) -> usize {
        self.0.table.as_ref().map_or(self.0.offset, |t| t.ranks()[self.0.offset])
    }

    /// Returns the number of ranks: the product of the axis sizes.
    #[inline]
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Returns the greatest rank plus one: the number of ranks that a world needs to hold this mesh.
    pub fn world_size(&self) -> usize {
        self.0.table.as_ref().map_or(self.0.world, |t| t.greatest() + 1)
    }

    /// Returns the lowest rank of the mesh.
    #[doc(hidden)]
    pub fn min_rank(&self) -> usize {
        self.0.table.as_ref().map_or(self.0.lowest, Table::lowest)
    }

    /// Returns the rank at every position of [`Mesh::ranks`].
    ///
    /// Returns `None` if the ranks are a layout of coordinates.
    ///
    /// Then the layouts of the axes lead to these positions, otherwise to ranks.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let ring: Mesh = "x=4@[1,2,3,0]".parse()?;
    /// assert_eq!(ring.rank_table(), Some(&[1, 2, 3, 0][..]));
    /// assert_eq!("x=4@[1,3,5,7]".parse::<Mesh>()?.to_string(), "x=4:2@1");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[inline]
    #[doc(hidden)]
    pub fn rank_table(&self) -> Option<&[usize]> {
        self.0.table.as_ref().map(Table::ranks)
    }

    /// Returns the index of the axis of this name.
    pub fn axis(&self, name: &str) -> Result<usize, Error> {
        self.axes()
            .iter()
            .position(|a| a.name.as_str() == name)
            .ok_or_else(|| Error::NoSuchAxis { axis: name.to_owned(), mesh: self.to_string() })
    }

    /// Returns the whole axis of this index as a sub-axis; an error past the last axis.
    #[doc(hidden)]
    pub fn full_axis(&self, axis: usize) -> Result<SubAxis, Error> {
        self.numbered(axis).map(|a| SubAxis { axis, pre_size: 1, size: a.size })
    }

    /// Returns every axis as a sub-axis, outermost first.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2,tp=8".parse()?;
    /// assert_eq!(mesh.whole_axes().nth(1), Some(mesh.full_axis(1)?));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn whole_axes(&self) -> impl DoubleEndedIterator<Item = SubAxis> + ExactSizeIterator + '_ {
        self.axes().iter().enumerate().map(|(axis, a)| SubAxis { axis, pre_size: 1, size: a.size })
    }

    /// Returns [`Mesh::full_axis`], without checks, for an existing axis.
    #[doc(hidden)]
    #[inline]
    pub fn known_whole(&self, axis: usize) -> SubAxis {
        SubAxis { axis, pre_size: 1, size: self.axes()[axis].size }
    }

    /// Returns `true` if this is a whole axis of the mesh.
    #[inline]
    #[doc(hidden)]
    pub fn is_whole(&self, s: SubAxis) -> bool {
        s.pre_size == 1 && self.axes().get(s.axis).is_some_and(|a| a.size == s.size)
    }

    /// Returns the axis of this number.
    fn numbered(&self, axis: usize) -> Result<&Axis, Error> {
        self.axes()
            .get(axis)
            .ok_or_else(|| Error::NoSuchAxis { axis: format!("number {axis}"), mesh: self.to_string() })
    }

    /// Fails unless this is a sub-axis of an axis of the mesh.
    pub(crate) fn check_sub_axis(&self, s: SubAxis) -> Result<(), Error> {
        let a = self.numbered(s.axis)?;
        s.divides(a.size).map_err(|_| Error::Mesh {
            reason: format!(
                "{}:({}){} is not a sub-axis of {}={}: pre times size must divide it",
                a.name, s.pre_size, s.size, a.name, a.size
            ),
        })
    }

    /// Returns the coordinate of a rank, or `None` if the mesh does not hold it.
    ///
    /// Costs one division per mode, after a search in the table if there is one.
    pub fn coordinate(&self, rank: usize) -> Option<Coordinate> {
        let rank = match &self.0.table {
            None => rank,
            Some(table) => table.position(rank)?,
        };
        let mut left = i64::try_from(rank.checked_sub(self.0.lowest)?).ok()?;
        let mut c = Coordinate::from_elem(0, self.axes().len());
        for &Mode { extent, stride: (at, ranks) } in &self.0.modes {
            let digit = left / ranks.abs();
            if digit >= extent {
                return None;
            }
            left -= digit * ranks.abs();
            let digit = if ranks < 0 { extent - 1 - digit } else { digit };
            c[axis_of(at)] += (digit * at.step()) as usize;
        }
        (left == 0).then_some(c)
    }

    /// Returns the rank at a coordinate, or `None` outside the mesh.
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
        let rank = usize::try_from(rank).ok()?;
        match &self.0.table {
            None => Some(rank),
            Some(table) => table.ranks().get(rank).copied(),
        }
    }

    /// Returns `true` if the mesh holds this rank.
    pub fn contains(&self, rank: usize) -> bool {
        self.coordinate(rank).is_some()
    }

    /// Returns all ranks in the order of their coordinates, last axis fastest.
    pub fn ranks(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.size())
            .map(|i| self.coordinate_at(i).and_then(|c| self.rank_at(&c)).expect("inside the mesh"))
    }

    /// Returns the coordinate at position `i` of [`Mesh::ranks`], or `None` beyond the last.
    pub fn coordinate_at(&self, i: usize) -> Option<Coordinate> {
        if i >= self.size() {
            return None;
        }
        let mut c = Coordinate::from_elem(0, self.axes().len());
        let mut left = i;
        for (a, x) in self.axes().iter().zip(&mut c).rev() {
            *x = left % a.size;
            left /= a.size;
        }
        Some(c)
    }

    /// Returns the position in [`Mesh::ranks`] of a rank.
    pub fn position(&self, rank: usize) -> Option<usize> {
        let c = self.coordinate(rank)?;
        Some(self.axes().iter().zip(&c).fold(0, |i, (a, &x)| i * a.size + x))
    }

    /// Returns these axes as sub-axes.
    pub(crate) fn whole_axes_named(&self, names: &[&str]) -> Result<SmallVec<[SubAxis; 4]>, Error> {
        names.iter().map(|name| Ok(self.known_whole(self.axis(name)?))).collect()
    }

    /// Returns the group of whole axes, by name, in any order.
    pub fn group_of_axes(&self, names: &[&str]) -> Result<GroupPattern, Error> {
        self.group(&self.whole_axes_named(names)?)
    }

    /// Returns the group of some sub-axes, in any order.
    ///
    /// Requires sub-axes that are digits of one number where they are of one axis: `(1)2` and `(3)2` of 6 are
    /// not.
    pub fn group(&self, subs: &[SubAxis]) -> Result<GroupPattern, Error> {
        self.group_of_modes(&self.checked_modes(subs)?)
    }

    /// Returns sub-axes as modes, in the same order.
    ///
    /// Fails unless they are sub-axes of this mesh, and digits of one number where they are of one axis.
    pub(crate) fn checked_modes(&self, subs: &[SubAxis]) -> Result<Modes<AxisStride>, Error> {
        let mut modes: Modes<AxisStride> = Modes::new();
        for (i, &s) in subs.iter().enumerate() {
            self.check_sub_axis(s)?;
            if let Some(u) = subs[..i].iter().find(|u| !u.nests_beside(s)) {
                let (u, name) = (u.printed(self.axes()), &self.axes()[s.axis].name);
                let s = s.printed(self.axes());
                return Err(Error::NotALayout {
                    reason: format!(
                        "{u} and {s} have no group: they are not digits of one factorization of {name}"
                    ),
                });
            }
            modes.push(self.known_mode(s));
        }
        Ok(modes)
    }
}
