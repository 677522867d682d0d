//! Groups: the ranks that communicate in a step, described by a layout.
//!
//! The group of some (sub-)axes is the pattern of their offsets,
//!
//! ```text
//! group(axes) = coalesce(sort by stride (modes of all axes))
//! ```
//!
//! so two groups are the same communicator exactly if their patterns (and offsets) are equal, however they
//! were spelled. The groups of a pattern are given by the complement within the mesh: one for every
//! coordinate of the other axes. No operation on groups enumerates ranks, unless the ranks of the mesh are a
//! table: groups that are not a layout are listed member by member.

mod listed;
mod process_group;
mod process_groups;
mod registry;

pub use process_group::ProcessGroup;
pub use process_groups::ProcessGroups;
pub use registry::GroupRegistry;

pub(crate) use listed::Listed;

use core::fmt;
use std::str::FromStr;

use reshard_layout::{Layout, Mode, Modes};

use crate::Error;
use crate::notation::cursor::Cursor;

/// The pattern of ranks that communicate: member number to offset from the lowest member.
///
/// Strides are positive and ascending, and neighbouring modes are merged: equal groups are equal values.
/// Groups of a mesh whose ranks are a table may have no pattern in common that is a layout; then they are the
/// lists of their members, `{{0,1,3},{2,4,5}}`, which are used only where no layout exists.
///
/// ```
/// use reshard_sharding::Mesh;
/// let mesh: Mesh = "dp=2,pp=2,tp=4".parse()?;
/// assert_eq!(mesh.group_of_axes(&["tp"])?.to_string(), "4:1");
/// assert_eq!(mesh.group_of_axes(&["dp", "tp"])?.to_string(), "(4,2):(1,8)");
/// assert_eq!(mesh.group_of_axes(&["tp", "pp"])?, mesh.group_of_axes(&["pp", "tp"])?);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupPattern(Members);

/// The members of the groups of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Members {
    /// Offsets from the lowest member.
    Layout(Layout),
    /// The members of every group.
    Listed(Listed),
}

impl GroupPattern {
    /// Returns the group with the members that a layout's values are, relative to the lowest of them.
    ///
    /// Requires radix-separable modes: sorted by stride, each stride exceeds the span of those below.
    pub fn new(layout: &Layout) -> Result<GroupPattern, Error> {
        GroupPattern::of_modes(Modes::from_slice(layout.flat()))
    }

    /// Returns the group of these modes in any order, those of one member among them.
    pub(crate) fn of_modes(mut modes: Modes) -> Result<GroupPattern, Error> {
        modes.retain(|m| m.extent > 1);
        for Mode { stride, .. } in modes.iter_mut() {
            *stride = stride.checked_abs().ok_or_else(|| Error::overflow(format!("the stride {stride}")))?;
        }
        modes.sort_by_key(|m| m.stride);
        separable(&modes).map_err(|reason| Error::NotALayout { reason })?;
        Ok(GroupPattern(Members::Layout(Layout::coalesced(&modes)?)))
    }

    /// Returns the groups with these members: a pattern if they have one that is a layout, otherwise lists.
    pub(crate) fn of_lists(lists: &Listed) -> GroupPattern {
        lists.pattern().unwrap_or_else(|| GroupPattern(Members::Listed(lists.clone())))
    }

    /// Returns the one group with these members, which ascend.
    pub(crate) fn of_members(members: &[usize]) -> Result<GroupPattern, Error> {
        Ok(GroupPattern::of_lists(&Listed::new([members.to_vec()])?))
    }

    /// Returns the pattern as a layout from member number to offset; `None` for groups that are listed.
    pub fn layout(&self) -> Option<&Layout> {
        match &self.0 {
            Members::Layout(layout) => Some(layout),
            Members::Listed(_) => None,
        }
    }

    /// Returns the groups where they are listed.
    pub(crate) fn lists(&self) -> Option<&Listed> {
        match &self.0 {
            Members::Layout(_) => None,
            Members::Listed(lists) => Some(lists),
        }
    }

