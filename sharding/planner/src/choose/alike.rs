//! Questions that are alike: where digits nest, a price depends on where they stand, and not on what the dims are.
//!
//! ```text
//! f32[8,512,1024]  S(0),S(1) -> S(0),R   on dp=2,tp=4        dp stays where it stands, tp leaves a position of its own
//! f32[1024,4096]   S(1),S(0) -> S(1),R                       the same of the same number of elements: one price
//! ```
//!
//! A digit's places are numbered in the order in which digits stand there. Of positions where none stands only which digits could counts:
//! the greatest divisor that each has in common with the ranks, in the order in which they are tried; and where one has room for all ranks at
//! once, no digit ever lacks room.

use std::hash::{Hash, Hasher};

use reshard_layout::algebra::gcd;
use smallvec::SmallVec;

use crate::choose::{axes, one_exchange};
use crate::hash::WordMap;
use crate::question::Question;
use crate::states::ends::Ends;
use crate::states::system::{Place, Stands};
use reshard_sharding::Mesh;
use reshard_sharding::internal::axis_of;

/// The prices of questions to one planner, in picoseconds, by what they depend on.
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

/// What the price of a question depends on that the planner does not know before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alike {
    mesh: Mesh,
    numel: usize,
    item: u64,
    /// Of each digit, its axis, its steps, and both places.
    digits: SmallVec<[[u32; 5]; 8]>,
    /// What could stand where nothing does.
    free: SmallVec<[i64; 4]>,
    /// Whether replicas become terms that no dim can be cut between.
    owes_uneven: bool,
    /// Whether parts are as large as each other where an exchange shares out what it moves.
    pub(crate) shares_evenly: bool,
}

impl Alike {
    /// What a question within a digit system depends on.
    pub(crate) fn of(q: &Question<'_>, ends: &Ends) -> Alike {
        let mut seen: SmallVec<[usize; 16]> = SmallVec::new();
        let mut number = |place: Place| match place.stands() {
            Stands::At(at) => {
                let known = seen.iter().position(|&p| p == usize::from(at));
                known.unwrap_or_else(|| {
                    seen.push(usize::from(at));
                    seen.len() - 1
                }) as u32
            }
            Stands::Replicated => REPLICATED,
            Stands::Partial(op) => REPLICATED + 1 + u32::from(op.word()),
        };
        let mut digits = SmallVec::new();
        for ((digit, &before), &after) in ends.system.digits.iter().zip(&ends.from).zip(&ends.to) {
            let at = digit.stride;
            let axis = axis_of(at) as u32;
            digits.push([axis, digit.extent as u32, at.step() as u32, number(before), number(after)]);
        }
        let ranks = q.from.mesh().size() as i64;
        let positions = ends.system.zip.iter().enumerate().filter(|(p, _)| !seen.contains(p));
        let mut free: SmallVec<[i64; 4]> =
            positions.map(|(_, m)| gcd(m.extent, ranks)).filter(|&n| n > 1).collect();
        if free.contains(&ranks) {
            free = SmallVec::from_slice(&[ranks]);
        }
        let (numel, item) = (q.from.numel(), q.item);
        let [owes_uneven, shares_evenly] = [axes::owes_uneven(q), one_exchange::shares_evenly(q)];
        Alike { mesh: q.from.mesh().clone(), numel, item, digits, free, owes_uneven, shares_evenly }
    }
}

// There are few meshes.
impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.numel, self.item, &self.digits, &self.free).hash(state);
    }
}

/// Behind all positions.
const REPLICATED: u32 = 1 << 8;
