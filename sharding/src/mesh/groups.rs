//! The groups of a mesh whose ranks are a table, and the axes that a group goes along.
//!
//! The coordinates of a group are layout algebra; its ranks are looked up where they are a table. Conversely,
//! a group `E:D` and an axis `n:s` have the digits in common whose strides both span:
//!
//! ```text
//! E:D and n:s    [lcm(D, s), gcd(E D, n s))    where the second is a multiple of the first
//! ```

use reshard_layout::algebra::gcd;
use reshard_layout::{AxisStride, InlineVec, Mode, Modes};

use super::along::for_each_value;
use super::{Mesh, digit};
use crate::Error;
use crate::axis::SubAxis;
use crate::group::{GroupPattern, ProcessGroups};

impl Mesh {
    /// Returns the groups of some modes along axes, member by member.
    ///
    /// There is one for every coordinate whose digits along them are 0.
    ///
    /// Requires modes that are digits of one number where they are of one axis.
    pub(crate) fn listed_groups(&self, modes: &[Mode<AxisStride>]) -> Result<ProcessGroups, Error> {
        let mut groups = Vec::new();
        for i in 0..self.size() {
            let Some(mut c) = self.coordinate_at(i) else { continue };
            if modes.iter().all(|&m| digit(&c, m) == 0) {
                let mut group = Vec::new();
                for_each_value(&mut c, modes, &mut |c| group.extend(self.rank_at(c)));
                groups.push(group);
            }
        }
        ProcessGroups::listed(groups)
    }

    /// Returns the sub-axes whose group this is, outermost first; `None` if it is the group of none.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, SubAxis};
    /// let mesh: Mesh = "dp=4,tp=2".parse()?;
    /// let [minor, tp] = [SubAxis { axis: 0, pre_size: 2, size: 2 }, SubAxis { axis: 1, pre_size: 1, size: 2 }];
    /// assert_eq!(mesh.axes_of_group(&"4:1".parse()?).as_deref(), Some(&[minor, tp][..]));
    /// assert_eq!(mesh.axes_of_group(&"3:1".parse()?), None);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Ensures that [`Mesh::group`] of them is the group.
    #[doc(hidden)]
    pub fn axes_of_group(&self, group: &GroupPattern) -> Option<InlineVec<SubAxis, 4>> {
        if self.rank_table().is_some() {
            return self.whole_axes_of(group);
        }
        let subs = self.digits_in(group)?;
        self.group(&subs).is_ok_and(|of_subs| of_subs == *group).then_some(subs)
    }

    /// Returns the digits of axes that a group goes along, for ranks without a table.
    ///
    /// Returns `None` for a listed group.
    fn digits_in(&self, group: &GroupPattern) -> Option<InlineVec<SubAxis, 4>> {
        let layout = group.layout()?;
        let mut digits: Modes<AxisStride> = Modes::new();
        for (axis, a) in self.axes().iter().enumerate() {
            let mut post = 1;
            let mut of_axis: Modes<AxisStride> = Modes::new();
            for mode in a.layout.flat() {
                for x in layout.flat().iter().filter(|x| x.extent > 1 && mode.extent > 1) {
                    let span = gcd(x.extent.checked_mul(x.stride)?, mode.extent.checked_mul(mode.stride)?);
                    let low = (x.stride / gcd(x.stride, mode.stride)).checked_mul(mode.stride)?;
                    if span > low && span % low == 0 {
                        of_axis.push(Mode::new(
                            span / low,
                            AxisStride::along(post * (low / mode.stride), axis as u32),
                        ));
                    }
                }
                post *= mode.extent;
            }
            // Slowest first.
            of_axis.sort_by_key(|m| core::cmp::Reverse(m.stride.step()));
            digits.extend(of_axis.iter().copied());
        }
        Some(self.sub_axes_of(digits.iter().copied()))
    }

    /// Returns the whole axes whose group this is, of ranks that are a table.
    fn whole_axes_of(&self, group: &GroupPattern) -> Option<InlineVec<SubAxis, 4>> {
        let axes: InlineVec<SubAxis, 4> = self.whole_axes().filter(|a| a.size > 1).collect();
        let sets = 1u32.checked_shl(u32::try_from(axes.len()).ok()?)?;
        let chosen = |set: u32| -> InlineVec<SubAxis, 4> {
            axes.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1).map(|(_, a)| *a).collect()
        };
        let is_it = |subs: &InlineVec<SubAxis, 4>| {
            subs.iter().map(|a| a.size).product::<usize>() == group.size()
                && self.group(subs).is_ok_and(|of_subs| of_subs == *group)
        };
        (1..sets).map(chosen).find(is_it)
    }
}
