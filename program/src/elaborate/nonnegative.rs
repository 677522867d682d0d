//! Values that are known to have no negative element, as norms.
//!
//! Only these become partial values of a norm without communication.

use reshard_ops::propagate::is_of_magnitudes;
use rustc_hash::FxHashSet;

use crate::graph::{Graph, GraphStatement, ValueId};

/// Adds the results of a statement that have no negative element, if its operands in `known` have none.
pub(crate) fn follow(graph: &Graph, statement: &GraphStatement, known: &mut FxHashSet<ValueId>) {
    for (o, v) in statement.makes().iter().enumerate() {
        let is_known = match statement {
            GraphStatement::Op { op, inputs, .. } => op.is_nonnegative(o, |i| known.contains(&inputs[i])),
            GraphStatement::Move { from, .. } => known.contains(from),
            GraphStatement::Input(_) | GraphStatement::Gradient { .. } | GraphStatement::NoGrad => false,
        };
        if is_known || graph.constraint(*v).is_some_and(|is| is_of_magnitudes(&is.value)) {
            known.insert(*v);
        }
    }
}
