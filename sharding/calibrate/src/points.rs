//! Points: the median of the repeats of each measurement, and how far they are from it.

use std::collections::BTreeMap;

use reshard_planner::StepOp;
use reshard_planner::internal::MEASURED;

use crate::report::median;
use crate::table::Measurement;

/// The time of one collective over one group at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The collective.
    pub collective: StepOp,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of ranks in all.
    pub ranks: usize,
    /// The size of the tensor in bytes, as nccl-tests counts it.
    pub bytes: u64,
    /// The median time in microseconds: one run in five may be far off.
    pub us: f64,
    /// Distances of the repeats from the median, in percent of it; empty for a single run.
    pub deviations: Vec<f64>,
}

/// Returns a point for each set of repeats: by collective, nodes, ranks and size.
pub fn points(measurements: &[Measurement]) -> Vec<Point> {
    let mut runs: BTreeMap<(usize, usize, usize, u64), Vec<f64>> = BTreeMap::new();
    for m in measurements {
        let op = MEASURED.iter().position(|&op| op == m.collective).unwrap_or(MEASURED.len());
        runs.entry((op, m.nodes, m.ranks, m.bytes)).or_default().push(m.us);
    }
    let point = |((op, nodes, ranks, bytes), mut times): ((usize, usize, usize, u64), Vec<f64>)| {
        let us = median(&mut times)?;
        let deviations = match times.len() {
            1 => Vec::new(),
            _ => times.iter().map(|time| (time / us - 1.0).abs() * 100.0).collect(),
        };
        Some(Point { collective: *MEASURED.get(op)?, nodes, ranks, bytes, us, deviations })
    };
    runs.into_iter().filter_map(point).collect()
}
