//! Sets of groups: the pattern of a set of axes and the lowest members of its groups.
//!
//! The groups of some axes of a mesh have one pattern `P`; there is one group for every coordinate of the
//! other axes, whose modes `F` are the complement of `P` within the mesh:
//!
//! ```text
//! groups(axes) = { lowest + F(j) + P : j }             P and F sorted by stride, coalesced, jointly separable
//! ```
//!
//! Groups of a mesh whose ranks are a table are listed, member by member, unless they are groups of this
//! form.
//!
//! Two values are equal exactly if they are the same set of communicators, whatever mesh, axes or order they
//! came from.

use core::fmt;
use std::str::FromStr;

use reshard_layout::{Mode, Modes};
use smallvec::SmallVec;

use super::process_group::ProcessGroup;
use super::{GroupPattern, Listed, separable};
use crate::mesh::members_along;
use crate::notation::cursor::Cursor;
use crate::{Error, Mesh, SubAxis};

/// Maximum number of groups that are looked up individually.
const LISTED: usize = 1 << 10;

/// All groups of one pattern that a set of axes makes (see the module).
///
/// ```
/// use reshard_sharding::Mesh;
/// let mesh: Mesh = "dp=2,pp=2,tp=4".parse()?;
/// let groups = mesh.groups_of_axes(&["dp", "tp"])?;
/// assert_eq!(groups.to_string(), "(4,2):(1,8)@0+2:4");
/// assert_eq!(groups.group_of(5).unwrap().to_string(), "(4,2):(1,8)@4");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessGroups {
    pattern: GroupPattern,
    firsts: GroupPattern,
    lowest: usize,
    /// All groups, where pattern and firsts do not determine them.
    listed: Option<Listed>,
}

impl ProcessGroups {
    /// Returns the groups `lowest + firsts(j) + pattern`.
    ///
    /// Requires that pattern and firsts are jointly separable, else two groups would share a rank:
    /// `not_a_layout`.
    pub fn new(pattern: GroupPattern, firsts: GroupPattern, lowest: usize) -> Result<ProcessGroups, Error> {
        if pattern.lists().is_some() || firsts.lists().is_some() {
            return Err(Error::NotALayout {
                reason: format!("{pattern} at {firsts} is not a layout; list the members of every group"),
            });
        }
        let mut modes: Modes = pattern.modes().chain(firsts.modes()).collect();
        modes.sort_by_key(|m| m.stride);
        let span = separable(&modes).map_err(|reason| Error::NotALayout { reason })?;
        if i64::try_from(lowest).ok().and_then(|l| l.checked_add(span)?.checked_add(1)).is_none() {
            return Err(Error::overflow("the greatest rank of the groups"));
        }
        Ok(ProcessGroups { pattern, firsts, lowest, listed: None })
    }

    /// Returns the groups with these members, in any order.
    ///
    /// ```
    /// use reshard_sharding::ProcessGroups;
    /// let groups = ProcessGroups::listed([vec![3, 0, 1], vec![2, 4, 5]])?;
    /// assert_eq!(groups.to_string(), "{{0,1,3},{2,4,5}}");
    /// assert_eq!(ProcessGroups::listed([vec![2, 3], vec![0, 1]])?, "2:1@0+2:2".parse()?);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_a_layout` where there are none, they differ in size, or a rank is in two.
    #[doc(hidden)]
    pub fn listed(groups: impl IntoIterator<Item = Vec<usize>>) -> Result<ProcessGroups, Error> {
        let listed = Listed::new(groups)?;
        let firsts = listed.firsts();
        let lowest = firsts.first().copied().unwrap_or_default();
        let (pattern, firsts) = (GroupPattern::of_lists(&listed), GroupPattern::of_members(&firsts)?);
        if let Ok(digits) = ProcessGroups::new(pattern.clone(), firsts.clone(), lowest) {
            return Ok(digits);
        }
        Ok(ProcessGroups { pattern, firsts, lowest, listed: Some(listed) })
    }

    /// Returns the pattern that all groups have, or the lists of their members.
    pub fn pattern(&self) -> &GroupPattern {
        &self.pattern
    }

    /// Returns the pattern of the groups' lowest members, or the list of them.
    #[doc(hidden)]
    pub fn firsts(&self) -> &GroupPattern {
        &self.firsts
    }

