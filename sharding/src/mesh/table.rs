//! Ranks in an order that is not a layout: a table from positions to ranks.
//!
//! The devices of real machines come in orders that no strides express, such as the ring `1, 2, 3, 0`. Such a
//! mesh is a layout followed by a table,
//!
//! ```text
//! rank(c) = table[position(c)]            position: coordinates to 0..size, row-major
//! ```
//!
//! so everything about coordinates stays algebra, and everything about ranks goes through the table once. Any
//! layout of positions would do, with the table permuted to match. It is always the row-major one, and there
//! is a table exactly where the ranks are not a layout. So equal meshes are equal values, and the table is
//! never the identity.

use crate::Error;

/// A list of different ranks, and its inverse.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    /// The rank at every position.
    ranks: Box<[usize]>,
    /// All positions, by their ranks ascending.
    by_rank: Box<[usize]>,
}

impl Table {
    /// Returns the table of these ranks, of which there is at least one.
    ///
    /// Fails with the positions of two that are equal.
    pub(super) fn new(ranks: &[usize]) -> Result<Table, [usize; 2]> {
        let mut by_rank: Box<[usize]> = (0..ranks.len()).collect();
        by_rank.sort_unstable_by_key(|&position| (ranks[position], position));
        match by_rank.windows(2).find(|w| ranks[w[0]] == ranks[w[1]]) {
            Some(twice) => Err([twice[0], twice[1]]),
            None => Ok(Table { ranks: ranks.into(), by_rank }),
        }
    }

    /// Returns the rank at every position.
    pub(super) fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Returns the position of a rank: a search, because ranks may be sparse.
    pub(super) fn position(&self, rank: usize) -> Option<usize> {
        let at = self.by_rank.binary_search_by_key(&rank, |&position| self.ranks[position]).ok()?;
        Some(self.by_rank[at])
    }

    /// Returns all ranks, ascending.
    pub(super) fn ascending(&self) -> impl Iterator<Item = usize> + '_ {
        self.by_rank.iter().map(|&position| self.ranks[position])
    }

    pub(super) fn lowest(&self) -> usize {
        self.ascending().next().unwrap_or_default()
    }

    pub(super) fn greatest(&self) -> usize {
        self.by_rank.last().map_or(0, |&position| self.ranks[position])
    }
}

/// Fails for a rank that is too large for a world to contain it.
pub(super) fn check_ranks(ranks: &[usize]) -> Result<(), Error> {
    let fits = |r: usize| i64::try_from(r).is_ok_and(|r| r < i64::MAX);
    match ranks.iter().find(|&&r| !fits(r)) {
        None => Ok(()),
        Some(r) => Err(Error::overflow(format!("the rank {r}"))),
    }
}
