//! How far a search goes: how many states it keeps, how much it looks at, and what it knows before.

use rustc_hash::FxHashMap;

use crate::elaborate::ahead::Course;
use crate::elaborate::at_hand::AtHand;

/// How far a search goes.
#[derive(Debug)]
pub(crate) struct Limits {
    /// How many states are kept.
    pub(crate) most: usize,
    /// What some program costs.
    pub(crate) known: u64,
    /// The types in which values could be at hand, as far as another search saw.
    pub(crate) seen: FxHashMap<usize, AtHand>,
    /// What lies ahead, as far as another search saw.
    pub(crate) course: Course,
    /// How much may be looked at before the rest is gone through in haste, in prices that are known.
    pub(crate) work: u64,
}

impl Limits {
    /// As far as a search goes in haste.
    pub(crate) fn hasty() -> Limits {
        Limits {
            most: HASTY,
            known: u64::MAX,
            seen: FxHashMap::default(),
            course: Course::default(),
            work: 0,
        }
    }

    /// As far as a search goes that keeps so many states.
    pub(crate) fn thorough(most: usize) -> Limits {
        Limits { most, work: WORK, ..Limits::hasty() }
    }

    /// How many states are kept where it goes on in haste.
    pub(crate) fn tired(&self) -> usize {
        if self.course.is_empty() { BLIND } else { TIRED }
    }
}

/// How many statements have their share of the work before the first is looked at: what is new costs most at the beginning.
const AHEAD: usize = 64;

/// How much of the work is meant for the first statements of all. Where they take more there will not be enough for the last,
/// and what was spent on the first is lost.
pub(crate) fn share(work: u64, first: usize, all: usize) -> u64 {
    let share = u128::from(work) * (first + AHEAD) as u128 / all.max(1) as u128;
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// How many states are kept in haste when nothing is known yet.
const HASTY: usize = 12;

/// How many are kept where a thorough search goes on in haste: few where it knows what lies ahead.
const TIRED: usize = 32;

/// The same where it does not: with fewer, the ways of two layers that do best together go.
const BLIND: usize = 128;

/// How much a thorough search looks at: a tenth of a second where all prices are new, and less elsewhere.
const WORK: u64 = 280_000;