    /// Returns the lowest rank of all.
    #[doc(hidden)]
    pub fn lowest(&self) -> usize {
        self.lowest
    }

    /// Returns the number of groups.
    pub fn count(&self) -> usize {
        self.firsts.size()
    }

    /// Returns all groups by lowest member.
    pub fn iter(&self) -> impl Iterator<Item = ProcessGroup> + '_ {
        let one = |first| match &self.listed {
            None => Some(ProcessGroup::known(self.pattern.clone(), first)),
            Some(listed) => ProcessGroup::of_members(listed.starting(first)?).ok(),
        };
        self.firsts.members(self.lowest).filter_map(one)
    }

    /// Returns the group that holds a rank: its lowest member is the rank without the digits of the pattern.
    pub fn group_of(&self, rank: usize) -> Option<ProcessGroup> {
        if let Some(listed) = &self.listed {
            return ProcessGroup::of_members(listed.holding(rank)?).ok();
        }
        let mut left = i64::try_from(rank.checked_sub(self.lowest)?).ok()?;
        let mut first = self.lowest;
        // Both ascend; go from the greatest stride down, taking it from either list.
        let (mut inside, mut outside) =
            (self.pattern.modes().rev().peekable(), self.firsts.modes().rev().peekable());
        loop {
            let from_pattern = match (inside.peek(), outside.peek()) {
                (None, None) => break,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some(a), Some(b)) => a.stride > b.stride,
            };
            let next = if from_pattern { inside.next() } else { outside.next() };
            let Mode { extent: s, stride: d } = next?;
            // A merged mode encloses finer ones of the other list only if those are below its stride.
            let digit = (left / d).min(s - 1);
            left -= digit * d;
            if !from_pattern {
                first += (digit * d) as usize;
            }
        }
        (left == 0).then(|| ProcessGroup::known(self.pattern.clone(), first))
    }

    /// Returns the pattern of the members on one node of `node` ranks, and the pattern from node to node.
    ///
    /// Returns `None` where the groups straddle nodes unequally or are listed; [`ProcessGroup::on_node_of`]
    /// handles these.
    ///
    /// Every mode is split at the node. The split is right if the inner modes, from the greatest offset on a
    /// node where a group starts, do not reach the next node.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let groups = "dp=16,tp=2".parse::<Mesh>()?.groups_of_axes(&["dp"])?;
    /// let (inside, across) = groups.split_at_node(8).unwrap();
    /// assert_eq!((inside.to_string(), across.to_string()), ("4:2".to_owned(), "4:8".to_owned()));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn split_at_node(&self, node: usize) -> Option<(GroupPattern, GroupPattern)> {
        let size = i64::try_from(node).ok().filter(|&n| n > 0 && self.listed.is_none())?;
        let (inside, across) = cut(&self.pattern, size)?;
        let (firsts, _) = cut(&self.firsts, size)?;
        let start = (self.lowest % node) as i64;
        let reach =
            inside.layout()?.max_value().checked_add(firsts.layout()?.max_value())?.checked_add(start)?;
        (reach < size).then_some((inside, across))
    }

    /// Returns `true` if these are the same communicators as the others, whatever their names: equality.
    #[doc(hidden)]
    pub fn same_members(&self, other: &ProcessGroups) -> bool {
        self == other
    }

    /// Returns `true` if each of these groups is one of the others.
    ///
    /// For example, `(dp, tp)` of one `pp` stage is among those of the world.
    ///
    /// The patterns must be equal, and the lowest members of these must be digits of the others' without
    /// carries:
    ///
    /// ```text
    /// lowest + sum_k (s_k - 1) v_k  stays below the extents        v_k = digits of the stride d_k in the others' modes
    /// ```
    ///
    /// Where they carry (possible only if the others' strides do not divide one another), up to 1,024 of
    /// these groups are looked up individually; for more, the result is `false`.
    #[doc(hidden)]
    pub fn is_subset_of(&self, other: &ProcessGroups) -> bool {
        if self.listed.is_some() || other.listed.is_some() {
            // Limited to the other's count, so that the listed groups bound the work.
            let fits = self.count() <= other.count() || other.listed.is_none();
            return fits && self.iter().all(|g| other.group_of(g.first()).as_ref() == Some(&g));
        }
        let Some(offset) = self.lowest.checked_sub(other.lowest) else { return false };
        let modes: Modes = other.firsts.modes().collect();
        let digits = |value: i64| -> Option<SmallVec<[i64; 8]>> {
            let mut left = value;
            let mut out = SmallVec::from_elem(0, modes.len());
            for (x, &Mode { extent: s, stride: d }) in out.iter_mut().zip(&modes).rev() {
                *x = (left / d).min(s - 1);
                left -= *x * d;
            }
            (left == 0).then_some(out)
        };
        let reach = || {
            let mut most = digits(i64::try_from(offset).ok()?)?;
            for Mode { extent: s, stride: d } in self.firsts.modes() {
                for (total, x) in most.iter_mut().zip(digits(d)?) {
                    *total = total.checked_add((s - 1).checked_mul(x)?)?;
                }
            }
            Some(most.iter().zip(&modes).all(|(&x, m)| x < m.extent))
        };
        let is_first = |rank| other.group_of(rank).is_some_and(|m| m.first() == rank);
        let listed = || self.count() <= LISTED && self.firsts.members(self.lowest).all(is_first);
        self.pattern == other.pattern && (reach().unwrap_or(false) || listed())
    }
}

