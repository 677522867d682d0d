//! Benchmarks of reshard, peers beside them (see `docs/benchmarks.md`).
//!
//! What is promised is a ratio between two things that are measured in turn, in one process, by the same threads: machines
//! and their neighbours change, ratios much less.

pub mod copies;
pub mod layers;
pub mod planning;
pub mod propagating;
pub mod redistribution;
pub mod scheduling;
pub mod transformer;

/// Ratios of a yardstick's time to ours, one for each turn: above 1 we are faster than the yardstick.
#[derive(Clone, Debug)]
pub struct Ratios {
    /// The ratios, least first.
    sorted: Vec<f64>,
    /// Median seconds of the yardstick and of ours.
    seconds: (f64, f64),
    /// Bytes that each of the two writes.
    bytes: usize,
}

impl Ratios {
    /// From pairs (seconds of the yardstick, seconds of ours); one pair at least.
    pub fn new(pairs: &[(f64, f64)], bytes: usize) -> Ratios {
        let in_order = |values: &mut dyn Iterator<Item = f64>| {
            let mut values: Vec<f64> = values.collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let median = |values: &[f64]| values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
        let yardstick = in_order(&mut pairs.iter().map(|pair| pair.0));
        let ours = in_order(&mut pairs.iter().map(|pair| pair.1));
        let ratios = in_order(&mut pairs.iter().map(|pair| pair.0 / pair.1));
        Ratios { sorted: ratios, seconds: (median(&yardstick), median(&ours)), bytes }
    }

    /// The median of the ratios.
    pub fn median(&self) -> f64 {
        self.sorted.get(self.sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The ratios at the lower and the upper quartile.
    pub fn quartiles(&self) -> (f64, f64) {
        let at = |k: usize| self.sorted.get(self.sorted.len() * k / 4).copied().unwrap_or(f64::NAN);
        (at(1), at(3))
    }

    /// Bytes per second that ours writes, in the median, in units of 10^9.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds.1 / 1e9
    }

    /// The same for the yardstick.
    pub fn yardstick_gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds.0 / 1e9
    }
}
