//! What an op comes to without a bound and in haste: that depends on its operands alone, whatever else is at hand.

use smallvec::SmallVec;

use crate::elaborate::ahead::Takers;
use crate::elaborate::at_hand::AtHand;
use crate::elaborate::moves::{ImplicitRedistribution, TypeId, Types};
use crate::elaborate::search::{Found, Frontier, Step};
use crate::elaborate::states::{State, number};

/// An op and its operands, which have numbers of their own, in the order in which they come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OfOperands {
    /// The ways, by their number.
    ways: usize,
    inputs: SmallVec<[usize; 4]>,
    outputs: SmallVec<[(usize, Option<TypeId>); 2]>,
    /// Of each value, whether it is needed again, in which types it is at hand, and in which it was given.
    values: SmallVec<[(bool, AtHand, Option<AtHand>); 6]>,
    moves: ImplicitRedistribution,
}

impl OfOperands {
    /// The operands in a state, and the values in the order of their numbers.
    pub(crate) fn of(
        frontier: &Frontier,
        state: &State,
        step: Step<'_>,
        live: &dyn Fn(usize) -> bool,
    ) -> (OfOperands, Vec<usize>) {
        let mut values = Vec::new();
        let inputs = step.inputs.iter().map(|&v| number(&mut values, v)).collect();
        let outputs = step.outputs.iter().map(|&(v, pin)| (number(&mut values, v), pin)).collect();
        let about = |&v: &usize| (live(v), frontier.of(state, v), frontier.given.of(v));
        let about = values.iter().map(about).collect();
        let ways = step.ways.number;
        (OfOperands { ways, inputs, outputs, values: about, moves: frontier.moves }, values)
    }

    /// What the op comes to, in a frontier like another.
    pub(crate) fn outcomes(&self, types: &mut Types, like: &Frontier, step: Step<'_>) -> Found {
        let values = || self.values.iter().enumerate();
        let given = self.values.iter().map(|(_, _, given)| *given);
        let state = State { live: values().map(|(v, (_, held, _))| (v as u32, *held)).collect(), cost: 0 };
        let frontier = like.relative(Vec::new(), given.collect());
        let step = Step {
            ways: step.ways,
            inputs: &self.inputs,
            outputs: &self.outputs,
            rest: 0,
            takers: &|_| Takers::default(),
        };
        frontier
            .outcomes(types, &state, step, &|value| self.values.get(value).is_some_and(|(live, ..)| *live))
    }
}
