//! How far a search goes: how many states it keeps, how much it looks at, and what it knows before.

use rustc_hash::FxHashMap;

use crate::elaborate::ahead::Course;
use crate::elaborate::moves::TypeId;

/// How far a search goes.
#[derive(Debug)]
pub(crate) struct Limits {
    /// How many states are kept.
    pub(crate) most: usize,
    /// What some program costs.
    pub(crate) known: u64,
    /// The types in which values could be at hand, as far as another search saw.
    pub(crate) seen: FxHashMap<usize, Vec<TypeId>>,
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

/// How many states are kept in haste when nothing is known yet.
const HASTY: usize = 12;

/// How many are kept where a thorough search goes on in haste: few where it knows what lies ahead.
const TIRED: usize = 32;

/// The same where it does not: with fewer, the ways of two layers that do best together go.
const BLIND: usize = 128;

/// How much a thorough search looks at: a tenth of a second where all prices are new, and less elsewhere.
const WORK: u64 = 280_000;
