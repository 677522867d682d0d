//! Sub-axes as modes of a mesh, `size : post@axis`, and modes as ranks.

use reshard_layout::algebra::gaps;
use reshard_layout::{AxisStride, InlineVec, Layout, Mode, Modes};

use crate::axis::SubAxis;
use crate::group::GroupPattern;
use crate::{Error, Mesh};

impl Mesh {
    /// Returns the group of some modes along axes: their ranks, sorted and coalesced.
    ///
    /// If the ranks are a table and these do not form a layout, the group is listed.
    #[doc(hidden)]
    pub fn group_of_modes(&self, modes: &[Mode<AxisStride>]) -> Result<GroupPattern, Error> {
        match self.rank_table() {
            None => GroupPattern::of_modes(self.ranks_of(modes)?),
            Some(_) => Ok(self.listed_groups(modes)?.pattern().clone()),
        }
    }

    /// Returns a sub-axis as the mode that it is, `size : post@axis`.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, SubAxis};
    /// let mesh: Mesh = "dp=2,tp=8".parse()?;
    /// let minor = SubAxis { axis: 1, pre_size: 2, size: 2 };
    /// assert_eq!(mesh.mode(minor)?.to_string(), "2:2@1");
    /// assert_eq!(mesh.sub_axis(mesh.mode(minor)?), Some(minor));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Requires a sub-axis of this mesh.
    #[inline]
    #[doc(hidden)]
    pub fn mode(&self, s: SubAxis) -> Result<Mode<AxisStride>, Error> {
        self.check_sub_axis(s)?;
        Ok(self.known_mode(s))
    }

    /// Returns [`Mesh::mode`], without checks, of a sub-axis of this mesh.
    #[doc(hidden)]
    #[inline]
    pub fn known_mode(&self, s: SubAxis) -> Mode<AxisStride> {
        let post = s.known_post(self.axes()[s.axis].size);
        Mode::new(s.size as i64, AxisStride::along(post as i64, s.axis as u32))
    }

    /// Sub-axes as modes, in the same order.
    #[doc(hidden)]
    pub fn modes(&self, subs: &[SubAxis]) -> Modes<AxisStride> {
        subs.iter().map(|&s| self.known_mode(s)).collect()
    }

    /// Returns a mode along an axis as a sub-axis.
    ///
    /// Returns `None` for a local mode, and for one that is not a digit of an axis.
    #[inline]
    #[doc(hidden)]
    pub fn sub_axis(&self, mode: Mode<AxisStride>) -> Option<SubAxis> {
        let axis = mode.stride.axis()? as usize;
        let span = usize::try_from(mode.stride.step().checked_mul(mode.extent)?).ok()?;
        let size = self.axes().get(axis)?.size;
        (span > 0 && size % span == 0).then_some(SubAxis {
            axis,
            pre_size: size / span,
            size: mode.extent as usize,
        })
    }

    /// Returns some modes along axes, coalesced, as sub-axes: outermost first.
    ///
    /// Requires modes sorted like [`System::digits`](crate::redistribute): by axis, slowest first.
    #[doc(hidden)]
    pub fn sub_axes_of(
        &self,
        modes: impl DoubleEndedIterator<Item = Mode<AxisStride>>,
    ) -> InlineVec<SubAxis, 4> {
        let mut coalesced = Modes::new();
        for mode in modes.rev().filter(|m| m.extent > 1) {
            coalesced.push_coalesced(0, mode);
        }
        coalesced.iter().rev().filter_map(|&m| self.sub_axis(m)).collect()
    }

