//! Transitions: the cost of each strategy of an op, for given available inputs.
//!
//! ```text
//! cost = compute cost + sum of the cheapest redistributions of inputs that are not available in the required type
//!      + sum of the redistributions of outputs to their constraints
//! ```

use smallvec::SmallVec;

use crate::elaborate::implicit::ImplicitRedistribution;
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::search::{Frontier, Step};
use crate::elaborate::states::{Choice, Operands, State, by_value};
use crate::elaborate::ways::Way;

/// A transition: one strategy for the op, its cost, and the layouts available after it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) choice: Choice,
    pub(crate) cost: u64,
    pub(crate) after: Operands,
}

/// The inputs of an op after a strategy has them.
#[derive(Clone, Debug, Default)]
struct Taking {
    after: Operands,
    cost: u64,
    /// See [`Choice::firsts`].
    firsts: SmallVec<[TypeId; 4]>,
}

/// The number of strategies per op that greedy mode considers.
const HASTY_WAYS: usize = 24;

impl Frontier {
    /// Returns the transitions of an op from a state, without the dominated ones.
    ///
    /// The second part is the compute cost of the cheapest one that greedy mode skipped.
    pub(crate) fn outcomes(
        &self,
        types: &mut Types,
        state: &State,
        step: Step<'_>,
        live: &dyn Fn(usize) -> bool,
    ) -> (Vec<Outcome>, Option<u64>) {
        let hasty = types.work() >= self.until && self.moves == ImplicitRedistribution::Allow;
        let bound = self.bound(types);
        let worth = self.worth(types, state, step, hasty);
        let mut all: Vec<Outcome> = Vec::with_capacity(worth.len());
        let mut looked_at = vec![false; step.ways.list.len()];
        for &way in &worth {
            looked_at[way] = true;
        }
        let left = step.ways.list.iter().zip(looked_at).filter(|(_, looked_at)| !looked_at);
        let mut left = left.map(|(way, _)| way.picoseconds).min();
        for way in worth {
            let of = &step.ways.list[way];
            let least = state.cost.saturating_add(of.picoseconds).saturating_add(step.rest);
            if least > bound {
                continue;
            }
            let (takings, is_all) = self.takings(types, state, of, step.inputs, live);
            if !is_all {
                left = Some(left.map_or(of.picoseconds, |left| left.min(of.picoseconds)));
            }
            for taking in takings {
                all.extend(self.outcome(types, way, taking, step, live));
            }
        }
        all.sort_by_key(|o| o.cost);
        let mut kept: Vec<Outcome> = Vec::new();
        for outcome in all {
            let cheaper =
                |k: &Outcome| self.brought(types, &k.after, &outcome.after, outcome.cost - k.cost).is_some();
            if !kept.iter().any(cheaper) {
                kept.push(outcome);
            }
        }
        (kept, left)
    }

    /// Returns the strategies of an op to consider: all, or in greedy mode the most suitable ones.
    ///
    /// Greedy mode prefers strategies that find most inputs available, and skips those that bring an input to
    /// a type in which some ranks hold nothing.
    fn worth(&self, types: &Types, state: &State, step: Step<'_>, hasty: bool) -> Vec<usize> {
        let mut ways: Vec<usize> = (0..step.ways.list.len()).collect();
        if hasty {
            let leads_to_idle = |way: &Way| {
                let moved = |(&v, is): (&usize, &TypeId)| {
                    types.is_idle(*is) && !types.sets.of(self.of(state, v)).contains(is)
                };
                step.inputs.iter().zip(&way.inputs).any(moved)
            };
            let busy: Vec<usize> =
                ways.iter().copied().filter(|&way| !leads_to_idle(&step.ways.list[way])).collect();
            if !busy.is_empty() {
                ways = busy;
            }
        }
        if hasty && ways.len() > HASTY_WAYS {
            let moves = |way: &Way| {
                let missing = |(&v, is): (&usize, &TypeId)| !types.sets.of(self.of(state, v)).contains(is);
                step.inputs.iter().zip(&way.inputs).filter(|pair| missing((pair.0, pair.1))).count()
            };
            ways.sort_by_cached_key(|&way| (moves(&step.ways.list[way]), step.ways.list[way].picoseconds));
            // An op can always run where all its inputs are replicated.
            let (kept, rest) = ways.split_at(HASTY_WAYS);
            let same = |way: &&usize| step.ways.list[**way].strategy.work_fraction >= 1.0;
            let any = rest.iter().find(same).copied();
            return kept.iter().copied().chain(any).collect();
        }
        ways
    }

