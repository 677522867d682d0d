//! The existing process groups of a framework.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use reshard_sharding::{GroupPattern, ProcessGroup, ProcessGroups};

use crate::Error;

/// An existing group of a framework: its name there, and its members in the framework's order.
///
/// ```
/// use reshard_collectives::calls::FrameworkGroups;
/// let groups = FrameworkGroups::new([("tp", vec![4, 6, 5])])?;
/// let group = groups.iter().next().unwrap();
/// assert_eq!((group.name(), group.members()), ("tp", &[4, 6, 5][..]));
/// assert_eq!(group.to_string(), "tp[4,6,5]");
/// # Ok::<(), reshard_collectives::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameworkGroup {
    name: String,
    members: Vec<usize>,
    /// The members ascending, each with its group rank.
    places: Vec<(usize, usize)>,
    /// `true` if the members are in ascending order.
    ascends: bool,
}

impl FrameworkGroup {
    /// Creates the group of these members in this order.
    ///
    /// Errors: [`Error::Offer`] for a group without members, and for a member that is listed twice.
    #[doc(hidden)]
    pub fn new(name: impl Into<String>, members: impl Into<Vec<usize>>) -> Result<FrameworkGroup, Error> {
        let (name, members) = (name.into(), members.into());
        let mut places: Vec<(usize, usize)> =
            members.iter().copied().enumerate().map(|(at, rank)| (rank, at)).collect();
        places.sort_unstable();
        let wrong = |message: String| Err(Error::Offer { name: name.clone(), message });
        if members.is_empty() {
            return wrong("it has no members".to_string());
        }
        if let Some(twice) = places.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return wrong(format!("rank {} is listed twice", twice[0].0));
        }
        let ascends = members.is_sorted();
        Ok(FrameworkGroup { name, members, places, ascends })
    }

    /// Returns the name of the group in the framework.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the ranks in the framework's order.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Returns `true` if the members are in ascending order.
    pub(crate) fn ascends(&self) -> bool {
        self.ascends
    }

    /// Returns the group rank of a rank, if it is a member.
    ///
    /// ```
    /// use reshard_collectives::calls::FrameworkGroup;
    /// let group = FrameworkGroup::new("tp", [4, 6, 5])?;
    /// assert_eq!((group.group_rank(6), group.group_rank(7)), (Some(1), None));
    /// # Ok::<(), reshard_collectives::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn group_rank(&self, rank: usize) -> Option<usize> {
        let at = self.places.binary_search_by_key(&rank, |place| place.0).ok()?;
        Some(self.places[at].1)
    }
}

impl fmt::Display for FrameworkGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<String> = self.members.iter().map(usize::to_string).collect();
        write!(f, "{}[{}]", self.name, members.join(","))
    }
}

/// The existing groups of a framework, the same list on all ranks.
///
/// A plan's exchange among some ranks is called on the group of exactly these ranks, in any order, and on the
/// first if there are several. If there is none, it is called on the smallest group that contains them.
///
/// ```
/// use reshard_collectives::calls::FrameworkGroups;
/// let offers = FrameworkGroups::new([("world", vec![0, 1, 2, 3]), ("tp", vec![0, 1]), ("tp", vec![2, 3])])?;
/// assert_eq!(offers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["world[0,1,2,3]", "tp[0,1]", "tp[2,3]"]);
/// # Ok::<(), reshard_collectives::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FrameworkGroups {
    all: Vec<Arc<FrameworkGroup>>,
    /// The first group with exactly these members, ascending.
    by_members: HashMap<Box<[usize]>, usize>,
    /// The groups that contain a rank, the smallest first.
    of_rank: HashMap<usize, Vec<usize>>,
    /// The lowest members of the groups of a pattern.
    firsts: HashMap<GroupPattern, HashSet<usize>>,
}

impl FrameworkGroups {
    /// Returns an empty list: ranks send messages.
    #[doc(hidden)]
    pub fn none() -> FrameworkGroups {
        FrameworkGroups::default()
    }

    /// Creates the groups of these names and members.
    ///
    /// Errors: [`Error::Offer`] for a group without members, and for a member that is listed twice.
    pub fn new<N: Into<String>, M: Into<Vec<usize>>>(
        groups: impl IntoIterator<Item = (N, M)>,
    ) -> Result<FrameworkGroups, Error> {
        let mut offers = FrameworkGroups::default();
        for (name, members) in groups {
            let offer = FrameworkGroup::new(name, members)?;
            let at = offers.all.len();
            let ascending: Box<[usize]> = offer.places.iter().map(|place| place.0).collect();
            for rank in &*ascending {
                offers.of_rank.entry(*rank).or_default().push(at);
            }
            let group = ProcessGroup::of_members(&ascending)?;
            offers.firsts.entry(group.pattern().clone()).or_default().insert(group.first());
            offers.by_members.entry(ascending).or_insert(at);
            offers.all.push(Arc::new(offer));
        }
        let FrameworkGroups { all, of_rank, .. } = &mut offers;
        for list in of_rank.values_mut() {
            list.sort_by_key(|&at| all[at].members.len());
        }
        Ok(offers)
    }

    /// Returns the groups in the given order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<FrameworkGroup>> + '_ {
        self.all.iter()
    }

    /// Returns the group at an index of the list.
    pub(crate) fn at(&self, place: usize) -> &Arc<FrameworkGroup> {
        &self.all[place]
    }

    /// Returns the index of the first group of exactly these members, which ascend.
    pub(crate) fn exact(&self, members: &[usize]) -> Option<usize> {
        self.by_members.get(members).copied()
    }

    /// Returns `true` if each of these groups exists with exactly its members.
    ///
    /// `false` for a pattern that is not known.
    pub(crate) fn has_all(&self, groups: &ProcessGroups) -> bool {
        let firsts = self.firsts.get(groups.pattern()).filter(|_| groups.pattern().layout().is_some());
        firsts.is_some_and(|firsts| {
            groups.firsts().offsets().all(|offset| firsts.contains(&(groups.lowest() + offset)))
        })
    }

    /// Returns the indices of the groups that contain a rank, the smallest first.
    pub(crate) fn holding(&self, rank: usize) -> &[usize] {
        self.of_rank.get(&rank).map_or(&[], Vec::as_slice)
    }
}
