//! States, and which of them another can do all of.
//!
//! ```text
//! a replaces b    cost(a) + moves that put at hand in a what is at hand in b  <=  cost(b)
//! ```
//!
//! What an op leads to has two parts: values that are no operands, which the state before says, and operands, which the way
//! says. Both have numbers, so that what one part takes is looked at once, however many states have it.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{Array, SmallVec};

use crate::elaborate::at_hand::AtHand;
use crate::elaborate::moves::Types;
use crate::elaborate::numbered::Numbered;
use crate::elaborate::search::Frontier;

/// Values by number, of which a graph has less than 2^32, in order, with the types in which they are at hand.
pub(crate) type Held = SmallVec<[(u32, AtHand); 12]>;

/// The same of an op's operands.
pub(crate) type Operands = SmallVec<[(u32, AtHand); 4]>;

/// What is at hand at some point beside what is given, and what it took.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The values that are needed again and are at hand in other types than those given, by number.
    pub(crate) live: Held,
    pub(crate) cost: u64,
}

/// A state after a statement: what is at hand in it, what it took, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    pub(crate) live: Held,
    pub(crate) cost: u64,
    pub(crate) decided: Decided,
}

/// Where a state comes from: the state before it in the frontier, and the way of an op or from where a move starts, if that is a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) before: usize,
    pub(crate) way: Option<usize>,
}

/// A state that an op could lead to. The cheapest is the least; of equal ones what was looked at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// What it took, and what lies ahead.
    pub(crate) rank: i64,
    pub(crate) cost: u64,
    /// The state before it.
    pub(crate) before: usize,
    pub(crate) way: usize,
    /// What is at hand of values that are no operands, by number.
    pub(crate) passed: u32,
    /// What is at hand of the operands, by number.
    pub(crate) made: u32,
}

/// What is known of what it costs to get from one to another.
#[derive(Clone, Copy, Debug)]
enum Brought {
    Exactly(u64),
    MoreThan(u64),
}

/// The number of a value among these, in the order in which they come; a new one comes behind them.
pub(crate) fn number(values: &mut Vec<usize>, value: usize) -> usize {
    values.iter().position(|known| *known == value).unwrap_or_else(|| {
        values.push(value);
        values.len() - 1
    })
}

/// The same with other numbers for values, in the order of these.
pub(crate) fn renamed<A: Array<Item = (u32, AtHand)>>(
    held: &[(u32, AtHand)],
    mut name: impl FnMut(usize) -> usize,
) -> SmallVec<A> {
    let mut out: SmallVec<A> = held.iter().map(|(v, at_hand)| (name(*v as usize) as u32, *at_hand)).collect();
    by_value(&mut out);
    out
}

/// Puts what is held in the order of values.
pub(crate) fn by_value(held: &mut [(u32, AtHand)]) {
    held.sort_unstable_by_key(|(v, _)| *v);
}

/// Puts the cheapest first. One function for all, as above: a sort is much code.
pub(crate) fn cheapest_first(reached: &mut [Reached]) {
    reached.sort_by_key(|r| r.cost);
}

/// What two hold of different values, in the order of these, as it is in both.
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

/// With how many cheaper states a state is compared.
const COMPARED: usize = 48;

impl Frontier {
    /// The states that no cheaper one can do all of, the cheapest first, and what the cheapest costs for which there is no room.
    pub(crate) fn kept(
        &self,
        types: &mut Types,
        candidates: &[Candidate],
        (passed, made): (&Numbered<Held>, &Numbered<Operands>),
        most: usize,
    ) -> (Vec<Reached>, Option<u64>) {
        let mut kept: Vec<Reached> = Vec::with_capacity(candidates.len().min(most));
        let mut seen: FxHashSet<(u32, u32)> = FxHashSet::default();
        // What getting from one to another costs, of each of both parts: many states have a part in common.
        let mut brought: [FxHashMap<(u32, u32), Brought>; 2] = Default::default();
        let mut those: Vec<Candidate> = Vec::new();
        for (at, candidate) in candidates.iter().enumerate() {
            let Candidate { cost, before, way, .. } = *candidate;
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
                let left = candidates[at..].iter().filter(|c| !seen.contains(&(c.passed, c.made)));
                let least = left.map(|c| c.cost).fold(cost, u64::min);
                cheapest_first(&mut kept);
                return (kept, Some(least));
            }
            those.push(*candidate);
            let live = merged(passed.of(candidate.passed), made.of(candidate.made));
            kept.push(Reached { live, cost, decided: Decided { before, way: Some(way) } });
        }
        cheapest_first(&mut kept);
        (kept, None)
    }

    /// What it costs to put at hand in `a` what is at hand in `b`, if it is at most so much; what only one holds is in the other as it was given.
    pub(crate) fn brought(
        &self,
        types: &mut Types,
        a: &[(u32, AtHand)],
        b: &[(u32, AtHand)],
        most: u64,
    ) -> Option<u64> {
        let given = |v: u32| self.given.of(v as usize).unwrap_or_default();
        // What the values have that come next in the order of both.
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
