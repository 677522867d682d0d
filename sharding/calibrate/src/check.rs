//! Predictions of a network compared with a table of measured times.

use reshard_planner::internal::MEASURED;
use reshard_planner::{StepOp, Topology};
use serde::Serialize;

use crate::error::Error;
use crate::network::Nodes;
use crate::points::points;
use crate::price::collective_us;
use crate::report::{Errors, tenth};
use crate::table::Table;

/// Errors of a network on a table, in all and by kind; groups without measurements are left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Errors of all points: medians of repeats.
    pub all: Errors,
    /// Errors by collective.
    pub collectives: Vec<OfCollective>,
    /// Errors by spread.
    pub spreads: Vec<OfSpread>,
    /// Errors by size.
    pub sizes: Vec<OfSize>,
    /// The point with the greatest error.
    pub worst: Worst,
}

/// Errors of one collective.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfCollective {
    /// The collective.
    pub collective: StepOp,
    /// The errors.
    pub errors: Errors,
}

/// Errors of groups of one spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfSpread {
    /// Ranks in a node, then the number of nodes.
    pub spread: Vec<usize>,
    /// The errors.
    pub errors: Errors,
}

/// Errors of sizes of one band.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfSize {
    /// The least size in bytes.
    pub from_bytes: u64,
    /// The size in bytes from which the next band begins; `None` for the last.
    pub below_bytes: Option<u64>,
    /// The errors.
    pub errors: Errors,
}

/// The point with the greatest error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The collective.
    pub collective: StepOp,
    /// Ranks in a node, then the number of nodes.
    pub spread: Vec<usize>,
    /// The size of the tensor in bytes.
    pub bytes: u64,
    /// The measured time in microseconds.
    pub measured_us: f64,
    /// The predicted time in microseconds.
    pub predicted_us: f64,
    /// The error in percent of the measured time.
    pub error_percent: f64,
}

/// The bounds of the bands: protocols of NCCL change between 1 and 16 MiB.
const BANDS: [u64; 5] = [0, 64 << 10, 1 << 20, 4 << 20, 16 << 20];

impl Check {
    /// Predicts each point of a table, and compares.
    ///
    /// A network has one level, or nodes and a level between them; nodes of the table must fit in its nodes.
    pub fn of(table: &Table, topology: &Topology) -> Result<Check, Error> {
        let nodes = Nodes::of_topology(topology)?;
        let mut judged: Vec<Worst> = Vec::new();
        for point in points(&table.measurements) {
            let spread = nodes.spread(&point)?;
            let predicted_us = collective_us(topology, point.collective, &spread, point.bytes);
            judged.push(Worst {
                collective: point.collective,
                spread,
                bytes: point.bytes,
                measured_us: point.us,
                predicted_us,
                error_percent: tenth((predicted_us / point.us - 1.0) * 100.0),
            });
        }
        let errors = |is_chosen: &dyn Fn(&Worst) -> bool| {
            let chosen = judged.iter().filter(|at| is_chosen(at));
            Errors::of(chosen.map(|at| (at.predicted_us, at.measured_us)))
        };
        let mut spreads: Vec<Vec<usize>> = judged.iter().map(|at| at.spread.clone()).collect();
        spreads.sort_by(|a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
        spreads.dedup();
        let of_collective = |collective| {
            Some(OfCollective { collective, errors: errors(&|at| at.collective == collective)? })
        };
        let of_spread = |spread: Vec<usize>| {
            let errors = errors(&|at| at.spread == spread)?;
            Some(OfSpread { spread, errors })
        };
        let of_size = |(i, &from_bytes): (usize, &u64)| {
            let below_bytes = BANDS.get(i + 1).copied();
            let is_within = |at: &Worst| at.bytes >= from_bytes && below_bytes.is_none_or(|b| at.bytes < b);
            Some(OfSize { from_bytes, below_bytes, errors: errors(&is_within)? })
        };
        let worst = judged.iter().max_by(|a, b| a.error_percent.abs().total_cmp(&b.error_percent.abs()));
        let none = || Error::Empty { unmet: None };
        Ok(Check {
            all: errors(&|_| true).ok_or_else(none)?,
            collectives: MEASURED.into_iter().filter_map(of_collective).collect(),
            spreads: spreads.into_iter().filter_map(of_spread).collect(),
            sizes: BANDS.iter().enumerate().filter_map(of_size).collect(),
            worst: worst.cloned().ok_or_else(none)?,
        })
    }
}
