//! What lies ahead: how much of what follows depends on the types in which values are at hand.
//!
//! Of a search that went through all statements it is known in which ways each op could run. From the last op to the first
//! each says of its inputs in which types it could take them, and what it and all that follows from it cost then:
//!
//! ```text
//! wish(op, input i, t) = least over ways with t as input i of
//!                          (computing + moves of what is only given + sum over outputs of ahead(output)) / inputs that were made
//! ahead(v, t)          = most over ops that take v later of  least over t' of  price(t -> t') + wish(op, v, t')
//! ```
//!
//! Less the least of each, so that equal layers say the same. What takes a value several times moves it once, so that of what those
//! cost who take it the most counts. An op with several inputs leaves each a part. That is no bound: it says which
//! states are worth keeping.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::elaborate::at_hand::AtHand;
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::numbered::Numbered;
use crate::elaborate::search::Shared;

/// In which types an op could take an input, and what that costs more than the least; the least first.
type Wish = Box<[(TypeId, u64)]>;

/// Those who take a value later, by the numbers of their wishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Takers(u32);

/// An op, by the number of its ways, and what follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    ways: usize,
    /// What is only given of the inputs.
    given: SmallVec<[Option<AtHand>; 4]>,
    outputs: SmallVec<[(Takers, Option<TypeId>); 2]>,
}

/// What no way leads to.
const FAR: u64 = 1 << 50;

/// All that was asked.
#[derive(Debug)]
pub(crate) struct Ahead {
    wishes: Numbered<Wish>,
    /// Those who take a value: the numbers of their wishes, in order.
    takers: Numbered<Box<[u32]>>,
    /// Of each op the wishes of its inputs.
    ops: FxHashMap<Asked, Arc<[u32]>>,
    /// Of each wish and type what it costs more than the least, and of each set and its takers.
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
    /// What lies ahead of a value that is at hand in these types, where it is taken by these.
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

    /// What it costs more than the least where a value is at hand in one type.
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
        // Nothing is known of it: as far as what is farthest.
        if least == FAR {
            least = wishes.last().map_or(FAR, |(_, more)| *more);
        }
        self.beyond.insert((wish, from), least);
        least
    }

    /// Those of some takers and an op that takes a value before them.
    fn with(&mut self, takers: Takers, wish: u32) -> Takers {
        let mut list: SmallVec<[u32; 8]> = self.takers.of(takers.0).into();
        if let Err(at) = list.binary_search(&wish) {
            list.insert(at, wish);
        }
        Takers(self.takers.number(&list))
    }

    /// The wish of what takes a value as this and nothing else.
    pub(crate) fn alone(&mut self, is: TypeId) -> u32 {
        self.wishes.number(&[(is, 0)])
    }

    /// The wishes of an op, of each of its inputs.
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

/// Of each value, by number, those who take it, from each statement on that does.
#[derive(Debug, Default)]
pub(crate) struct Course(Vec<Vec<(usize, Takers)>>);

impl Course {
    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those who take a value after a statement.
    pub(crate) fn after(&self, value: usize, n: usize) -> Takers {
        let Some(list) = self.0.get(value) else { return Takers::default() };
        // The last statement comes first.
        let at = list.partition_point(|(taken, _)| *taken > n);
        if at == 0 { Takers::default() } else { list[at - 1].1 }
    }

    /// A statement takes a value, before all others that are known.
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
