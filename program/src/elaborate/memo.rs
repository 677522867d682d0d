//! Cache of transitions, so that identical layers of a program are searched once.
//!
//! The effect of an op on the states before it depends on its strategies, on the available types, and on
//! which values are needed later and by which consumers. It does not depend on the names of values, and on
//! costs only by their differences:
//!
//! ```text
//! states after = f(strategies, constraints, cost-to-go,
//!                  states before, with values renumbered and the least cost subtracted)
//! ```
//!
//! That holds where a search has no pruning bound and in greedy mode. Lists of states are interned, and the
//! list after an interned one is interned too. So a repeated layer is processed without examining a single
//! state: all layers after the first few cost one lookup per statement.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use reshard_kernels::DType;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::elaborate::ahead::{Ahead, Takers};
use crate::elaborate::at_hand::{AtHand, Sets};
use crate::elaborate::implicit::ImplicitRedistribution;
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::operands::OfOperands;
use crate::elaborate::outcomes::Outcome;
use crate::elaborate::search::{Found, Frontier, Step};
use crate::elaborate::states::{Decided, Held, Reached, State, number, renamed};

/// States with local value numbers, in order of appearance, and their costs above the first.
type List = Vec<(Held, u64)>;

/// An interned list of states.
#[derive(Debug)]
pub(crate) struct States {
    /// A number that no other list has.
    number: usize,
    list: List,
    /// Per value, the types available in some state, and `true` if no state has it as given.
    held: Vec<(AtHand, bool)>,
}

/// Adapter that looks up states by their list.
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

/// An interned list of states, applied to these values.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    of: Arc<States>,
    /// The value that each local number represents.
    values: Vec<usize>,
    /// The cost of the first state.
    pub(crate) least: u64,
}

impl Named {
    /// Returns the types available in some state, and `true` if no state has the value as it was given.
    pub(crate) fn at_hand(&self, value: usize) -> (AtHand, bool) {
        let at = self.values.iter().position(|known| *known == value);
        at.map(|at| self.of.held[at]).unwrap_or_default()
    }

    /// Returns the states, with global value numbers.
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

    /// Returns the number of states.
    pub(crate) fn len(&self) -> usize {
        self.of.list.len()
    }
}

/// The statement that is applied to states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Happens {
    /// An op, by the number of its strategies.
    Op(usize),
    /// An explicit redistribution to a type.
    Move(TypeId, Option<DType>),
}

/// Cache key: a statement and the states before it, with local value numbers.
///
/// The key may number more values than the states have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    before: usize,
    happens: Happens,
    inputs: SmallVec<[usize; 4]>,
    outputs: SmallVec<[(usize, Option<TypeId>); 2]>,
    /// Per value: `true` if it is needed later, the types it was given in, and its later consumers.
    values: SmallVec<[(bool, Option<AtHand>, Takers); 12]>,
    moves: ImplicitRedistribution,
    most: usize,
}

impl Question {
    /// Returns the key, and the values in the order of their local numbers.
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

    /// Returns the states as a separate beam with the settings of `like`.
    fn frontier(&self, like: &Frontier, before: &States) -> Frontier {
        let given = self.values.iter().map(|(_, at_hand, _)| *at_hand);
        like.relative(before.list.clone(), given.collect())
    }
}

/// The cached result of a statement.
#[derive(Debug)]
struct Answer {
    after: Arc<States>,
    /// The local number in the key of each value of the states.
    values: Vec<usize>,
    /// The origin of each state.
    decided: Arc<[Decided]>,
    /// The cost of the first state above that of the first state before.
    more: u64,
    /// The cost of the cheapest state that was dropped.
    dropped: Option<u64>,
}

/// States after a statement, their origins, and the cost of the cheapest state that was dropped.
pub(crate) struct After {
    pub(crate) states: Named,
    pub(crate) decided: Arc<[Decided]>,
    pub(crate) dropped: Option<u64>,
}

/// All interned lists and cached transitions.
#[derive(Debug, Default)]
pub(crate) struct Known {
    lists: FxHashSet<ByList>,
    answers: FxHashMap<Question, Arc<Answer>>,
    /// The transitions of ops, by the available types of their operands.
    outcomes: FxHashMap<OfOperands, Arc<Found>>,
    /// The cost-to-go of values.
    pub(crate) ahead: Ahead,
    /// Disables the caches; set by tests to compare with uncached results.
    pub(crate) forgets: bool,
}

impl Known {
    /// Returns the number of cached results.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Interns a list of states.
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

    /// Returns the states after an op.
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

    /// Returns the states after an explicit redistribution.
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

    /// Returns the transitions of an op from a state, without a pruning bound and in greedy mode.
    ///
    /// There they depend only on the operands.
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

    /// Returns the cached result of a key; computes it with `find` if there is none.
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
