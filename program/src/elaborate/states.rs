//! States, and which of them another can do all of.
//!
//! ```text
//! a replaces b    cost(a) + moves that put at hand in a what is at hand in b  <=  cost(b)
//! ```

use smallvec::{Array, SmallVec};

use crate::elaborate::at_hand::AtHand;
use crate::elaborate::moves::Types;
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

/// What is at hand in a state after an op; what it costs, the state before it, and the way.
pub(crate) type Candidate<'a> = (&'a Held, &'a (u64, usize, usize));

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
    out.sort_unstable_by_key(|(v, _)| *v);
    out
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
        states: &[Candidate<'_>],
        most: usize,
    ) -> (Vec<Reached>, Option<u64>) {
        let mut kept: Vec<Reached> = Vec::with_capacity(states.len().min(most));
        for &(live, &(cost, before, way)) in states {
            let cheaper = |k: &Reached| self.replaces(types, (&k.live, k.cost), (live, cost));
            if kept.iter().take(COMPARED).any(cheaper) {
                continue;
            }
            if kept.len() >= most {
                return (kept, Some(cost));
            }
            kept.push(Reached { live: live.clone(), cost, decided: Decided { before, way: Some(way) } });
        }
        (kept, None)
    }

    /// Whether what is at hand in `b` can be put at hand in `a` and costs no more then.
    pub(crate) fn replaces(
        &self,
        types: &mut Types,
        a: (&[(u32, AtHand)], u64),
        b: (&[(u32, AtHand)], u64),
    ) -> bool {
        let given = |v: u32| self.given.get(&(v as usize)).copied().unwrap_or_default();
        // What the values have that come next in the order of both; what only one holds is in the other as it was given.
        let (mut cost, mut left, mut right) = (a.1, a.0, b.0);
        while cost <= b.1 {
            let (mine, wanted) = match (left, right) {
                ([x, more @ ..], [y, rest @ ..]) if x.0 == y.0 => {
                    (left, right) = (more, rest);
                    if x.1 == y.1 {
                        continue;
                    }
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
                (_, []) => return true,
            };
            let Some(more) = types.brought(mine, wanted, self.moves) else { return false };
            cost = cost.saturating_add(more);
        }
        false
    }
}
