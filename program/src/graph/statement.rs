//! Statements: what a graph is a list of.

use reshard_kernels::DType;
use reshard_ops::rules::{Op, OpCall};
use reshard_sharding::Sharding;

use crate::along::Partly;
use crate::graph::ValueId;

/// What an operand has to be in a strategy that is given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Given {
    /// This, whatever its gradient.
    Whole(Box<Sharding>),
    /// This along some axes, with its gradient, and anything along the others.
    Along(Partly),
}

/// One statement of a graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GraphStatement {
    /// A value from outside.
    Input(ValueId),
    /// A call, and the shardings of its inputs and outputs where its strategy is given.
    Op { call: OpCall, op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>, by: Option<Vec<Given>> },
    /// The same tensor in another type: in that of the value, or, where that has none, in what it is along some axes; through a wire of
    /// narrower elements, where it says so.
    Move { from: ValueId, to: ValueId, along: Partly, via: Option<DType> },
    /// The gradients of the first with respect to others.
    Gradient { loss: ValueId, wrt: Vec<ValueId>, gradients: Vec<ValueId> },
    /// From here on no value has a gradient.
    NoGrad,
}

impl GraphStatement {
    /// The values that it takes.
    pub(crate) fn takes(&self) -> &[ValueId] {
        match self {
            GraphStatement::Input(_) | GraphStatement::NoGrad => &[],
            GraphStatement::Op { inputs, .. } => inputs,
            GraphStatement::Move { from, .. } => core::slice::from_ref(from),
            GraphStatement::Gradient { wrt, .. } => wrt,
        }
    }

    /// The values that it makes.
    pub(crate) fn makes(&self) -> &[ValueId] {
        match self {
            GraphStatement::NoGrad => &[],
            GraphStatement::Input(v) => core::slice::from_ref(v),
            GraphStatement::Op { outputs, .. } => outputs,
            GraphStatement::Move { to, .. } => core::slice::from_ref(to),
            GraphStatement::Gradient { gradients, .. } => gradients,
        }
    }
}
