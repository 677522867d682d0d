//! The joint choice: a strategy for every op, with the moves that it takes, so that all together cost least.
//!
//! Statements are gone through in order. A *state* says in which types every value is at hand that is needed again, and what
//! it took to get there. For each state and each way of the next op there is a state after it:
//!
//! ```text
//! cost(after) = cost(before) + computing + sum over inputs that are not at hand as wanted, of the cheapest move to that
//! ```
//!
//! A copy stays at hand, so that a value that was gathered for one op is there for the next. Of states in which the same is
//! at hand the cheapest is kept. And a state goes
//!
//! ```text
//! where another can do all that it can     cost(a) + moves that put at hand in a what is at hand in b  <=  cost(b)
//! where it leads nowhere                   cost(b) + the least that computing the rest costs  >  what some program costs
//! ```
//!
//! So the last cheapest state is a cheapest choice of all. Only where more states are left than are kept some are dropped:
//! those for which what they took and what lies ahead of them (see `ahead`) is most. The cheapest of those bounds what may
//! have been lost (the gap).
//!
//! What an op takes and makes depends only on where its inputs are at hand, so that this is looked at once for all states
//! which agree there.

use std::borrow::Cow;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_planner::internal::is_stopped;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::along::Along;
use crate::elaborate::ahead::{Ahead, Takers};
use crate::elaborate::at_hand::{AtHand, Outside};
use crate::elaborate::limits::{self, Limits};
use crate::elaborate::memo::{After, Known, Named};
use crate::elaborate::moves::{ImplicitRedistribution, TypeId, Types};
use crate::elaborate::numbered::Numbered;
use crate::elaborate::outcomes::Outcome;
use crate::elaborate::states::{Candidate, Decided, Held, Operands, Reached, State, cheapest_first, merged};
use crate::elaborate::ways::Looked;

/// The states after a statement.
#[derive(Debug)]
enum Now {
    /// Found for the first time, as far as is known.
    Own(Vec<State>),
    /// Found before, of other values.
    Named(Named),
}

/// An op as the search sees it.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) ways: &'a Shared,
    pub(crate) inputs: &'a [usize],
    /// The values that it makes, and what they have to become.
    pub(crate) outputs: &'a [(usize, Option<TypeId>)],
    /// The least that computing everything after it costs.
    pub(crate) rest: u64,
    /// Those who take values after it.
    pub(crate) takers: &'a dyn Fn(usize) -> Takers,
}

/// The states after some statements.
#[derive(Debug)]
pub(crate) struct Frontier {
    now: Now,
    /// What comes from outside, before anything is moved.
    pub(crate) given: Outside,
    /// The types in which each value could have been at hand, in states that are kept or not, as far as somebody [looks](Frontier::looks_around): lists in no order.
    pub(crate) seen: FxHashMap<usize, AtHand>,
    /// Where the states after each op and move come from.
    trail: Vec<Arc<[Decided]>>,
    pub(crate) moves: ImplicitRedistribution,
    /// How many are kept, and how many in haste.
    most: usize,
    tired: usize,
    /// After how much work haste begins, and how much there was before.
    pub(crate) until: u64,
    begun: u64,
    /// What some program costs.
    known: u64,
    /// The least that a program costs of which a state was dropped.
    dropped: u64,
}

/// What an op comes to from a state, and what the cheapest way computes that was not looked at.
pub(crate) type Found = (Vec<Outcome>, Option<u64>);

impl Frontier {
    /// Before all statements.
    pub(crate) fn new(types: &Types, limits: &Limits, moves: ImplicitRedistribution) -> Frontier {
        let start = State { live: Held::new(), cost: 0 };
        let Limits { most, known, seen, work, .. } = limits;
        let until = types.work().saturating_add(*work);
        let (now, given, trail) = (Now::Own(vec![start]), Outside::default(), Vec::new());
        Frontier {
            now,
            given,
            seen: seen.clone(),
            trail,
            moves,
            most: *most,
            tired: limits.tired(),
            until,
            begun: types.work(),
            known: *known,
            dropped: u64::MAX,
        }
    }

    /// The types in which a state has a value at hand.
    pub(crate) fn of(&self, state: &State, value: usize) -> AtHand {
        self.held(&state.live, value)
    }

