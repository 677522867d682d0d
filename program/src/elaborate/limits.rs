//! Limits of a search: the beam width, the work budget, and the knowledge from an earlier search.

use rustc_hash::FxHashMap;

use crate::elaborate::ahead::Ahead;
use crate::elaborate::at_hand::AtHand;

/// The limits of a search.
#[derive(Debug)]
pub(crate) struct Limits {
    /// The beam width.
    pub(crate) most: usize,
    /// The cost of some complete program; prunes states that cost more.
    pub(crate) known: u64,
    /// The types in which values could be available, found by an earlier search.
    pub(crate) could_be: FxHashMap<usize, AtHand>,
    /// The bound on what follows each statement.
    pub(crate) ahead: Option<Ahead>,
    /// The work budget before the beam narrows, in lookups of a cached price.
    pub(crate) work: u64,
}

impl Limits {
    /// Returns the limits of a greedy search.
    pub(crate) fn hasty() -> Limits {
        Limits { most: HASTY, known: u64::MAX, could_be: FxHashMap::default(), ahead: None, work: 0 }
    }

    /// Returns the limits of a thorough search with a beam of `most` states.
    pub(crate) fn thorough(most: usize) -> Limits {
        Limits { most, work: WORK, ..Limits::hasty() }
    }

    /// Returns the beam width after a thorough search switches to greedy mode.
    pub(crate) fn tired(&self) -> usize {
        if self.ahead.is_none() { BLIND } else { TIRED }
    }
}

/// The number of statements whose share of the work is granted up front.
///
/// Most prices are new at the beginning, so the first statements cost most.
const AHEAD: usize = 64;

/// Returns the share of the work budget for the first `first` of `all` statements.
///
/// If the first statements exceed it, the budget cannot last to the end, and the work spent so far is lost.
pub(crate) fn share(work: u64, first: usize, all: usize) -> u64 {
    let share = u128::from(work) * (first + AHEAD) as u128 / all.max(1) as u128;
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The beam width of a greedy search without earlier knowledge.
const HASTY: usize = 12;

/// The beam width after a thorough search turns greedy: narrow, because a bound on what follows is known.
const TIRED: usize = 32;

/// The same without a bound: a narrower beam drops the strategies that are jointly best for two layers.
const BLIND: usize = 128;

/// The work budget of a thorough search: a tenth of a second if all prices are new, and less otherwise.
const WORK: u64 = 280_000;