    /// Returns the part of the axes that these modes do not use, outermost first.
    ///
    /// This is the complement of the steps of every axis.
    ///
    /// For overlapping modes the result is only a part of that.
    pub(crate) fn complement(&self, used: &[Mode<AxisStride>]) -> InlineVec<SubAxis, 4> {
        let mut out = InlineVec::new();
        for (axis, a) in self.axes().iter().enumerate() {
            let along = |m: &&Mode<AxisStride>| m.extent > 1 && m.stride.axis() == Some(axis as u32);
            match used.iter().find(along) {
                Some(m) if m.extent < a.size as i64 => {}
                Some(_) => continue,
                None => {
                    out.extend((a.size > 1).then(|| self.known_whole(axis)));
                    continue;
                }
            }
            let mut steps: Modes = used.iter().filter(along).map(|m| m.map(AxisStride::step)).collect();
            steps.sort_by_key(|m| m.stride);
            let left = gaps(&steps, a.size as i64).unwrap_or_default();
            let along = |m: &Mode| self.sub_axis(m.map(|step| AxisStride::along(step, axis as u32)));
            out.extend(left.iter().rev().filter_map(along));
        }
        out
    }

    /// Returns some modes along axes as modes of ranks, or of positions in the table if there is one.
    ///
    /// The mesh maps `1@a` to the strides of the axis `a`.
    ///
    /// A mode `size : post@a` of an axis whose layout is `L` has the offsets `L o (size : post)`. For an axis
    /// of several modes that is only right if all modes along the axis compose with `L` *jointly*: each mode
    /// may do so alone, and their sum still carry over a boundary, so that the ranks of one group would
    /// depend on it.
    #[doc(hidden)]
    pub fn ranks_of(&self, modes: &[Mode<AxisStride>]) -> Result<Modes, Error> {
        let mut ranks = Modes::new();
        for &m in modes.iter().filter(|m| m.extent > 1) {
            let Some(axis) = m.stride.axis() else { continue };
            let a = &self.axes()[axis as usize];
            match a.layout.flat() {
                [one] => ranks.push(m.map(|at| at.step() * one.stride)),
                many if m.extent as usize == a.size => ranks.extend_from_slice(many),
                _ => {
                    let of_axis = |x: &&Mode<AxisStride>| x.extent > 1 && x.stride.axis() == Some(axis);
                    let asked: Modes<AxisStride> = modes.iter().filter(of_axis).copied().collect();
                    let rest = self.complement(&asked);
                    let rest = rest.iter().filter(|x| x.axis == axis as usize).map(|&x| self.known_mode(x));
                    let all = asked.iter().copied().chain(rest).map(|x| x.map(AxisStride::step)).collect();
                    let at = asked.iter().position(|x| *x == m).unwrap_or(0);
                    let offsets = a.layout.compose(&Layout::from_flat(all)?)?.mode(at)?;
                    ranks.extend(offsets.flat().iter().filter(|m| m.extent > 1).copied());
                }
            }
        }
        Ok(ranks)
    }

    /// Returns `true` if strides and offset are those of [`Mesh::new`].
    pub(crate) fn is_row_major(&self) -> bool {
        if self.rank_table().is_some() {
            return false;
        }
        let mut stride = 1;
        for a in self.axes().iter().rev() {
            if a.size > 1 && a.layout.flat() != [Mode::new(a.size as i64, stride)] {
                return false;
            }
            stride *= a.size as i64;
        }
        true
    }
}

/// Returns the axis that a mode of a mesh goes along.
#[inline]
pub fn axis_of(at: AxisStride) -> usize {
    at.axis().map_or(0, |axis| axis as usize)
}

/// Returns the digit of a coordinate along a mode.
#[inline]
pub fn digit(c: &[usize], m: Mode<AxisStride>) -> i64 {
    c[axis_of(m.stride)] as i64 / m.stride.step() % m.extent
}

/// Gives a coordinate another digit along a mode.
#[inline]
pub fn set_digit(c: &mut [usize], m: Mode<AxisStride>, value: i64) {
    let moved = (value - digit(c, m)) * m.stride.step();
    let x = &mut c[axis_of(m.stride)];
    *x = (*x as i64 + moved) as usize;
}
