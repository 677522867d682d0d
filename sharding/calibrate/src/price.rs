//! One collective over a whole group: its price by the planner, and its traffic over each level, which the fit of
//! levels needs.

use reshard_planner::{StepOp, Topology};

/// The traffic of a rank over one level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelLoad {
    pub(crate) bytes: f64,
    /// Rounds of messages: `ceil(log2(1 + peers))`.
    pub(crate) rounds: f64,
    pub(crate) peers: f64,
}

/// Returns the traffic of each level of a collective on a tensor of this size.
pub(crate) fn load(op: StepOp, spread: &[usize], bytes: u64) -> Vec<LevelLoad> {
    let ranks: usize = spread.iter().product();
    let mut below = 1usize;
    let of_level = |&factor: &usize| {
        let n = below * factor;
        let (share, peers) = if op == StepOp::AllToAll {
            ((n - below) as f64 / ranks as f64, n - below)
        } else {
            (passes(op) * (1.0 / below as f64 - 1.0 / n as f64), factor - 1)
        };
        below = n;
        let rounds = f64::from(usize::BITS - peers.leading_zeros());
        LevelLoad { bytes: bytes as f64 * share, rounds, peers: peers as f64 }
    };
    spread.iter().map(of_level).collect()
}

/// Returns the number of times that a collective transfers the tensor.
pub(crate) fn passes(op: StepOp) -> f64 {
    if op == StepOp::AllReduce { 2.0 } else { 1.0 }
}

/// Returns the time of a collective over at least two ranks, in microseconds.
///
/// The spread has at most the levels of the network.
pub(crate) fn collective_us(topology: &Topology, op: StepOp, spread: &[usize], bytes: u64) -> f64 {
    topology.collective_us(op, spread, bytes).expect("a collective of at least two ranks within the levels")
}
