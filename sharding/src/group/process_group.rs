//! One group: a pattern at a lowest member.

use core::fmt;
use core::ops::Range;
use std::str::FromStr;

use reshard_layout::{Layout, Mode};

use super::GroupPattern;
use crate::Error;
use crate::notation::cursor::Cursor;
use crate::notation::{join, numbers};

/// One communicator: the ranks `first + pattern`, or `{0,1,3}` where they are not a layout.
///
/// Equal values are the same ranks, however they were spelled.
///
/// ```
/// use reshard_sharding::ProcessGroup;
/// let members: ProcessGroup = "(4,2):(1,8)@4".parse()?;
/// assert_eq!(members.iter().collect::<Vec<_>>(), [4, 5, 6, 7, 12, 13, 14, 15]);
/// assert!(members.contains(13) && !members.contains(8));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessGroup {
    pattern: GroupPattern,
    first: usize,
}

impl ProcessGroup {
    /// Returns the group of this pattern whose lowest member is `first`.
    pub fn new(pattern: GroupPattern, first: usize) -> Result<ProcessGroup, Error> {
        let greatest = i64::try_from(first)
            .ok()
            .and_then(|f| f.checked_add(pattern.layout().map_or(0, Layout::max_value))?.checked_add(1));
        if let Some(lists) = pattern.lists() {
            let members = lists.starting(first).ok_or_else(|| Error::NotALayout {
                reason: format!("none of the groups {pattern} has the lowest member {first}"),
            })?;
            return ProcessGroup::of_members(members);
        }
        match greatest {
            Some(_) => Ok(ProcessGroup { pattern, first }),
            None => Err(Error::overflow(format!("the greatest rank of the group {pattern}@{first}"))),
        }
    }

    /// Returns the group of these ranks, in any order.
    ///
    /// ```
    /// use reshard_sharding::ProcessGroup;
    /// assert_eq!(ProcessGroup::of_members(&[3, 0, 1])?.to_string(), "{0,1,3}");
    /// assert_eq!(ProcessGroup::of_members(&[7, 5, 6])?.to_string(), "3:1@5");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_a_layout` for no ranks and for a rank that occurs twice.
    #[doc(hidden)]
    pub fn of_members(ranks: &[usize]) -> Result<ProcessGroup, Error> {
        let first = ranks.iter().min().copied().unwrap_or_default();
        Ok(ProcessGroup { pattern: GroupPattern::of_members(ranks)?, first })
    }

    /// Returns the members where they are listed.
    fn listed(&self) -> Option<&[usize]> {
        self.pattern.lists()?.starting(self.first)
    }

    /// Requires that the ranks fit.
    pub(super) fn known(pattern: GroupPattern, first: usize) -> ProcessGroup {
        ProcessGroup { pattern, first }
    }

    /// Returns the pattern.
    pub fn pattern(&self) -> &GroupPattern {
        &self.pattern
    }

    /// Returns the lowest member.
    #[doc(hidden)]
    pub fn first(&self) -> usize {
        self.first
    }

    /// Returns the number of members.
    pub fn size(&self) -> usize {
        self.pattern.size()
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.pattern.members(self.first)
    }

    /// Returns the member of this number, in ascending order.
    ///
    /// ```
    /// use reshard_sharding::ProcessGroup;
    /// assert_eq!("(4,2):(1,8)@4".parse::<ProcessGroup>()?.rank_at(5), Some(13));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn rank_at(&self, number: usize) -> Option<usize> {
        match (self.listed(), self.pattern.layout()) {
            (Some(members), _) => members.get(number).copied(),
            (None, Some(layout)) if number < self.size() => {
                let offset = layout.at(i64::try_from(number).ok()?).ok()?;
                Some(self.first + usize::try_from(offset).ok()?)
            }
            (None, _) => None,
        }
    }

    /// Returns the number of members below a rank, in O(modes).
    ///
    /// Members ascend with their number, so this is also the number of the first one that is not below it.
    /// With the modes sorted by stride and `q` the digit of the greatest one, `min(floor(x / d), s - 1)`, all
    /// members of smaller digits are below `x`, none of greater ones is, and the rest is the same problem for
    /// `x - q d`.
    #[doc(hidden)]
    pub fn below(&self, rank: usize) -> usize {
        if let Some(members) = self.listed() {
            return members.partition_point(|&r| r < rank);
        }
        let Some(x) = rank.checked_sub(self.first) else { return 0 };
        let mut left = i64::try_from(x).unwrap_or(i64::MAX);
        let mut inner = self.pattern.size() as i64;
        let mut count = 0;
        for Mode { extent: s, stride: d } in self.pattern.modes().rev() {
            inner /= s;
            let q = (left / d).min(s - 1);
            count += q * inner;
            left -= q * d;
        }
        (count + i64::from(left > 0)) as usize
    }

    /// Returns the number of a rank among the members, if it is one.
    pub fn group_rank(&self, rank: usize) -> Option<usize> {
        let at = self.below(rank);
        (self.below(rank.checked_add(1)?) > at).then_some(at)
    }

    /// Returns `true` if a rank is a member.
    pub fn contains(&self, rank: usize) -> bool {
        self.group_rank(rank).is_some()
    }

    /// Returns the numbers of the members on the same node as `rank`.
    ///
    /// Node `i` holds the ranks `i * node .. (i + 1) * node`.
    ///
    /// Members ascend with their number, so those of a node are a range, whatever the pattern and the size of
    /// the node.
    ///
    /// ```
    /// use reshard_sharding::ProcessGroup;
    /// let members: ProcessGroup = "(4,2):(1,8)@4".parse()?;
    /// assert_eq!(members.on_node_of(6, 8), Some(0..4));
    /// assert_eq!(members.on_node_of(13, 3), Some(4..7));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// `None` for a node of no ranks.
    #[doc(hidden)]
    pub fn on_node_of(&self, rank: usize, node: usize) -> Option<Range<usize>> {
        let start = rank.checked_div(node)?.checked_mul(node)?;
        Some(self.below(start)..self.below(start.saturating_add(node)))
    }
}

impl fmt::Display for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.listed() {
            Some(members) => write!(f, "{{{}}}", join(members)),
            None => write!(f, "{}@{}", self.pattern, self.first),
        }
    }
}

impl FromStr for ProcessGroup {
    type Err = Error;

    fn from_str(text: &str) -> Result<ProcessGroup, Error> {
        let mut r = Cursor::new("group", text);
        if r.eat("{") {
            let members = numbers(&mut r, "a rank")?;
            r.expect("}")?;
            r.finish()?;
            return ProcessGroup::of_members(&members);
        }
        let pattern = r.group(&['@'])?;
        let first = if r.eat("@") { r.number("the lowest member")? } else { 0 };
        r.finish()?;
        ProcessGroup::new(pattern, first)
    }
}