/// Splits a pattern at a node: the modes inside, and those whose strides are whole nodes.
fn cut(pattern: &GroupPattern, node: i64) -> Option<(GroupPattern, GroupPattern)> {
    let (mut inside, mut across) = (Modes::new(), Modes::new());
    for m in pattern.modes() {
        if m.stride % node == 0 {
            across.push(m);
        } else if m.extent.checked_mul(m.stride).is_some_and(|reach| reach <= node) {
            inside.push(m);
        } else if node % m.stride == 0 {
            let (low, high) = m.cut(node / m.stride)?;
            inside.push(low);
            across.push(high);
        } else {
            return None;
        }
    }
    Some((GroupPattern::of_modes(inside).ok()?, GroupPattern::of_modes(across).ok()?))
}

impl Mesh {
    /// Returns the groups of some sub-axes, in any order: one for every coordinate of the rest of the mesh.
    ///
    /// Fails with `mesh` for sub-axes that do not divide, and with `not_a_layout` if two overlap.
    pub fn groups(&self, subs: &[SubAxis]) -> Result<ProcessGroups, Error> {
        let modes = self.checked_modes(subs)?;
        if self.rank_table().is_some() {
            return self.listed_groups(&modes);
        }
        let pattern = self.group_of_modes(&modes)?;
        let firsts = self.group(&self.complement(&modes))?;
        ProcessGroups::new(pattern, firsts, self.min_rank())
    }

    /// Returns the groups of whole axes, by name, in any order.
    pub fn groups_of_axes(&self, names: &[&str]) -> Result<ProcessGroups, Error> {
        self.groups(&self.whole_axes_named(names)?)
    }

    /// Returns the group of some sub-axes that holds a rank.
    pub fn members(&self, subs: &[SubAxis], rank: usize) -> Result<ProcessGroup, Error> {
        if self.rank_table().is_some() {
            return ProcessGroup::of_members(&members_along(self, &self.checked_modes(subs)?, rank)?);
        }
        self.groups(subs)?.group_of(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: self.to_string() })
    }
}

impl fmt::Display for ProcessGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(listed) = &self.listed {
            return listed.fmt(f);
        }
        write!(f, "{}@{}", self.pattern, self.lowest)?;
        if self.count() > 1 {
            write!(f, "+{}", self.firsts)?;
        }
        Ok(())
    }
}

impl FromStr for ProcessGroups {
    type Err = Error;

    fn from_str(text: &str) -> Result<ProcessGroups, Error> {
        let mut r = Cursor::new("groups", text);
        if Listed::is_next(&mut r) {
            let listed = Listed::read(&mut r)?;
            r.finish()?;
            return ProcessGroups::listed(listed.groups().iter().map(|g| g.to_vec()));
        }
        let pattern = r.group(&['@'])?;
        r.expect("@")?;
        let lowest = r.number("the lowest rank")?;
        let firsts = if r.eat("+") { r.group(&[])? } else { "1:0".parse()? };
        r.finish()?;
        ProcessGroups::new(pattern, firsts, lowest)
    }
}
