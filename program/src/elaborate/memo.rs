//! What a statement came to before, for equal layers of a program ask the same again and again.
//!
//! What an op does to the states before it depends on its ways, on what is at hand in them, and on which values are needed
//! again and by whom; not on what values are called, and of costs only on how they differ:
//!
//! ```text
//! states after = f(ways, pins, what lies ahead, states before with other numbers for values and less the least cost)
//! ```
//!
//! That holds where a search goes without a bound and in haste. Lists of states have numbers, and what comes after one of them is again one that has a number:
//! so a layer that was there before is gone through without a look at any state, and all layers after the first few cost what looking up costs.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use reshard_kernels::DType;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::elaborate::ahead::{Ahead, Takers};
use crate::elaborate::at_hand::{AtHand, Sets};
use crate::elaborate::moves::{ImplicitRedistribution, TypeId, Types};
use crate::elaborate::operands::OfOperands;
use crate::elaborate::outcomes::Outcome;
use crate::elaborate::search::{Found, Frontier, Step};
use crate::elaborate::states::{Decided, Held, Reached, State, number, renamed};

/// States whose values have numbers of their own, in the order in which they come, and that cost so much more than the first.
type List = Vec<(Held, u64)>;

/// A list of states that has a number.
#[derive(Debug)]
pub(crate) struct States {
    /// No other list has the same.
    number: usize,
    list: List,
    /// Of each value the types in which some state has it at hand, and whether none has it as it was given.
    held: Vec<(AtHand, bool)>,
}

/// States that are looked up by their list.
#[derive(Debug)]
struct ByList(Arc<States>);

impl Borrow<List> for ByList {
    fn borrow(&self) -> &List {
        &self.0.list
    }
}

impl PartialEq for ByList {
    fn eq(&self, other: &ByList) -> bool {
        self.0.list == other.0.list
    }
}

impl Eq for ByList {}

impl Hash for ByList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.list.hash(state);
    }
}

/// States that were found before, of these values.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    of: Arc<States>,
    /// Which value each number is.
    values: Vec<usize>,
    /// What the first costs.
    pub(crate) least: u64,
}

impl Named {
    /// The types in which some state has a value at hand, and whether none has it as it was given.
    pub(crate) fn at_hand(&self, value: usize) -> (AtHand, bool) {
        let at = self.values.iter().position(|known| *known == value);
        at.map(|at| self.of.held[at]).unwrap_or_default()
    }

    /// The states themselves.
    pub(crate) fn states(&self) -> Vec<State> {
        self.of.list.iter().map(|state| self.own(state)).collect()
    }

    pub(crate) fn first(&self) -> Option<State> {
        self.of.list.first().map(|state| self.own(state))
    }

    fn own(&self, (held, more): &(Held, u64)) -> State {
        let live = renamed(held, |v| self.values[v]);
        State { live, cost: self.least.saturating_add(*more) }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.of.list.len()
    }
}

/// What happens to states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Happens {
    /// An op, in these ways, by their number.
    Op(usize),
    /// A written move to a type.
    Move(TypeId, Option<DType>),
}

/// A statement and the states before it, by the numbers of these, of which there may be more here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    before: usize,
    happens: Happens,
    inputs: SmallVec<[usize; 4]>,
    outputs: SmallVec<[(usize, Option<TypeId>); 2]>,
    /// Of each value, whether it is needed again, in which types it was given, and who takes it later.
    values: SmallVec<[(bool, Option<AtHand>, Takers); 12]>,
    moves: ImplicitRedistribution,
    most: usize,
}

impl Question {
    /// The question, and the values in the order of its numbers.
    fn of(
        frontier: &Frontier,
        named: &Named,
        happens: Happens,
        (inputs, outputs): (&[usize], &[(usize, Option<TypeId>)]),
        (live, takers): (&dyn Fn(usize) -> bool, &dyn Fn(usize) -> Takers),
        most: usize,
    ) -> (Question, Vec<usize>) {
        let mut values = named.values.clone();
        let inputs = inputs.iter().map(|&v| number(&mut values, v)).collect();
        let outputs = outputs.iter().map(|&(v, pin)| (number(&mut values, v), pin)).collect();
        let about = values.iter().map(|&v| (live(v), frontier.given.of(v), takers(v))).collect();
        (
            Question {
                before: named.of.number,
                happens,
                inputs,
                outputs,
                values: about,
                moves: frontier.moves,
                most,
            },
            values,
        )
    }

    /// The states as a frontier of their own, like another.
    fn frontier(&self, like: &Frontier, before: &States) -> Frontier {
        let given = self.values.iter().map(|(_, at_hand, _)| *at_hand);
        like.relative(before.list.clone(), given.collect())
    }
}

/// What a statement came to.
#[derive(Debug)]
struct Answer {
    after: Arc<States>,
    /// Which number of the question each value of the states has.
    values: Vec<usize>,
    /// Where each comes from.
    decided: Arc<[Decided]>,
    /// How much more the first costs than the first before.
    more: u64,
    /// What the cheapest costs for which there was no room.
    dropped: Option<u64>,
}

/// States after a statement, where each comes from, and what the cheapest costs for which there was no room.
pub(crate) struct After {
    pub(crate) states: Named,
    pub(crate) decided: Arc<[Decided]>,
    pub(crate) dropped: Option<u64>,
}

