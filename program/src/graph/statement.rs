//! Statements of a graph.

use reshard_kernels::DType;
use reshard_ops::rules::{Op, OpCall};
use reshard_sharding::Sharding;

use crate::graph::ValueId;
use crate::local_type::Partly;

/// The required placement of an operand in a given strategy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Given {
    /// A sharding of the value, with any gradient.
    Whole {
        /// The sharding.
        value: Box<Sharding>,
        /// The same along the axes of one rank, if it is known.
        letters: Option<Box<Sharding>>,
    },
    /// Placements along some axes, with their gradients, and any along the others.
    Along(Partly),
}

/// A statement of a graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GraphStatement {
    /// A value from outside.
    Input(ValueId),
    /// A call, and the shardings of its inputs and outputs if its strategy is given.
    Op { call: OpCall, op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>, by: Option<Vec<Given>> },
    /// A redistribution.
    ///
    /// The target is the type of the result, or if that has none, the placements along some axes. `via` is
    /// the communication dtype, if given.
    Move { from: ValueId, to: ValueId, along: Partly, via: Option<DType> },
    /// The gradients of a loss with respect to other values.
    Gradient { loss: ValueId, wrt: Vec<ValueId>, gradients: Vec<ValueId> },
    /// A mark: later values have no gradient.
    NoGrad,
}

impl GraphStatement {
    /// Returns the input values.
    pub(crate) fn takes(&self) -> &[ValueId] {
        match self {
            GraphStatement::Input(_) | GraphStatement::NoGrad => &[],
            GraphStatement::Op { inputs, .. } => inputs,
            GraphStatement::Move { from, .. } => core::slice::from_ref(from),
            GraphStatement::Gradient { wrt, .. } => wrt,
        }
    }

    /// Returns the output values.
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
