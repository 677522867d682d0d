//! Beam states, and the dominance test between them.
//!
//! ```text
//! a replaces b    cost(a) + redistributions in a to all types available in b  <=  cost(b)
//! ```
//!
//! The state after an op has two parts: the values that are not operands, determined by the state before it,
//! and the operands, determined by the strategy. Both parts are interned, so that the cost of a part is
//! computed once for all states that share it.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::elaborate::at_hand::AtHand;
use crate::elaborate::moves::Types;
use crate::elaborate::numbered::Numbered;
use crate::elaborate::search::Frontier;

/// Values by number, sorted, with their available types. A graph has fewer than 2^32 values.
pub(crate) type Held = SmallVec<[(u32, AtHand); 12]>;

/// The same for an op's operands.
pub(crate) type Operands = SmallVec<[(u32, AtHand); 4]>;

/// A beam state: the available layouts other than the given ones, and the cost so far.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The values that are needed later and are available in other types than given, by number.
    pub(crate) live: Held,
    pub(crate) cost: u64,
}

/// A state after a statement: the available layouts, the cost so far, and the origin.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    pub(crate) live: Held,
    pub(crate) cost: u64,
    pub(crate) decided: Decided,
}

/// The origin of a state: its predecessor in the beam, and the choice made; `None` if there is only one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) before: usize,
    pub(crate) choice: Option<Choice>,
}

/// A choice for a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Choice {
    /// The strategy of an op, or the source type of a redistribution.
    pub(crate) way: usize,
    /// For each input the type in which it is made available first, as a list; empty if no input needs one.
    pub(crate) firsts: AtHand,
}

/// A state that an op could lead to; ordered by its bound, ties by cost and the order of generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// A lower bound on the programs that it leads to.
    pub(crate) bound: u64,
    pub(crate) cost: u64,
    /// The index of the predecessor state.
    pub(crate) before: usize,
    pub(crate) choice: Choice,
    /// The interned availability of the values that are not operands.
    pub(crate) passed: u32,
    /// The interned availability of the operands.
    pub(crate) made: u32,
}

/// A known bound of the cost to get from one part to another.
#[derive(Clone, Copy, Debug)]
enum Brought {
    Exactly(u64),
    MoreThan(u64),
}

/// Sorts entries by value.
pub(crate) fn by_value(held: &mut [(u32, AtHand)]) {
    held.sort_unstable_by_key(|(v, _)| *v);
}

/// Sorts states by cost, the cheapest first. Not generic: every instance of a sort is much code.
pub(crate) fn cheapest_first(reached: &mut [Reached]) {
    reached.sort_by_key(|r| r.cost);
}

/// Merges two sorted lists of different values.
pub(crate) fn merged(a: &[(u32, AtHand)], b: &[(u32, AtHand)]) -> Held {
    let mut out = Held::with_capacity(a.len() + b.len());
    let mut rest = b.iter().copied().peekable();
    for &held in a {
        while let Some(before) = rest.next_if(|other| other.0 < held.0) {
            out.push(before);
        }
        out.push(held);
    }
    out.extend(rest);
    out
}

/// The number of cheaper states with which a state is compared.
const COMPARED: usize = 48;

impl Frontier {
    /// Returns the states that no cheaper state dominates, the cheapest first.
    ///
    /// At most `most` states are returned. The second part is the least bound of those dropped beyond that.
    pub(crate) fn kept(
        &self,
        types: &mut Types,
        candidates: &[Candidate],
        (passed, made): (&Numbered<Held>, &Numbered<Operands>),
        most: usize,
    ) -> (Vec<Reached>, Option<u64>) {
        let mut kept: Vec<Reached> = Vec::with_capacity(candidates.len().min(most));
        let mut seen: FxHashSet<(u32, u32)> = FxHashSet::default();
        // Cached conversion costs between parts, one map per part: many states share a part.
        let mut brought: [FxHashMap<(u32, u32), Brought>; 2] = Default::default();
        let mut those: Vec<Candidate> = Vec::new();
        for candidate in candidates {
            let Candidate { cost, before, choice, .. } = *candidate;
            if !seen.insert((candidate.passed, candidate.made)) {
                continue;
            }
            let mut cheaper = |k: &Candidate| {
                types.looks();
                let Some(mut left) = cost.checked_sub(k.cost) else { return false };
                let of_made = [k.made, candidate.made].map(|at| (at, made.of(at)));
                let of_passed = [k.passed, candidate.passed].map(|at| (at, passed.of(at)));
                [of_made, of_passed].into_iter().zip(&mut brought).all(|([(a, mine), (b, wanted)], known)| {
                    let more = match known.get(&(a, b)) {
                        Some(&Brought::Exactly(more)) => Some(more).filter(|more| *more <= left),
                        Some(&Brought::MoreThan(limit)) if limit >= left => None,
                        Some(Brought::MoreThan(_)) | None => {
                            let more = self.brought(types, mine, wanted, left);
                            known.insert((a, b), more.map_or(Brought::MoreThan(left), Brought::Exactly));
                            more
                        }
                    };
                    left -= more.unwrap_or(0);
                    more.is_some()
                })
            };
            if those.iter().take(COMPARED).any(&mut cheaper) {
                continue;
            }
            if kept.len() >= most {
                cheapest_first(&mut kept);
                return (kept, Some(candidate.bound));
            }
            those.push(*candidate);
            let live = merged(passed.of(candidate.passed), made.of(candidate.made));
            kept.push(Reached { live, cost, decided: Decided { before, choice: Some(choice) } });
        }
        cheapest_first(&mut kept);
        (kept, None)
    }

    /// Returns the cost of making all of `b` available from `a`, or `None` above `most`.
    ///
    /// A value that only one of the lists contains is in the other as it was given.
    pub(crate) fn brought(
        &self,
        types: &mut Types,
        a: &[(u32, AtHand)],
        b: &[(u32, AtHand)],
        most: u64,
    ) -> Option<u64> {
        let given = |v: u32| self.given.of(v as usize).unwrap_or_default();
        // Walk both sorted lists in step, one value at a time.
        let (mut cost, mut left, mut right) = (0u64, a, b);
        while cost <= most {
            let (mine, wanted) = match (left, right) {
                ([x, more @ ..], [y, rest @ ..]) if x.0 == y.0 => {
                    (left, right) = (more, rest);
                    (x.1, y.1)
                }
                ([x, more @ ..], right) if right.first().is_none_or(|y| x.0 < y.0) => {
                    left = more;
                    (x.1, given(x.0))
                }
                (_, [y, rest @ ..]) => {
                    right = rest;
                    (given(y.0), y.1)
                }
                (_, []) => return Some(cost),
            };
            cost = cost.saturating_add(types.brought(mine, wanted, self.moves)?);
        }
        None
    }
}