/// All that was asked.
#[derive(Debug, Default)]
pub(crate) struct Known {
    lists: FxHashSet<ByList>,
    answers: FxHashMap<Question, Arc<Answer>>,
    /// What ops come to where their operands are at hand in some way.
    outcomes: FxHashMap<OfOperands, Arc<Found>>,
    /// What lies ahead of values.
    pub(crate) ahead: Ahead,
    /// Whether what statements and ops come to is found out again, as a test wants it.
    pub(crate) forgets: bool,
}

impl Known {
    /// How many answers there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    /// States by the number of their list.
    pub(crate) fn named(&mut self, sets: &mut Sets, states: &[State]) -> Named {
        let least = states.first().map_or(0, |state| state.cost);
        let states = states.iter().map(|state| (&state.live, state.cost));
        let (of, values) = self.numbered(sets, states, least);
        Named { of, values, least }
    }

    fn numbered<'s>(
        &mut self,
        sets: &mut Sets,
        states: impl Iterator<Item = (&'s Held, u64)>,
        least: u64,
    ) -> (Arc<States>, Vec<usize>) {
        let mut values: Vec<usize> = Vec::new();
        let mut list = List::new();
        for (live, cost) in states {
            let held: Held = renamed(live, |v| number(&mut values, v));
            list.push((held, cost.saturating_sub(least)));
        }
        if let Some(ByList(known)) = self.lists.get(&list) {
            return (Arc::clone(known), values);
        }
        let mut held = vec![(AtHand::default(), 0usize); values.len()];
        for (v, at_hand) in list.iter().flat_map(|(held, _)| held) {
            let (own, times) = &mut held[*v as usize];
            *own = sets.join(*own, *at_hand);
            *times += 1;
        }
        let held = held.into_iter().map(|(own, times)| (own, times == list.len())).collect();
        let states = Arc::new(States { number: self.lists.len(), held, list });
        self.lists.insert(ByList(Arc::clone(&states)));
        (states, values)
    }

    /// What an op comes to.
    pub(crate) fn op(
        &mut self,
        types: &mut Types,
        frontier: &Frontier,
        named: &Named,
        step: Step<'_>,
        live: &dyn Fn(usize) -> bool,
        most: usize,
    ) -> After {
        let happens = Happens::Op(step.ways.number);
        let operands = (step.inputs, step.outputs);
        let (question, values) = Question::of(frontier, named, happens, operands, (live, step.takers), most);
        self.answered(types, named, question, &values, |known, types, q| {
            let frontier = q.frontier(frontier, &named.of);
            let takers = |value: usize| q.values.get(value).map_or(Takers::default(), |(.., takers)| *takers);
            let step =
                Step { ways: step.ways, inputs: &q.inputs, outputs: &q.outputs, rest: 0, takers: &takers };
            let live = |value: usize| q.values.get(value).is_some_and(|(live, ..)| *live);
            frontier.reach(types, known, step, &live, most)
        })
    }

    /// What a written move comes to.
    pub(crate) fn moved(
        &mut self,
        types: &mut Types,
        frontier: &Frontier,
        named: &Named,
        (from, to): (usize, usize),
        (is, via): (TypeId, Option<DType>),
    ) -> After {
        let happens = Happens::Move(is, via);
        let (question, values) = Question::of(
            frontier,
            named,
            happens,
            (&[from], &[(to, None)]),
            (&|_| true, &|_| Takers::default()),
            0,
        );
        self.answered(types, named, question, &values, |_, types, q| {
            let frontier = q.frontier(frontier, &named.of);
            (frontier.reach_moved(types, (q.inputs[0], q.outputs[0].0), (is, via)), None)
        })
    }

    /// What an op comes to from a state without a bound and in haste: that depends on its operands alone.
    pub(crate) fn outcomes(
        &mut self,
        types: &mut Types,
        frontier: &Frontier,
        state: &State,
        step: Step<'_>,
        live: &dyn Fn(usize) -> bool,
    ) -> Found {
        let (asked, values) = OfOperands::of(frontier, state, step, live);
        let known = self.outcomes.get(&asked).cloned();
        let found = known.unwrap_or_else(|| {
            let found = Arc::new(asked.outcomes(types, frontier, step));
            if !self.forgets {
                self.outcomes.insert(asked, Arc::clone(&found));
            }
            found
        });
        let own = |outcome: &Outcome| Outcome { after: renamed(&outcome.after, |v| values[v]), ..*outcome };
        (found.0.iter().map(own).collect(), found.1)
    }

    /// The answer, found out if nobody asked before.
    fn answered(
        &mut self,
        types: &mut Types,
        named: &Named,
        question: Question,
        values: &[usize],
        find: impl FnOnce(&mut Known, &mut Types, &Question) -> (Vec<Reached>, Option<u64>),
    ) -> After {
        let known = self.answers.get(&question).cloned();
        let answer = if let Some(known) = known {
            known
        } else {
            let (reached, dropped) = find(self, types, &question);
            let more = reached.first().map_or(0, |r| r.cost);
            let (after, values) =
                self.numbered(&mut types.sets, reached.iter().map(|r| (&r.live, r.cost)), more);
            let decided = reached.iter().map(|r| r.decided).collect();
            let answer = Arc::new(Answer { after, values, decided, more, dropped });
            if !self.forgets {
                self.answers.insert(question, Arc::clone(&answer));
            }
            answer
        };
        let own = |cost: u64| named.least.saturating_add(cost);
        After {
            states: Named {
                of: Arc::clone(&answer.after),
                values: answer.values.iter().map(|&v| values[v]).collect(),
                least: own(answer.more),
            },
            decided: Arc::clone(&answer.decided),
            dropped: answer.dropped.map(own),
        }
    }
}