    /// The types in which a value is at hand where these are held.
    fn held(&self, held: &Held, value: usize) -> AtHand {
        let own = held.iter().find(|(v, _)| *v as usize == value).map(|(_, at_hand)| *at_hand);
        own.or_else(|| self.given.of(value)).unwrap_or_default()
    }

    /// The types in which some state has a value at hand.
    pub(crate) fn at_hand(&self, types: &mut Types, value: usize) -> AtHand {
        match &self.now {
            Now::Own(states) => {
                let mut sets: Vec<AtHand> = states.iter().map(|s| self.of(s, value)).collect();
                sets.dedup();
                sets.into_iter().fold(AtHand::default(), |all, set| types.sets.join(all, set))
            }
            Now::Named(named) => {
                let (own, everywhere) = named.at_hand(value);
                let given = self.given.of(value).filter(|_| !everywhere);
                types.sets.join(own, given.unwrap_or_default())
            }
        }
    }

    /// The cheapest state.
    pub(crate) fn first(&self) -> Option<State> {
        match &self.now {
            Now::Own(states) => states.first().cloned(),
            Now::Named(named) => named.first(),
        }
    }

    /// All states, the cheapest first.
    fn states(&self) -> Cow<'_, [State]> {
        match &self.now {
            Now::Own(states) => Cow::Borrowed(states),
            Now::Named(named) => Cow::Owned(named.states()),
        }
    }

    /// Goes on with these states, if there are any.
    fn go_on(&mut self, reached: Vec<Reached>) -> bool {
        if reached.is_empty() {
            // Whoever says why looks at what there was.
            return false;
        }
        self.trail.push(reached.iter().map(|r| r.decided).collect());
        self.now =
            Now::Own(reached.into_iter().map(|Reached { live, cost, .. }| State { live, cost }).collect());
        true
    }

    /// Goes on with states that have a number, if there are any.
    fn go_on_with(&mut self, after: After) -> bool {
        if after.states.len() == 0 {
            return false;
        }
        self.trail.push(after.decided);
        self.now = Now::Named(after.states);
        true
    }

    /// A value that comes from outside.
    pub(crate) fn enters(&mut self, value: usize, at_hand: AtHand) {
        self.given.put(value, at_hand);
    }

    /// A written move; whether some state allows it.
    pub(crate) fn moved(
        &mut self,
        types: &mut Types,
        known: &mut Known,
        values: (usize, usize),
        is: (TypeId, Option<DType>),
    ) -> bool {
        let Now::Named(named) = &self.now else {
            let reached = self.reach_moved(types, values, is);
            return self.go_on(reached);
        };
        let after = known.moved(types, self, named, values, is);
        self.go_on_with(after)
    }

    /// The states after a written move.
    pub(crate) fn reach_moved(
        &self,
        types: &mut Types,
        (from, to): (usize, usize),
        (is, via): (TypeId, Option<DType>),
    ) -> Vec<Reached> {
        let states = self.states();
        let mut reached = Vec::with_capacity(states.len());
        let alone = types.sets.number(&[is]);
        for (before, state) in states.iter().enumerate() {
            let starts: SmallVec<[TypeId; 4]> = types.sets.of(self.of(state, from)).into();
            let Some((_, cost)) = types.cheapest_via(&starts, is, via) else { continue };
            let live = merged(&state.live, &[(to as u32, alone)]);
            let cost = state.cost.saturating_add(cost);
            reached.push(Reached { live, cost, decided: Decided { before, way: None } });
        }
        cheapest_first(&mut reached);
        reached
    }

    /// A written move along some axes, from each type in which the value is at hand; whether some state allows it.
    pub(crate) fn moved_along(
        &mut self,
        types: &mut Types,
        (from, to): (usize, usize),
        partly: &[(usize, Along)],
        via: Option<DType>,
    ) -> bool {
        let states = self.states();
        let mut reached: Vec<Reached> = Vec::with_capacity(states.len());
        for (before, state) in states.iter().enumerate() {
            let starts: SmallVec<[TypeId; 4]> = types.sets.of(self.of(state, from)).into();
            for start in starts {
                let Some((is, cost)) = types.put(start, partly, via) else { continue };
                let made = (to as u32, types.sets.number(&[is]));
                let live = merged(&state.live, &[made]);
                let cost = state.cost.saturating_add(cost);
                reached.push(Reached { live, cost, decided: Decided { before, way: Some(start.number()) } });
            }
        }
        drop(states);
        cheapest_first(&mut reached);
        self.go_on(reached)
    }

    /// An op in each of its ways, after which some values are needed again; whether some state allows one.
    pub(crate) fn op(
        &mut self,
        types: &mut Types,
        known: &mut Known,
        step: Step<'_>,
        live: &dyn Fn(usize) -> bool,
    ) -> bool {
        if self.looks_around(types) {
            self.sees(types, step);
        }
        let most = self.most_now(types);
        if !self.is_relative(types) {
            let (reached, dropped) = self.reach(types, known, step, live, most);
            self.drops(dropped, step);
            return self.go_on(reached);
        }
        if let Now::Own(states) = &self.now {
            let named = known.named(&mut types.sets, states);
            self.now = Now::Named(named);
        }
        let Now::Named(named) = &self.now else { return false };
        let after = known.op(types, self, named, step, live, most);
        self.drops(after.dropped, step);
        self.go_on_with(after)
    }

    /// Whether this search, or one after it, looks at what values could be in other ops.
    fn looks_around(&self, types: &Types) -> bool {
        self.moves == ImplicitRedistribution::Allow && (self.known == u64::MAX || types.work() < self.until)
    }

    /// The operands of an op could be as its ways say, or as they are pinned.
    fn sees(&mut self, types: &mut Types, step: Step<'_>) {
        let pins = step.outputs.iter().map(|(v, pin)| (*v, *pin));
        let operands = step.inputs.iter().map(|v| (*v, None)).chain(pins);
        for ((value, pin), &could_be) in operands.zip(&step.ways.could_be) {
            let could_be = pin.map_or(could_be, |is| types.sets.number(&[is]));
            let seen = self.seen.entry(value).or_default();
            *seen = types.sets.behind(*seen, could_be);
        }
    }

    /// What the cheapest state costs for which there was no room.
    fn drops(&mut self, dropped: Option<u64>, step: Step<'_>) {
        if let Some(cost) = dropped {
            self.dropped = self.dropped.min(cost.saturating_add(step.rest));
        }
    }

    /// Goes on in haste, from here to the end, where more was looked at than is meant for so many statements of all. Not where moves
    /// are written: what a layer comes to is remembered there anyway, and a state that is dropped may be the only one.
    pub(crate) fn paces(&mut self, types: &Types, done: usize, all: usize) {
        if self.moves != ImplicitRedistribution::Allow {
            return;
        }
        let (spent, work) = (types.work() - self.begun, self.until - self.begun);
        if spent > limits::share(work, done, all) {
            self.until = self.begun;
        }
    }

    /// Whether the rest of the work was given up.
    #[cfg(test)]
    pub(crate) fn gave_up(&self) -> bool {
        self.until == self.begun
    }

    /// How many states are kept now.
    fn most_now(&self, types: &Types) -> usize {
        if types.work() < self.until { self.most } else { self.most.min(self.tired) }
    }

    /// What may cost at most what some program costs; in haste nothing is looked at but what is at hand.
    pub(crate) fn bound(&self, types: &Types) -> u64 {
        if types.work() < self.until { self.known } else { u64::MAX }
    }

    /// Whether what an op comes to depends on nothing but on what is at hand before it: neither on what some program costs
    /// nor on what values could have been.
    fn is_relative(&self, types: &Types) -> bool {
        types.work() >= self.until || (self.known == u64::MAX && self.moves != ImplicitRedistribution::Allow)
    }

    /// States of which nothing is known but what is at hand and what they took, to be gone on from in haste.
    pub(crate) fn relative(&self, states: Vec<(Held, u64)>, given: Outside) -> Frontier {
        let states = states.into_iter().map(|(live, cost)| State { live, cost }).collect();
        let (seen, trail) = (FxHashMap::default(), Vec::new());
        Frontier {
            now: Now::Own(states),
            given,
            seen,
            trail,
            moves: self.moves,
            most: self.most,
            tired: self.tired,
            until: 0,
            begun: 0,
            known: u64::MAX,
            dropped: u64::MAX,
        }
    }

    /// The states that are kept after an op, and the least that one costs which is not, or was not looked at.
    pub(crate) fn reach(
        &self,
        types: &mut Types,
        known: &mut Known,
        step: Step<'_>,
        live: &dyn Fn(usize) -> bool,
        most: usize,
    ) -> (Vec<Reached>, Option<u64>) {
        let bound = self.bound(types);
        // What an op comes to where its inputs are at hand as in this state.
        let mut places: FxHashMap<SmallVec<[AtHand; 4]>, usize> = FxHashMap::default();
        let mut outcomes: Vec<Found> = Vec::new();
        let states = self.states();
        let mut left: Option<u64> = None;
        let mut passed: Numbered<Held> = Numbered::default();
        let mut made: Numbered<Operands> = Numbered::default();
        // Of each list of outcomes the numbers of what is at hand of the operands then.
        let mut numbers: Vec<Vec<u32>> = Vec::new();
        let mut candidates: Vec<Candidate> = Vec::new();
        for (before, state) in states.iter().enumerate() {
            if is_stopped() {
                break;
            }
            let inputs: SmallVec<[AtHand; 4]> = step.inputs.iter().map(|&v| self.of(state, v)).collect();
            let at = *places.entry(inputs).or_insert_with(|| {
                let found = if self.is_relative(types) {
                    known.outcomes(types, self, state, step, live)
                } else {
                    self.outcomes(types, state, step, live)
                };
                numbers.push(found.0.iter().map(|outcome| made.number(&outcome.after)).collect());
                outcomes.push(found);
                outcomes.len() - 1
            });
            let (found, unseen) = &outcomes[at];
            let unseen = unseen.map(|computing| state.cost.saturating_add(computing));
            left = left.into_iter().chain(unseen).min();
            let passes = |v: usize| live(v) && !step.inputs.contains(&v);
            let held: Held = state.live.iter().filter(|(v, _)| passes(*v as usize)).copied().collect();
            let passed = passed.number(&held);
            for (outcome, &made) in found.iter().zip(&numbers[at]) {
                let cost = state.cost.saturating_add(outcome.cost);
                if cost.saturating_add(step.rest) <= bound {
                    candidates.push(Candidate { rank: 0, cost, before, way: outcome.way, passed, made });
                }
            }
        }
        let ahead = &mut known.ahead;
        let of_passed = passed.all().map(|held| self.ahead(types, ahead, held, step)).collect::<Vec<i64>>();
        let of_made = made.all().map(|held| self.ahead(types, ahead, held, step)).collect::<Vec<i64>>();
        for c in &mut candidates {
            c.rank = (c.cost.min(1 << 60) as i64) + of_passed[c.passed as usize] + of_made[c.made as usize];
        }
        candidates.sort_unstable();
        let (kept, dropped) = self.kept(types, &candidates, (&passed, &made), most);
        (kept, dropped.into_iter().chain(left).min())
    }

    /// What lies ahead of what is held, beside what is given.
    fn ahead(&self, types: &mut Types, ahead: &mut Ahead, held: &[(u32, AtHand)], step: Step<'_>) -> i64 {
        let mut sum = 0i64;
        for &(v, at_hand) in held {
            let takers = (step.takers)(v as usize);
            if takers == Takers::default() {
                continue;
            }
            sum += ahead.of(types, at_hand, takers) as i64;
            if let Some(given) = self.given.of(v as usize) {
                sum -= ahead.of(types, given, takers) as i64;
            }
        }
        sum
    }

    /// What the cheapest state costs.
    pub(crate) fn least(&self) -> u64 {
        match &self.now {
            Now::Own(states) => states.first().map_or(0, |s| s.cost),
            Now::Named(named) => named.least,
        }
    }

    /// Whether nothing can cost less.
    pub(crate) fn is_least(&self) -> bool {
        self.best().is_none_or(|(_, gap)| gap == 0)
    }

    /// The ways of the ops on the way to the cheapest state, in order, and by how much that may be more than the least.
    pub(crate) fn best(&self) -> Option<(Vec<usize>, u64)> {
        let (mut ways, mut at) = (Vec::new(), 0);
        for step in self.trail.iter().rev() {
            let Decided { before, way } = *step.get(at)?;
            ways.extend(way);
            at = before;
        }
        ways.reverse();
        Some((ways, self.least().saturating_sub(self.dropped)))
    }
}

/// The ways of an op, which are shared.
pub(crate) type Shared = Arc<Looked>;
