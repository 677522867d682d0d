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

use crate::hash::WordMap;
use crate::question::Question;
use crate::states::ends::Ends;
use crate::states::system::{Place, Stands};
use reshard_sharding::Mesh;
use reshard_sharding::internal::axis_of;

/// A memory of prices, in picoseconds, of questions to one planner.
#[derive(Debug, Default)]
pub struct Prices(pub(crate) WordMap<Alike, u64>);

impl Prices {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