    /// Returns the transition of a strategy that takes its inputs so.
    ///
    /// `None` if an output cannot reach its required type.
    fn outcome(
        &self,
        types: &mut Types,
        way: usize,
        taking: Taking,
        step: Step<'_>,
        live: &dyn Fn(usize) -> bool,
    ) -> Option<Outcome> {
        let of = step.ways.list.get(way)?;
        let mut cost = taking.cost.saturating_add(of.picoseconds);
        let mut after = Operands::new();
        for (v, at_hand) in taking.after {
            let at_hand = if self.moves == ImplicitRedistribution::Allow {
                types.without_free(at_hand)
            } else {
                at_hand
            };
            let same = self.given.of(v as usize) == Some(at_hand);
            if live(v as usize) && !same {
                after.push((v, at_hand));
            }
        }
        for (&(value, pinned), &made) in step.outputs.iter().zip(&of.outputs) {
            let is = pinned.unwrap_or(made);
            let more = types.allowed(made, is, self.moves)?;
            cost = cost.saturating_add(more);
            if live(value) {
                after.push((value as u32, types.sets.number(&[is])));
            }
        }
        by_value(&mut after);
        let choice = Choice { way, firsts: types.sets.number(&taking.firsts) };
        Some(Outcome { choice, cost, after })
    }

    /// Returns how a strategy can take its inputs, and `false` if greedy mode skipped some.
    ///
    /// An input comes from its cheapest available type. An input that is needed later may first be
    /// redistributed to a type that it could have had before, and come from there: this lets more states be
    /// pruned as dominated.
    fn takings(
        &self,
        types: &mut Types,
        state: &State,
        way: &Way,
        inputs: &[usize],
        live: &dyn Fn(usize) -> bool,
    ) -> (SmallVec<[Taking; 1]>, bool) {
        let mut out: SmallVec<[Taking; 1]> = SmallVec::from_buf([Taking::default()]);
        let mut is_all = true;
        for (i, (&value, &wanted)) in inputs.iter().zip(&way.inputs).enumerate() {
            let again = self.moves == ImplicitRedistribution::Allow
                && (live(value) || inputs[i + 1..].contains(&value));
            let is_hasty = types.work() >= self.until;
            let firsts =
                self.could_be.get(&value).copied().filter(|_| again && !is_hasty).unwrap_or_default();
            let firsts: SmallVec<[TypeId; 64]> = types.sets.of(firsts).into();
            let mut roundabout: Vec<Taking> = Vec::new();
            out.retain(|taking| {
                let known = taking.after.iter().position(|(v, _)| *v as usize == value);
                let at = known.unwrap_or_else(|| {
                    taking.after.push((value as u32, self.of(state, value)));
                    taking.after.len() - 1
                });
                let at_hand = taking.after[at].1;
                let direct = types.taken(at_hand, wanted, self.moves);
                if !taking.firsts.is_empty() {
                    taking.firsts.push(wanted);
                }
                if direct.is_some_and(|(_, with)| with == at_hand) {
                    return true;
                }
                is_all &= !(again && is_hasty) || direct.is_some_and(|(cost, _)| cost == 0);
                for &first in &firsts {
                    if first == wanted || types.sets.of(at_hand).contains(&first) {
                        continue;
                    }
                    let Some(then) =
                        types.price(first, wanted).filter(|then| direct.is_none_or(|(d, _)| *then < d))
                    else {
                        continue;
                    };
                    let Some((_, more)) = types.cheapest(at_hand, first, self.moves) else { continue };
                    let mut other = taking.clone();
                    other.after[at].1 = types.sets.with(at_hand, &[first, wanted]);
                    other.cost = other.cost.saturating_add(more).saturating_add(then);
                    other.firsts = way.inputs[..=i].into();
                    other.firsts[..i].copy_from_slice(match &taking.firsts[..] {
                        [] => &way.inputs[..i],
                        firsts => &firsts[..i],
                    });
                    other.firsts[i] = first;
                    roundabout.push(other);
                }
                if let Some((more, with)) = direct {
                    taking.after[at].1 = with;
                    taking.cost = taking.cost.saturating_add(more);
                }
                direct.is_some()
            });
            out.extend(roundabout);
        }
        (out, is_all)
    }
}
