//! Cache key of prices: where digits nest and a plan changes only digits, its price depends on their
//! positions alone. The dims themselves do not matter.
//!
//! ```text
//! f32[8,512,1024]  S(0),S(1) -> S(0),R   on dp=2,tp=4        dp keeps its position, tp leaves a separate position
//! f32[1024,4096]   S(1),S(0) -> S(1),R                       the same of the same number of elements: one price
//! ```
//!
//! Positions are numbered in the order in which digits first occupy them. Of a position that no digit
//! occupies in either end, only `gcd(extent, ranks)` matters: it determines which digits fit there. If one
//! position fits all ranks at once, every digit always fits.
//!
//! Candidates that examine dims or ranks have no part in such a price: regions, and an exchange between the
//! cotangent shardings. If a candidate within a digit system depends on more than digits, that must be part
//! of [`Alike`].

use std::hash::{Hash, Hasher};

use reshard_layout::algebra::gcd;
use smallvec::SmallVec;

use crate::Error;
use crate::budget::{Effort, SearchBudget};
use crate::hash::WordMap;
use crate::problem::Question;
use crate::states::ends::Ends;
use crate::states::system::{Place, Stands};
use reshard_sharding::internal::axis_of;
use reshard_sharding::{Mesh, Sharding};

/// A cache of prices, in picoseconds, of problems of one planner, with a limit for the work of computing them.
///
/// Where digits do not nest, computing a price examines every rank, and it is not cached. Past the limit, the
/// cheaper closed form, or the price from the digits alone, is used instead (see [`Prices::stands_in`]).
#[derive(Debug)]
pub struct Prices {
    /// The prices, each with `true` if it may not be that of the cheapest plan.
    pub(crate) known: WordMap<Alike, (u64, bool)>,
    looked: u64,
    most: u64,
    stands_in: bool,
    /// The same for the last price.
    is_estimate: bool,
}

impl Default for Prices {
    fn default() -> Prices {
        Prices::within(SearchBudget::UNLIMITED)
    }
}

/// Work of examining the ranks of a problem, in units of a [`SearchBudget`].
///
/// `LOOK` is for few ranks; `LOOK_AT_RANK` is for each of many ranks and each of its axes. Both were measured
/// on 48 ranks and on 49,152 of three axes.
const LOOK: u64 = 8_000;
const LOOK_AT_RANK: u64 = 4;

impl Prices {
    /// Creates an empty cache, with a limit for the total work of examining ranks and searching.
    pub fn within(budget: SearchBudget) -> Prices {
        Prices {
            known: WordMap::default(),
            looked: 0,
            most: budget.work(),
            stands_in: false,
            is_estimate: false,
        }
    }

    /// Returns the number of cached prices.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns `true` if no price is cached.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns the work that examining ranks and searching took.
    pub fn looked(&self) -> u64 {
        self.looked
    }

    /// Returns `true` if no more ranks are examined, and nothing more is searched.
    pub fn is_spent(&self) -> bool {
        self.looked >= self.most
    }

    /// Returns `true` if some price that was returned may not be that of the cheapest plan.
    pub fn stands_in(&self) -> bool {
        self.stands_in
    }

    /// Examines all ranks of a problem, or calls `instead` once the limit is reached.
    ///
    /// The work of a search within `look` counts too.
    pub(crate) fn look<T>(
        &mut self,
        q: &Question<'_>,
        look: impl FnOnce() -> Result<(T, Effort), Error>,
        instead: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.is_spent() {
            return Ok(self.stands_in_with(instead()?));
        }
        let of_mesh = |s: &Sharding| s.mesh().size() as u64 * s.mesh().axes().len() as u64;
        let ranks = of_mesh(q.from).max(of_mesh(q.to));
        self.looked = self.looked.saturating_add(LOOK + LOOK_AT_RANK * ranks);
        let (found, effort) = look()?;
        self.worked(effort);
        Ok(found)
    }

    /// Counts the work of a search; if it ran out, its price may not be that of the cheapest plan.
    pub(crate) fn worked(&mut self, effort: Effort) {
        self.looked = self.looked.saturating_add(effort.work);
        self.stands_in |= effort.exhausted;
        self.is_estimate |= effort.exhausted;
    }

    /// Records that this is an estimate, and returns it.
    pub(crate) fn stands_in_with<T>(&mut self, estimate: T) -> T {
        self.stands_in = true;
        self.is_estimate = true;
        estimate
    }

    /// Returns `true` if the last price may not be that of the cheapest plan.
    pub fn is_estimate(&self) -> bool {
        self.is_estimate
    }

    /// Begins another price.
    pub(crate) fn begins(&mut self) {
        self.is_estimate = false;
    }

    /// Returns a price that was cached.
    pub(crate) fn cached(&mut self, alike: &Alike) -> Option<u64> {
        let &(picoseconds, is_estimate) = self.known.get(alike)?;
        self.is_estimate = is_estimate;
        Some(picoseconds)
    }
}

/// The properties on which the price of a problem depends: the key of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alike {
    mesh: Mesh,
    numel: usize,
    item: u64,
    /// Per digit: its axis, extent, step, and both positions.
    digits: SmallVec<[[i64; 5]; 8]>,
    /// Sizes that fit at the unoccupied positions.
    free: SmallVec<[i64; 4]>,
}

impl Alike {
    /// Returns the key of a problem whose price is that of digits.
    pub(crate) fn of(q: &Question<'_>, ends: &Ends) -> Alike {
        let mut seen: SmallVec<[usize; 16]> = SmallVec::new();
        let mut number = |place: Place| match place.stands() {
            Stands::At(at) => {
                let known = seen.iter().position(|&p| p == usize::from(at));
                known.unwrap_or_else(|| {
                    seen.push(usize::from(at));
                    seen.len() - 1
                }) as i64
            }
            Stands::Replicated => REPLICATED,
            Stands::Partial(op) => REPLICATED + 1 + i64::from(op.word()),
        };
        let mut digits = SmallVec::new();
        for ((digit, &before), &after) in ends.system.digits.iter().zip(&ends.from).zip(&ends.to) {
            let at = digit.stride;
            let axis = axis_of(at) as i64;
            digits.push([axis, digit.extent, at.step(), number(before), number(after)]);
        }
        let ranks = q.from.mesh().size() as i64;
        let positions = ends.system.zip.iter().enumerate().filter(|(p, _)| !seen.contains(p));
        let mut free: SmallVec<[i64; 4]> =
            positions.map(|(_, m)| gcd(m.extent, ranks)).filter(|&n| n > 1).collect();
        if free.contains(&ranks) {
            free = SmallVec::from_slice(&[ranks]);
        }
        let (numel, item) = (q.from.numel(), q.item);
        Alike { mesh: q.from.mesh().clone(), numel, item, digits, free }
    }
}

// The mesh is not hashed, since there are few meshes.
impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.numel, self.item, &self.digits, &self.free).hash(state);
    }
}

/// Code of replicated digits, larger than all positions.
const REPLICATED: i64 = 1 << 8;
