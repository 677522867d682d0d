//! The joint search: a strategy for every op, with the required redistributions, at the least total cost.
//!
//! Statements are processed in order. A *state* records the available types of every value that is needed
//! later, and the cost so far. Each state and each strategy of the next op give a state after it:
//!
//! ```text
//! cost(after) = cost(before) + compute cost
//!             + sum of the cheapest redistributions of inputs that are not available in the required type
//! ```
//!
//! A copy stays available, so that a value gathered for one op can serve the next. Of states with equal
//! available types the cheapest is retained. A state is pruned
//!
//! ```text
//! if another state dominates it   cost(a) + redistributions in a to all types available in b  <=  cost(b)
//! if its lower bound is too high  cost(b) + bound on what follows (see `ahead`)  >  cost of a known program
//! ```
//!
//! So the last cheapest state is an optimal choice. States are dropped only if more are left than the beam
//! holds: those with the highest lower bounds. The least of these bounds the possible loss (the optimality
//! gap).
//!
//! The inputs and outputs of an op depend only on the available types of its inputs, so they are computed
//! once for all states that agree there.

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_planner::internal::is_stopped;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::elaborate::ahead::Ahead;
use crate::elaborate::at_hand::{AtHand, Outside};
use crate::elaborate::implicit::ImplicitRedistribution;
use crate::elaborate::limits::{self, Limits};
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::numbered::Numbered;
use crate::elaborate::outcomes::Outcome;
use crate::elaborate::states::{
    Candidate, Choice, Decided, Held, Operands, Reached, State, cheapest_first, merged,
};
use crate::elaborate::ways::Looked;
use crate::local_type::Along;

/// An op, its strategies and its context, as the search uses them.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) ways: &'a Shared,
    pub(crate) inputs: &'a [usize],
    /// The output values, with their required types.
    pub(crate) outputs: &'a [(usize, Option<TypeId>)],
    /// The minimum compute cost of everything after it.
    pub(crate) rest: u64,
    /// The bound on what follows, and the number of its statement there.
    pub(crate) ahead: Option<(&'a Ahead, usize)>,
}

/// The beam: the states after some statements.
#[derive(Debug)]
pub(crate) struct Frontier {
    /// The states, the cheapest first.
    states: Vec<State>,
    /// The available types of values from outside, before any redistribution.
    pub(crate) given: Outside,
    /// The types in which the statements so far give, make or take each value, as unsorted lists.
    ///
    /// They are the same whatever states are retained. Without implicit redistributions they are not used.
    pub(crate) seen: FxHashMap<usize, AtHand>,
    /// The same over all statements, from an earlier search.
    pub(crate) could_be: FxHashMap<usize, AtHand>,
    /// The origins of the states after each op and redistribution.
    trail: Vec<Arc<[Decided]>>,
    pub(crate) moves: ImplicitRedistribution,
    /// The beam width, and below the width in greedy mode.
    most: usize,
    tired: usize,
    /// The work count at which greedy mode begins, and below the count at the start.
    pub(crate) until: u64,
    begun: u64,
    /// The cost of some complete program.
    known: u64,
    /// The lower bound on the cost of the programs whose state was dropped.
    dropped: u64,
}

/// The transitions of an op from a state, and the compute cost of the cheapest one that was skipped.
pub(crate) type Found = (Vec<Outcome>, Option<u64>);