    /// Returns the offsets of the members from the lowest, ascending.
    ///
    /// They are those of every group, or of the first of the listed groups.
    ///
    /// ```
    /// use reshard_sharding::GroupPattern;
    /// let [a, b]: [GroupPattern; 2] = ["(2,2):(1,8)".parse()?, "{{1,2,5},{3,6,7}}".parse()?];
    /// assert_eq!(a.offsets().collect::<Vec<_>>(), [0, 1, 8, 9]);
    /// assert_eq!(b.offsets().collect::<Vec<_>>(), [0, 1, 4]);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn offsets(&self) -> impl Iterator<Item = usize> + '_ {
        let first = self.lists().and_then(|lists| lists.groups().first()).map_or(0, |g| g[0]);
        self.members(first).map(move |rank| rank - first)
    }

    /// Returns the number of members.
    pub fn size(&self) -> usize {
        match &self.0 {
            Members::Layout(layout) => layout.size() as usize,
            Members::Listed(lists) => lists.size(),
        }
    }

    /// Returns the modes in ascending order; none for a group of one, and for groups that are listed.
    #[doc(hidden)]
    pub fn modes(&self) -> impl DoubleEndedIterator<Item = Mode> + '_ {
        let modes = self.layout().map(Layout::flat).unwrap_or_default();
        modes.iter().copied().filter(|m| m.extent > 1)
    }

    /// Returns `true` if each group of this pattern is one of the other's.
    ///
    /// They have the same pattern, or this has some of the other's lists.
    ///
    /// ```
    /// use reshard_sharding::GroupPattern;
    /// let wanted: GroupPattern = "{{0,1,3}}".parse()?;
    /// assert!(wanted.is_covered_by(&"{{0,1,3},{2,4,5}}".parse()?));
    /// assert!(!wanted.is_covered_by(&"3:1".parse()?));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[inline]
    pub fn is_covered_by(&self, other: &GroupPattern) -> bool {
        match (&self.0, &other.0) {
            (Members::Layout(a), Members::Layout(b)) => a == b,
            (Members::Listed(a), Members::Listed(b)) => {
                a.groups().iter().all(|g| b.starting(g[0]) == Some(&**g))
            }
            (Members::Layout(_), Members::Listed(_)) | (Members::Listed(_), Members::Layout(_)) => false,
        }
    }

    /// Returns `true` if two patterns are orthogonal: every sum of their members is another rank.
    ///
    /// ```
    /// use reshard_sharding::GroupPattern;
    /// let [a, b, c]: [GroupPattern; 3] = ["4:1".parse()?, "2:4".parse()?, "2:2".parse()?];
    /// assert!(a.is_orthogonal_to(&b) && !a.is_orthogonal_to(&c));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn is_orthogonal_to(&self, other: &GroupPattern) -> bool {
        GroupPattern::are_orthogonal(&[self, other])
    }

    /// Returns `true` if patterns are jointly orthogonal.
    ///
    /// Sorted by stride, each mode's stride exceeds the span of those below.
    ///
    /// That is stronger than pairwise: of the strides 5, 6, 7 of size 2 any two are orthogonal, the three are
    /// not. Groups that are listed have no offsets to add, and are orthogonal to none.
    #[doc(hidden)]
    pub fn are_orthogonal(groups: &[&GroupPattern]) -> bool {
        if groups.len() > 1 && groups.iter().any(|g| g.lists().is_some()) {
            return false;
        }
        let mut modes: Modes = groups.iter().flat_map(|g| g.modes()).collect();
        modes.sort_by_key(|m| m.stride);
        separable(&modes).is_ok()
    }

    /// Returns the members of the group whose lowest member is `first`, in ascending order.
    ///
    /// There are none if the groups are listed without such a group, and none beyond the greatest rank
    /// number.
    pub fn members(&self, first: usize) -> impl Iterator<Item = usize> + '_ {
        // Strides are positive.
        let offsets = self.layout().into_iter().flat_map(Layout::values);
        let listed = self.lists().and_then(|lists| lists.starting(first)).unwrap_or_default();
        offsets.map_while(move |offset| first.checked_add(offset as usize)).chain(listed.iter().copied())
    }
}

impl fmt::Display for GroupPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Members::Layout(layout) => layout.fmt(f),
            Members::Listed(lists) => lists.fmt(f),
        }
    }
}

impl FromStr for GroupPattern {
    type Err = Error;

    fn from_str(s: &str) -> Result<GroupPattern, Error> {
        let mut r = Cursor::new("group", s);
        let group = if Listed::is_next(&mut r) {
            GroupPattern::of_lists(&Listed::read(&mut r)?)
        } else {
            r.group(&[])?
        };
        r.finish()?;
        Ok(group)
    }
}

/// Returns the span of modes sorted by positive stride if they are radix-separable.
///
/// Each stride must exceed the span of the modes below.
pub(crate) fn separable(sorted: &[Mode]) -> Result<i64, String> {
    let mut span = 0i64;
    for &Mode { extent: s, stride: d } in sorted {
        if d <= span {
            return Err(format!(
                "the mode {s}:{d} is not separable from the ones below it, which reach offset {span}: two coordinates would be one rank"
            ));
        }
        span = (s - 1)
            .checked_mul(d)
            .and_then(|x| x.checked_add(span))
            .ok_or_else(|| format!("the mode {s}:{d} reaches beyond 63 bits"))?;
    }
    Ok(span)
}
