//! The price of one collective over a whole group: that of the planner for the same step.

use reshard_planner::{StepOp, Topology};

/// Returns the time of a collective over at least two ranks, in microseconds.
///
/// The spread has at most the levels of the network.
pub(crate) fn collective_us(topology: &Topology, op: StepOp, spread: &[usize], bytes: u64) -> f64 {
    topology.collective_us(op, spread, bytes).expect("a collective of at least two ranks within the levels")
}
