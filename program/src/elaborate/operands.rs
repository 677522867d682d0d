//! Transitions of an op without a pruning bound and in greedy mode; they depend only on its operands.

use smallvec::SmallVec;

use crate::elaborate::ahead::Takers;
use crate::elaborate::at_hand::AtHand;
use crate::elaborate::implicit::ImplicitRedistribution;
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::search::{Found, Frontier, Step};
use crate::elaborate::states::{State, number};

/// Cache key: an op and its operands, with local numbers in order of appearance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OfOperands {
    /// The number of the op's strategies.
    ways: usize,
    inputs: SmallVec<[usize; 4]>,
    outputs: SmallVec<[(usize, Option<TypeId>); 2]>,
    /// Per value: `true` if it is needed later, its available types, and the types it was given in.
    values: SmallVec<[(bool, AtHand, Option<AtHand>); 6]>,
    moves: ImplicitRedistribution,
}

impl OfOperands {
    /// Returns the key of the operands in a state, and the values in the order of their local numbers.
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

    /// Returns the transitions of the op, in a beam with the settings of `like`.
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
