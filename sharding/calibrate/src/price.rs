//! The price of one collective over a whole group: that of the planner for the same step.
//!
//! The planner prices loads of steps, which only plans have. A table has sizes and groups, so its formulas are here
//! again for these; a test compares both on plans of one step (`tests/planner.rs`).

use reshard_planner::{Curve, Profile, StepOp, Topology};

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

/// Returns the time of a collective in microseconds.
pub(crate) fn collective_us(topology: &Topology, op: StepOp, spread: &[usize], bytes: u64) -> f64 {
    let by_levels = || {
        let loads = load(op, spread, bytes);
        let (mut latency, mut wire, mut peers) = (0.0, 0.0f64, 0.0);
        for (level, at) in topology.levels().iter().zip(&loads) {
            latency += level.latency_us * at.rounds;
            wire = wire.max(at.bytes / (level.gbytes_per_s * 1e3));
            peers += at.peers;
        }
        let messages = if op == StepOp::AllToAll { topology.message_us() * peers } else { 0.0 };
        topology.launch_us() + passes(op) * latency + wire + messages
    };
    let profile = topology.calibration().map(reshard_planner::Calibration::profile);
    profile.and_then(|profile| by_curves(profile, op, spread, bytes)).unwrap_or_else(by_levels)
}

/// Returns the time by the curve of the spread, or by the two between which it is.
fn by_curves(profile: &Profile, op: StepOp, spread: &[usize], bytes: u64) -> Option<f64> {
    let (&last, inner) = spread.split_last()?;
    let of_group = |curve: &&Curve| {
        curve.collective == op && curve.spread.split_last().is_some_and(|(_, rest)| rest == inner)
    };
    let width = |curve: &Curve| curve.spread[inner.len()];
    let curves = || profile.curves.iter().filter(of_group);
    let below = curves().filter(|c| width(c) <= last).max_by_key(|c| width(c))?;
    let us = |curve: &Curve| at(profile, curve, bytes);
    if width(below) == last {
        return Some(us(below));
    }
    let above = curves().filter(|c| width(c) > last).min_by_key(|c| width(c))?;
    let share = (last - width(below)) as f64 / (width(above) - width(below)) as f64;
    Some(us(below) + share * (us(above) - us(below)))
}

/// Returns the time of a curve at a size; beyond its last knot nothing is faster than the fastest level.
fn at(profile: &Profile, curve: &Curve, bytes: u64) -> f64 {
    let Curve { bytes: sizes, us, .. } = curve;
    let after = sizes.partition_point(|&size| size <= bytes);
    let Some(at) = after.checked_sub(1) else { return us[0] };
    let slope = |a: usize, b: usize| (us[b] - us[a]) / (sizes[b] - sizes[a]) as f64;
    let rise = if after < sizes.len() {
        slope(at, after)
    } else {
        let fastest = profile.levels.iter().map(|l| l.gbytes_per_s).fold(0.0, f64::max);
        let ranks: usize = curve.spread.iter().product();
        let received = passes(curve.collective) * (1.0 - 1.0 / ranks as f64);
        at.checked_sub(1).map_or(0.0, |before| slope(before, at)).max(received / (fastest * 1e3))
    };
    us[at] + (bytes - sizes[at]) as f64 * rise
}
