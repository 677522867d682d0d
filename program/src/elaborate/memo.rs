//! What an op came to before, for equal layers of a program ask the same again and again.
//!
//! What an op does to the states before it depends on its ways, on what is at hand in them, and on which values are needed
//! again; not on what values are called, and of costs only on how they differ:
//!
//! ```text
//! states after = f(ways, pins, states before with other numbers for values and less the least cost)
//! ```
//!
//! That holds where a search goes without a bound and in haste, and is what makes the last of a hundred layers as cheap as a look.

use std::collections::HashMap;

use crate::elaborate::moves::TypeId;
use crate::elaborate::search::{AtHand, Frontier, Held, Reached, Step};

/// An op and the states before it, by numbers of their own: inputs, then outputs, then whatever else is at hand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    /// The number of its ways.
    ways: usize,
    inputs: Vec<usize>,
    outputs: Vec<(usize, Option<TypeId>)>,
    /// Of each value, whether it is needed again, and in which types it was given.
    values: Vec<(bool, Option<AtHand>)>,
    states: Vec<(Held, u64)>,
    most: usize,
}

impl Question {
    /// The question, and the values in the order of its numbers.
    pub(crate) fn of(
        frontier: &Frontier,
        step: Step<'_>,
        live: &dyn Fn(usize) -> bool,
        most: usize,
    ) -> (Question, Vec<usize>) {
        let mut values: Vec<usize> = Vec::new();
        let mut number = |v: usize| {
            values.iter().position(|known| *known == v).unwrap_or_else(|| {
                values.push(v);
                values.len() - 1
            })
        };
        let inputs = step.inputs.iter().map(|&v| number(v)).collect();
        let outputs = step.outputs.iter().map(|&(v, pin)| (number(v), pin)).collect();
        let least = frontier.least();
        let mut states: Vec<(Held, u64)> = Vec::with_capacity(frontier.states.len());
        for state in &frontier.states {
            let mut held: Held =
                state.live.iter().map(|(v, at_hand)| (number(*v), at_hand.clone())).collect();
            held.sort_unstable_by_key(|(v, _)| *v);
            states.push((held, state.cost.saturating_sub(least)));
        }
        let about = values.iter().map(|&v| (live(v), frontier.given.get(&v).cloned())).collect();
        (Question { ways: step.ways.number, inputs, outputs, values: about, states, most }, values)
    }

    pub(crate) fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// Whether a value is needed again.
    pub(crate) fn is_live(&self, value: usize) -> bool {
        self.values.get(value).is_some_and(|(live, _)| *live)
    }

    /// The states as a frontier of their own, like another, and the outputs of the op.
    pub(crate) fn frontier(&self, like: &Frontier) -> (Frontier, Vec<(usize, Option<TypeId>)>) {
        let given = self.values.iter().enumerate();
        let given = given.filter_map(|(v, (_, at_hand))| Some((v, at_hand.clone()?))).collect();
        (like.relative(self.states.clone(), given), self.outputs.clone())
    }
}

/// The states that are kept, and what the cheapest costs for which there was no room.
pub(crate) type Answer = (Vec<Reached>, Option<u64>);

/// All that was asked.
#[derive(Debug, Default)]
pub(crate) struct Known {
    answers: HashMap<Question, Answer>,
    /// Whether everything is found out again, as a test wants it.
    #[cfg(test)]
    pub(crate) forgets: bool,
}

impl Known {
    /// How many answers there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    /// The answer, found out if nobody asked before.
    pub(crate) fn of(&mut self, question: Question, find: impl FnOnce(&Question) -> Answer) -> Answer {
        if let Some(known) = self.answers.get(&question) {
            return known.clone();
        }
        let answer = find(&question);
        #[cfg(test)]
        if self.forgets {
            return answer;
        }
        self.answers.insert(question, answer.clone());
        answer
    }
}
