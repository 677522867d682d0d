//! Steps of optimizers: parameters, their gradients and states, element by element.
//!
//! Fused ones are the same for each of a list of tensors.

use super::Alike;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim::Rest;
use crate::rules::partial_rule::PartialRule;
use crate::rules::strategy::{OperandPlacement, Strategy};
use crate::rules::terms::{AVG, MAX, MIN, R};

/// A parameter, its gradient and `states` states; the outputs are the parameter and the states.
fn step(states: usize) -> RuleBuilder {
    // The update of a parameter does not depend on its value.
    let moved = [AVG, MIN, MAX].map(|term: OperandPlacement| {
        let of = |n| [vec![term.clone()], vec![R; n]].concat();
        PartialRule::Row(Strategy { inputs: of(states + 1), outputs: of(states) })
    });
    RuleBuilder::new().inputs(states + 2, [Rest]).outputs(states + 1, [Rest]).passings(moved)
}

pub(super) fn rules() -> Vec<Alike> {
    vec![
        (&["adagrad", "rmsprop", "lion"], step(1)),
        (&["adamax", "nadam", "radam", "adadelta", "rprop"], step(2)),
        (&["adam_amsgrad"], step(3)),
    ]
}
