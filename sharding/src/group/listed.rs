//! Groups member by member, where no layout describes them.
//!
//! ```text
//! {1,2,3}                 one group
//! {{0,1,3},{2,4,5}}       several, of one size and without a rank in common
//! ```
//!
//! Members ascend and groups are ordered by their lowest member, so equal lists are the same groups. Groups
//! that a layout can express are never listed: [`pattern_of_line`] finds it.

use core::fmt;
use std::sync::Arc;

use super::GroupPattern;
use crate::Error;
use crate::notation::cursor::Cursor;
use crate::notation::{join, numbers};

/// Groups of different ranks, at least one of at least one member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Listed(Arc<[Box<[usize]>]>);

impl Listed {
    /// Returns these groups.
    ///
    /// Fails with `not_a_layout` where there are none, their sizes differ, or a rank is in two.
    pub(crate) fn new(groups: impl IntoIterator<Item = Vec<usize>>) -> Result<Listed, Error> {
        let sorted = |mut group: Vec<usize>| {
            group.sort_unstable();
            group.into_boxed_slice()
        };
        let mut groups: Vec<Box<[usize]>> = groups.into_iter().map(sorted).collect();
        groups.sort_unstable();
        let refused = |reason: String| Err(Error::NotALayout { reason });
        let Some(size) = groups.first().map(|g| g.len()).filter(|&n| n > 0) else {
            return refused("the list of groups has no members; give at least one rank".to_owned());
        };
        if let Some(other) = groups.iter().find(|g| g.len() != size) {
            return refused(format!(
                "the groups {{{}}} and {{{}}} have {size} and {} members; the groups of one step must have equal \
                 size",
                join(&groups[0]),
                join(other),
                other.len()
            ));
        }
        let mut all: Vec<usize> = groups.iter().flat_map(|g| g.iter().copied()).collect();
        all.sort_unstable();
        if let Some([twice, ..]) = all.windows(2).find(|w| w[0] == w[1]) {
            return refused(format!("rank {twice} is in the groups twice; give each rank once"));
        }
        match all.last() {
            Some(&greatest) if i64::try_from(greatest).is_ok_and(|r| r < i64::MAX) => {}
            Some(_) | None => return Err(Error::overflow("the greatest rank of the groups")),
        }
        Ok(Listed(groups.into()))
    }

    /// Reads `{0,1}` or `{{0,1},{2,3}}`.
    pub(crate) fn read(r: &mut Cursor<'_>) -> Result<Listed, Error> {
        r.expect("{")?;
        let mut groups = Vec::new();
        if r.rest().starts_with('{') {
            loop {
                r.expect("{")?;
                groups.push(numbers(r, "a rank")?);
                r.expect("}")?;
                if !r.eat(",") {
                    break;
                }
            }
        } else {
            groups.push(numbers(r, "a rank")?);
        }
        r.expect("}")?;
        Listed::new(groups)
    }

    /// Returns `true` if a text starts with a list.
    pub(crate) fn is_next(r: &mut Cursor<'_>) -> bool {
        r.rest().starts_with('{')
    }

    /// Returns the groups by lowest member, each ascending.
    pub(crate) fn groups(&self) -> &[Box<[usize]>] {
        &self.0
    }

    /// Returns the members of each.
    pub(crate) fn size(&self) -> usize {
        self.0.first().map_or(0, |g| g.len())
    }

    /// Returns the group that holds a rank.
    pub(crate) fn holding(&self, rank: usize) -> Option<&[usize]> {
        self.0.iter().find(|g| g.binary_search(&rank).is_ok()).map(|g| &**g)
    }

    /// Returns the group whose lowest member is this rank.
    pub(crate) fn starting(&self, first: usize) -> Option<&[usize]> {
        let at = self.0.binary_search_by_key(&first, |g| g[0]).ok()?;
        Some(&self.0[at])
    }

    /// Returns the pattern of all groups from their lowest members, if that is one layout.
    pub(crate) fn pattern(&self) -> Option<GroupPattern> {
        let pattern = pattern_of_line(self.0.first()?)?;
        self.0.iter().all(|g| pattern.members(g[0]).eq(g.iter().copied())).then_some(pattern)
    }

    /// Returns the lowest members.
    pub(crate) fn firsts(&self) -> Vec<usize> {
        self.0.iter().map(|g| g[0]).collect()
    }
}

/// Returns the pattern of ascending ranks from the lowest on, if they are a layout.
pub(crate) fn pattern_of_line(ascending: &[usize]) -> Option<GroupPattern> {
    let first = *ascending.first()?;
    let line: Option<Vec<i64>> = ascending.iter().map(|&r| i64::try_from(r - first).ok()).collect();
    GroupPattern::of_modes(crate::mesh::modes_of_line(&line?).ok()?).ok()
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.0.iter().map(|g| format!("{{{}}}", join(g))).collect();
        write!(f, "{{{}}}", groups.join(","))
    }
}
