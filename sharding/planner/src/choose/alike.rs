//! Questions that are alike: where digits nest and a plan moves nothing but digits, its price depends on where they stand, and not on what the dims are.
//!
//! ```text
//! f32[8,512,1024]  S(0),S(1) -> S(0),R   on dp=2,tp=4        dp stays where it stands, tp leaves a position of its own
//! f32[1024,4096]   S(1),S(0) -> S(1),R                       the same of the same number of elements: one price
//! ```
//!
//! A digit's places are numbered in the order in which digits stand there. Of a position where none stands in either end only `gcd(extent, ranks)` matters,
//! which says what digits it has room for; and where one has room for all ranks at once, no digit ever lacks room.
//!
//! What looks at dims or ranks is no part of such a price: regions, and an exchange between the duals. Whatever a candidate within a digit system looks at
//! beyond digits must be part of [`Alike`].

use std::hash::{Hash, Hasher};

use reshard_layout::algebra::gcd;
use smallvec::SmallVec;

use crate::Error;
use crate::budget::{Effort, SearchBudget};
use crate::hash::WordMap;
use crate::question::Question;
use crate::states::ends::Ends;
use crate::states::system::{Place, Stands};
use reshard_sharding::internal::axis_of;
use reshard_sharding::{Mesh, Sharding};

/// A memory of prices, in picoseconds, of questions to one planner, and how much looking at ranks for others may take.
///
/// Where digits do not nest a price takes a look at every rank, and none is remembered. Past a limit the price from the digits alone
/// [stands in](Prices::stands_in).
#[derive(Debug)]
pub struct Prices {
    pub(crate) known: WordMap<Alike, u64>,
    looked: u64,
    most: u64,
    stands_in: bool,
}

impl Default for Prices {
    fn default() -> Prices {
        Prices::within(SearchBudget::UNLIMITED)
    }
}

/// What a look at ranks takes in units of a [`Budget`], on few ranks, and for each of many and each of its axes; measured on 48 ranks and
/// on 49,152 of three axes.
const LOOK: u64 = 8_000;
const LOOK_AT_RANK: u64 = 4;

impl Prices {
    /// None, of which those that look at ranks may take so much together.
    pub fn within(budget: SearchBudget) -> Prices {
        Prices { known: WordMap::default(), looked: 0, most: budget.work(), stands_in: false }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// How much looking at ranks took.
    pub fn looked(&self) -> u64 {
        self.looked
    }

    /// Whether no more ranks are looked at.
    pub fn is_spent(&self) -> bool {
        self.looked >= self.most
    }

    /// Whether some price that was given is not that of a plan.
    pub fn stands_in(&self) -> bool {
        self.stands_in
    }

    /// A look at all ranks of a question, with what a search took beyond it, or what stands in for it.
    pub(crate) fn look<T>(
        &mut self,
        q: &Question<'_>,
        look: impl FnOnce() -> Result<(T, Effort), Error>,
        instead: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.is_spent() {
            self.stands_in = true;
            return instead();
        }
        let of_mesh = |s: &Sharding| s.mesh().size() as u64 * s.mesh().axes().len() as u64;
        let ranks = of_mesh(q.from).max(of_mesh(q.to));
        self.looked = self.looked.saturating_add(LOOK + LOOK_AT_RANK * ranks);
        let (found, effort) = look()?;
        self.looked = self.looked.saturating_add(effort.work);
        Ok(found)
    }
}

/// What the price of a question to some planner depends on: the key of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alike {
    mesh: Mesh,
    numel: usize,
    item: u64,
    /// Of each digit, its axis, its steps, and both places.
    digits: SmallVec<[[i64; 5]; 8]>,
    /// What could stand where nothing does.
    free: SmallVec<[i64; 4]>,
}

impl Alike {
    /// What a question depends on whose price is that of digits.
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

// There are few meshes.
impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.numel, self.item, &self.digits, &self.free).hash(state);
    }
}

/// Behind all positions.
const REPLICATED: i64 = 1 << 8;
