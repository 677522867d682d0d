//! Statements: what a graph is a list of.

use reshard_kernels::DType;
use reshard_ops::rules::{Call, Op};
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
pub(crate) enum Statement {
    /// A value from outside.
    Input(ValueId),
    /// A call, and the shardings of its inputs and outputs where its strategy is given.
    Op { call: Call, op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>, by: Option<Vec<Given>> },
    /// The same tensor in another type: in that of the value, or, where that has none, in what it is along some axes; through a wire of
    /// narrower elements, where it says so.
    Move { from: ValueId, to: ValueId, along: Partly, via: Option<DType> },
    /// The gradients of the first with respect to others.
    Gradient { loss: ValueId, wrt: Vec<ValueId>, gradients: Vec<ValueId> },
    /// From here on no value has a gradient.
    NoGrad,
}

impl Statement {
    /// The values that it takes.
    pub(crate) fn takes(&self) -> &[ValueId] {
        match self {
            Statement::Input(_) | Statement::NoGrad => &[],
            Statement::Op { inputs, .. } => inputs,
            Statement::Move { from, .. } => core::slice::from_ref(from),
            Statement::Gradient { wrt, .. } => wrt,
        }
    }

    /// The values that it makes.
    pub(crate) fn makes(&self) -> &[ValueId] {
        match self {
            Statement::NoGrad => &[],
            Statement::Input(v) => core::slice::from_ref(v),
            Statement::Op { outputs, .. } => outputs,
            Statement::Move { to, .. } => core::slice::from_ref(to),
            Statement::Gradient { gradients, .. } => gradients,
        }
    }
}
