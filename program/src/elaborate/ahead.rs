//! Cost-to-go heuristic: how the remaining cost depends on the available types of each value.
//!
//! A search through all statements knows the possible strategies of each op. From the last op to the first,
//! each op records for every input the types it could take, with the cost of the op and of all that follows
//! from it:
//!
//! ```text
//! input_cost(op, input i, t) = min over strategies with t as input i of
//!                              (compute cost + redistributions of program inputs + sum of cost_to_go(output))
//!                              / number of computed inputs
//! cost_to_go(v, t)           = max over later ops that use v of
//!                              min over t' of price(t -> t') + input_cost(op, v, t')
//! ```
//!
//! The least of each list is subtracted, so that equal layers get equal entries. A value that several ops
//! take is redistributed once, so the most expensive consumer counts. An op with several inputs splits its
//! cost among them. The result is not a bound: it ranks the states to retain.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::elaborate::at_hand::AtHand;
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::numbered::Numbered;
use crate::elaborate::search::Shared;

/// The types an op could take an input in, with the cost above the least; the least first.
type Wish = Box<[(TypeId, u64)]>;

/// The later consumers of a value, as an interned set of their `Wish` lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Takers(u32);

/// Cache key: an op, by the number of its strategies, and the consumers of its outputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    ways: usize,
    /// The available types of each input that comes from outside; `None` for a computed one.
    given: SmallVec<[Option<AtHand>; 4]>,
    outputs: SmallVec<[(Takers, Option<TypeId>); 2]>,
}

/// The cost of a type that no strategy leads to.
const FAR: u64 = 1 << 50;

/// Interned lists and cached costs of the heuristic.
#[derive(Debug)]
pub(crate) struct Ahead {
    wishes: Numbered<Wish>,
    /// The consumers of a value: sorted numbers of their `Wish` lists.
    takers: Numbered<Box<[u32]>>,
    /// The `Wish` numbers of the inputs of each op.
    ops: FxHashMap<Asked, Arc<[u32]>>,
    /// The cost above the least, by `Wish` and type; `sets` has the same by available set and consumers.
    beyond: FxHashMap<(u32, TypeId), u64>,
    sets: FxHashMap<(AtHand, Takers), u64>,
}

impl Default for Ahead {
    fn default() -> Ahead {
        let mut takers: Numbered<Box<[u32]>> = Numbered::default();
        takers.number(&[]);
        Ahead {
            wishes: Numbered::default(),
            takers,
            ops: FxHashMap::default(),
            beyond: FxHashMap::default(),
            sets: FxHashMap::default(),
        }
    }
}

impl Ahead {
    /// Returns the cost-to-go of a value available in these types, given its consumers.
    pub(crate) fn of(&mut self, types: &mut Types, at_hand: AtHand, takers: Takers) -> u64 {
        if let Some(&known) = self.sets.get(&(at_hand, takers)) {
            return known;
        }
        let wishes: SmallVec<[u32; 8]> = self.takers.of(takers.0).into();
        let own: SmallVec<[TypeId; 16]> = types.sets.of(at_hand).into();
        let of = wishes
            .into_iter()
            .map(|wish| own.iter().map(|is| self.beyond(types, wish, *is)).min().unwrap_or(FAR));
        let most = of.max().unwrap_or(0);
        self.sets.insert((at_hand, takers), most);
        most
    }

    /// Returns the cost above the least if a value is available in one type.
    fn beyond(&mut self, types: &mut Types, wish: u32, from: TypeId) -> u64 {
        if let Some(&known) = self.beyond.get(&(wish, from)) {
            return known;
        }
        let wishes: &[(TypeId, u64)] = self.wishes.of(wish);
        let mut least = wishes.iter().find(|(is, _)| *is == from).map_or(FAR, |(_, more)| *more);
        for &(is, more) in wishes {
            if more >= least {
                break;
            }
            if let Some(price) = types.roughly(from, is) {
                least = least.min(more.saturating_add(price));
            }
        }
        // No price is known: assume the cost of the most expensive accepted type.
        if least == FAR {
            least = wishes.last().map_or(FAR, |(_, more)| *more);
        }
        self.beyond.insert((wish, from), least);
        least
    }