impl Frontier {
    /// Returns the beam before all statements.
    pub(crate) fn new(types: &Types, limits: &Limits, moves: ImplicitRedistribution) -> Frontier {
        let start = State { live: Held::new(), cost: 0 };
        let Limits { most, known, could_be, work, .. } = limits;
        let until = types.work().saturating_add(*work);
        let (given, trail) = (Outside::default(), Vec::new());
        Frontier {
            states: vec![start],
            given,
            seen: FxHashMap::default(),
            could_be: could_be.clone(),
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

    /// Returns the available types of a value in a state.
    pub(crate) fn of(&self, state: &State, value: usize) -> AtHand {
        let own = state.live.iter().find(|(v, _)| *v as usize == value).map(|(_, at_hand)| *at_hand);
        own.or_else(|| self.given.of(value)).unwrap_or_default()
    }

    /// Returns the types from which the next op may take a value.
    ///
    /// With implicit redistributions they are all that it could have by now. If they were those of the states
    /// retained, an op would have other strategies in each search, and the bound of one would not hold for the
    /// next.
    pub(crate) fn at_hand(&self, types: &mut Types, value: usize) -> AtHand {
        if self.moves == ImplicitRedistribution::Allow {
            return self.seen.get(&value).copied().unwrap_or_default();
        }
        let mut sets: Vec<AtHand> = self.states.iter().map(|s| self.of(s, value)).collect();
        sets.dedup();
        sets.into_iter().fold(AtHand::default(), |all, set| types.sets.join(all, set))
    }

    /// Records types that a value could have.
    fn sees(&mut self, types: &mut Types, value: usize, could_be: AtHand) {
        let seen = self.seen.entry(value).or_default();
        *seen = types.sets.behind(*seen, could_be);
    }

    /// Returns the cheapest state.
    pub(crate) fn first(&self) -> Option<State> {
        self.states.first().cloned()
    }

    /// Continues with these states; returns `false` if there are none.
    fn go_on(&mut self, reached: Vec<Reached>) -> bool {
        if reached.is_empty() {
            // Leave the old states in place: the error message is derived from them.
            return false;
        }
        self.trail.push(reached.iter().map(|r| r.decided).collect());
        self.states = reached.into_iter().map(|Reached { live, cost, .. }| State { live, cost }).collect();
        true
    }

    /// Adds a value that comes from outside.
    pub(crate) fn enters(&mut self, types: &mut Types, value: usize, at_hand: AtHand) {
        self.sees(types, value, at_hand);
        self.given.put(value, at_hand);
    }

    /// Applies an explicit redistribution; returns `false` if no state allows it.
    pub(crate) fn moved(
        &mut self,
        types: &mut Types,
        (from, to): (usize, usize),
        (is, via): (TypeId, Option<DType>),
    ) -> bool {
        let mut reached = Vec::with_capacity(self.states.len());
        let alone = types.sets.number(&[is]);
        self.sees(types, to, alone);
        for (before, state) in self.states.iter().enumerate() {
            let starts: SmallVec<[TypeId; 4]> = types.sets.of(self.of(state, from)).into();
            let Some((_, cost)) = types.cheapest_via(&starts, is, via) else { continue };
            let live = merged(&state.live, &[(to as u32, alone)]);
            let cost = state.cost.saturating_add(cost);
            reached.push(Reached { live, cost, decided: Decided { before, choice: None } });
        }
        cheapest_first(&mut reached);
        self.go_on(reached)
    }

    /// Applies an explicit redistribution along some axes, from each available type of the value.
    ///
    /// Returns `false` if no state allows it.
    pub(crate) fn moved_along(
        &mut self,
        types: &mut Types,
        (from, to): (usize, usize),
        partly: &[(usize, Along)],
        via: Option<DType>,
    ) -> bool {
        let mut reached: Vec<Reached> = Vec::with_capacity(self.states.len());
        let at_hand = self.at_hand(types, from);
        let could_be: SmallVec<[TypeId; 16]> = types.sets.of(at_hand).into();
        for start in could_be {
            if let Some((is, _)) = types.put(start, partly, via) {
                let made = types.sets.number(&[is]);
                self.sees(types, to, made);
            }
        }
        for (before, state) in self.states.iter().enumerate() {
            let starts: SmallVec<[TypeId; 4]> = types.sets.of(self.of(state, from)).into();
            for start in starts {
                let Some((is, cost)) = types.put(start, partly, via) else { continue };
                let made = (to as u32, types.sets.number(&[is]));
                let live = merged(&state.live, &[made]);
                let cost = state.cost.saturating_add(cost);
                let choice = Some(Choice { way: start.number(), firsts: AtHand::default() });
                reached.push(Reached { live, cost, decided: Decided { before, choice } });
            }
        }
        cheapest_first(&mut reached);
        self.go_on(reached)
    }

    /// Applies an op with each of its strategies; returns `false` if no state allows one.
    ///
    /// `live` returns `true` for the values that are needed later.
    pub(crate) fn op(&mut self, types: &mut Types, step: Step<'_>, live: &dyn Fn(usize) -> bool) -> bool {
        let pins = step.outputs.iter().map(|(v, pin)| (*v, *pin));
        let operands = step.inputs.iter().map(|v| (*v, None)).chain(pins);
        for ((value, pin), &could_be) in operands.zip(&step.ways.could_be) {
            let could_be = pin.map_or(could_be, |is| types.sets.number(&[is]));
            self.sees(types, value, could_be);
        }
        let most = self.most_now(types);
        let (reached, dropped) = self.reach(types, step, live, most);
        self.dropped = self.dropped.min(dropped);
        self.go_on(reached)
    }

    /// Switches to greedy mode if the work exceeds the share of the first `done` of `all` statements.
    ///
    /// The search then stays greedy to the end. It never does so if implicit redistributions are restricted,
    /// as a dropped state may be the only feasible one.
    pub(crate) fn paces(&mut self, types: &Types, done: usize, all: usize) {
        if self.moves != ImplicitRedistribution::Allow {
            return;
        }
        let (spent, work) = (types.work() - self.begun, self.until - self.begun);
        if spent > limits::share(work, done, all) {
            self.until = self.begun;
        }
    }

    /// Returns `true` if the search has given up the rest of its work.
    #[cfg(test)]
    pub(crate) fn gave_up(&self) -> bool {
        self.until == self.begun
    }

    /// Returns the current beam width.
    fn most_now(&self, types: &Types) -> usize {
        if types.work() < self.until { self.most } else { self.most.min(self.tired) }
    }

    /// Returns the pruning bound: the cost of the best complete program so far.
    ///
    /// In greedy mode there is no bound.
    pub(crate) fn bound(&self, types: &Types) -> u64 {
        if types.work() < self.until { self.known } else { u64::MAX }
    }

    /// Returns the states retained after an op, and a bound on all that was dropped or not explored.
    fn reach(
        &self,
        types: &mut Types,
        step: Step<'_>,
        live: &dyn Fn(usize) -> bool,
        most: usize,
    ) -> (Vec<Reached>, u64) {
        let bound = self.bound(types);
        // Transitions are computed once per combination of available input types.
        let mut places: FxHashMap<SmallVec<[AtHand; 4]>, usize> = FxHashMap::default();
        let mut outcomes: Vec<Found> = Vec::new();
        let mut left = u64::MAX;
        let mut passed: Numbered<Held> = Numbered::default();
        let mut made: Numbered<Operands> = Numbered::default();
        // For each list of transitions, the interned availability of the operands after each.
        let mut numbers: Vec<Vec<u32>> = Vec::new();
        let mut candidates: Vec<Candidate> = Vec::new();
        for (before, state) in self.states.iter().enumerate() {
            if is_stopped() {
                break;
            }
            let inputs: SmallVec<[AtHand; 4]> = step.inputs.iter().map(|&v| self.of(state, v)).collect();
            let at = *places.entry(inputs).or_insert_with(|| {
                let found = self.outcomes(types, state, step, live);
                numbers.push(found.0.iter().map(|outcome| made.number(&outcome.after)).collect());
                outcomes.push(found);
                outcomes.len() - 1
            });
            let (found, unseen) = &outcomes[at];
            if let Some(computing) = unseen {
                left = left.min(state.cost.saturating_add(*computing).saturating_add(step.rest));
            }
            let passes = |v: usize| live(v) && !step.inputs.contains(&v);
            let held: Held = state.live.iter().filter(|(v, _)| passes(*v as usize)).copied().collect();
            let passed = passed.number(&held);
            for (outcome, &made) in found.iter().zip(&numbers[at]) {
                let cost = state.cost.saturating_add(outcome.cost);
                if cost.saturating_add(step.rest) <= bound {
                    candidates.push(Candidate {
                        bound: 0,
                        cost,
                        before,
                        choice: outcome.choice,
                        passed,
                        made,
                    });
                }
            }
        }
        let of_passed = passed.all().map(|held| self.ahead(types, held, step)).collect::<Vec<i64>>();
        let of_made = made.all().map(|held| self.ahead(types, held, step)).collect::<Vec<i64>>();
        let rest = step.ahead.map_or(step.rest.min(1 << 60) as i64, |(ahead, n)| ahead.rest(n));
        for c in &mut candidates {
            let later = of_passed[c.passed as usize] + of_made[c.made as usize];
            c.bound = u64::try_from((c.cost.min(1 << 60) as i64) + later + rest).unwrap_or(0);
        }
        candidates.retain(|c| c.bound <= bound);
        candidates.sort_unstable();
        let (kept, dropped) = self.kept(types, &candidates, (&passed, &made), most);
        (kept, dropped.unwrap_or(u64::MAX).min(left))
    }

    /// Returns the bound on what follows available types, above that for the types given from outside.
    fn ahead(&self, types: &Types, held: &[(u32, AtHand)], step: Step<'_>) -> i64 {
        let Some((ahead, n)) = step.ahead else { return 0 };
        let above = |&(v, at_hand): &(u32, AtHand)| {
            let given = self.given.of(v as usize).map_or(0, |given| ahead.of(types, v as usize, given, n));
            ahead.of(types, v as usize, at_hand, n) - given
        };
        held.iter().map(above).sum()
    }

    /// Returns the cost of the cheapest state.
    pub(crate) fn least(&self) -> u64 {
        self.states.first().map_or(0, |s| s.cost)
    }

    /// Returns a lower bound on the cost of all programs.
    pub(crate) fn bound_of_all(&self) -> u64 {
        self.least().min(self.dropped)
    }

    /// Returns the choices that lead to the cheapest state, in order.
    pub(crate) fn best(&self) -> Vec<Choice> {
        let (mut choices, mut at) = (Vec::new(), 0);
        for step in self.trail.iter().rev() {
            let Decided { before, choice } = step[at];
            choices.extend(choice);
            at = before;
        }
        choices.reverse();
        choices
    }
}

/// The shared strategies of an op.
pub(crate) type Shared = Arc<Looked>;
