//! Errors of curves and lines, as medians and 90th percentiles.

use core::fmt;
use std::collections::BTreeMap;

use reshard_planner::{Level, StepOp};
use serde::Serialize;

/// The 90th percentile of the error of a curve, in percent, from which it is marked.
pub const UNCERTAIN_PERCENT: f64 = 20.0;

/// Relative errors of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// The number of predictions.
    pub count: usize,
    /// The median of the absolute errors, in percent of the measured times.
    pub median_percent: f64,
    /// The 90th percentile of the absolute errors, in percent of the measured times.
    pub p90_percent: f64,
}

impl Errors {
    /// Returns the errors of predicted and measured times; `None` without any.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Errors> {
        let error = |(predicted, measured): (f64, f64)| (predicted / measured - 1.0).abs() * 100.0;
        let mut errors: Vec<f64> = pairs.into_iter().map(error).collect();
        let median_percent = tenth(median(&mut errors)?);
        Some(Errors { count: errors.len(), median_percent, p90_percent: tenth(p90(&mut errors)?) })
    }
}

/// The result of a calibration next to the profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The number of measurements, repeats included.
    pub measurements: usize,
    /// The number of lines of the table that were left out.
    pub left_out_lines: usize,
    /// Keys of the table whose values differ between the measurements, which are taken as repeats.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub differing: BTreeMap<String, Vec<String>>,
    /// Time to start a communicating step, in microseconds.
    pub launch_us: f64,
    /// Time per peer of an exchange, in microseconds.
    pub message_us: f64,
    /// Levels from the inside out.
    pub levels: Vec<Level>,
    /// Numbers that no measurement determines.
    pub nominal: Vec<Nominal>,
    /// Errors of the levels alone, on the measurements that they were fitted to.
    pub levels_alone: Errors,
    /// The curves in the order of the profile.
    pub curves: Vec<CurveReport>,
    /// Errors of all curves at sizes that were left out; `None` if no curve has three sizes.
    pub expected: Option<Errors>,
}

/// The curve of one collective over one spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveReport {
    /// The collective.
    pub collective: StepOp,
    /// Ranks in a node, then the number of nodes.
    pub spread: Vec<usize>,
    /// The number of measured sizes.
    pub sizes: usize,
    /// The number of sizes that the profile keeps.
    pub knots: usize,
    /// The least and the greatest measured size in bytes.
    pub bytes: [u64; 2],
    /// The 90th percentile of repeats about their median, in percent; `None` without repeats.
    pub repeats_p90_percent: Option<f64>,
    /// Errors at each inner size, by the curve of the other sizes; `None` below three sizes.
    pub expected: Option<Errors>,
    /// `true` if the 90th percentile of these errors is above [`UNCERTAIN_PERCENT`].
    pub is_uncertain: bool,
}

/// A number of a profile that no measurement determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Nominal {
    /// Time per peer of an exchange: no all-to-all was measured.
    Message,
    /// Latency and rate between nodes: no group of several nodes was measured.
    BetweenNodes,
}

impl fmt::Display for Nominal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Nominal::Message => "time per peer of an exchange nominal",
            Nominal::BetweenNodes => "latency and rate between nodes nominal",
        })
    }
}

/// Returns the median, the mean of the two in the middle of an even number; `None` without values.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the 90th percentile; `None` without values.
pub(crate) fn p90(values: &mut [f64]) -> Option<f64> {
    quantile(values, 0.9)
}

/// Returns a quantile, linear between the two values next to it, as NumPy has it.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let at = share * values.len().checked_sub(1)? as f64;
    let [low, high] = [at.floor(), at.ceil()].map(|i| values[i as usize]);
    Some(low + (high - low) * at.fract())
}

/// Returns a percentage with one decimal.
pub(crate) fn tenth(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::{median, p90};

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        assert_eq!((median(&mut []), p90(&mut [])), (None, None));
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(p90(&mut [1.0]), Some(1.0));
        let mut eleven: Vec<f64> = (0..=10).rev().map(f64::from).collect();
        assert_eq!(p90(&mut eleven), Some(9.0));
        assert_eq!(p90(&mut [0.0, 5.0]), Some(4.5));
    }
}