    /// Adds the consumer `wish` to a set of consumers.
    fn with(&mut self, takers: Takers, wish: u32) -> Takers {
        let mut list: SmallVec<[u32; 8]> = self.takers.of(takers.0).into();
        if let Err(at) = list.binary_search(&wish) {
            list.insert(at, wish);
        }
        Takers(self.takers.number(&list))
    }

    /// Interns the `Wish` of a consumer that accepts only this type.
    pub(crate) fn alone(&mut self, is: TypeId) -> u32 {
        self.wishes.number(&[(is, 0)])
    }

    /// Returns the `Wish` number of each input of an op.
    pub(crate) fn wishes(
        &mut self,
        types: &mut Types,
        ways: &Shared,
        given: SmallVec<[Option<AtHand>; 4]>,
        outputs: SmallVec<[(Takers, Option<TypeId>); 2]>,
    ) -> Arc<[u32]> {
        let asked = Asked { ways: ways.number, given, outputs };
        if let Some(known) = self.ops.get(&asked) {
            return Arc::clone(known);
        }
        let made = asked.given.iter().filter(|given| given.is_none()).count().max(1) as u64;
        let mut wishes: Vec<FxHashMap<TypeId, u64>> = vec![FxHashMap::default(); asked.given.len()];
        for way in &ways.list {
            let mut cost = way.picoseconds;
            for (&is, given) in way.inputs.iter().zip(&asked.given) {
                let Some(given) = given else { continue };
                cost = cost.saturating_add(types.roughly_from(*given, is).unwrap_or(FAR));
            }
            for (&is, &(takers, pin)) in way.outputs.iter().zip(&asked.outputs) {
                let more = if let Some(pin) = pin {
                    types.roughly(is, pin).unwrap_or(FAR)
                } else {
                    let alone = types.sets.number(&[is]);
                    self.of(types, alone, takers)
                };
                cost = cost.saturating_add(more);
            }
            let cost = cost.min(FAR) / made;
            for (&is, wishes) in way.inputs.iter().zip(&mut wishes) {
                wishes.entry(is).and_modify(|known| *known = (*known).min(cost)).or_insert(cost);
            }
        }
        let numbers = wishes.into_iter().map(|wishes| {
            let mut list: Vec<(TypeId, u64)> = wishes.into_iter().collect();
            list.sort_unstable_by_key(|&(is, cost)| (cost, is));
            let least = list.first().map_or(0, |(_, cost)| *cost);
            for (_, cost) in &mut list {
                *cost -= least;
            }
            self.wishes.number(&list)
        });
        let numbers: Arc<[u32]> = numbers.collect();
        self.ops.insert(asked, Arc::clone(&numbers));
        numbers
    }
}

/// The consumers of each value, by value number, from each consuming statement on.
#[derive(Debug, Default)]
pub(crate) struct Course(Vec<Vec<(usize, Takers)>>);

impl Course {
    /// Returns `true` if no consumer is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the consumers of a value after statement `n`.
    pub(crate) fn after(&self, value: usize, n: usize) -> Takers {
        let Some(list) = self.0.get(value) else { return Takers::default() };
        // Statements are recorded from the last to the first.
        let at = list.partition_point(|(taken, _)| *taken > n);
        if at == 0 { Takers::default() } else { list[at - 1].1 }
    }

    /// Records that statement `n` consumes a value; statements must come from last to first.
    pub(crate) fn takes(&mut self, ahead: &mut Ahead, value: usize, n: usize, wish: u32) {
        if self.0.len() <= value {
            self.0.resize_with(value + 1, Vec::new);
        }
        let list = &mut self.0[value];
        let takers = list.last().map_or(Takers::default(), |(_, takers)| *takers);
        let with = ahead.with(takers, wish);
        match list.last_mut() {
            Some((taken, takers)) if *taken == n => *takers = with,
            Some(_) | None => list.push((n, with)),
        }
    }
}
