//! Benchmarks of reshard, with peers for comparison (see `docs/reference/benchmarks`).
//!
//! Promises are ratios between two measurements taken in turn, in one process, by the same threads: absolute
//! times depend on the machine and its load, ratios much less.

pub mod copies;
pub mod layers;
pub mod planning;
pub mod propagating;
pub mod redistribution;
pub mod results;
pub mod scheduling;

/// Ratios of a yardstick's time to ours, one per turn: above 1, ours is faster.
#[derive(Clone, Debug)]
pub struct Ratios {
    /// The ratios, least first.
    sorted: Vec<f64>,
    /// Median seconds of the yardstick and of this library.
    seconds: (f64, f64),
    /// Bytes that each of the two writes.
    bytes: usize,
}

impl Ratios {
    /// Computes the ratios of at least one pair (seconds of the yardstick, seconds of this library).
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

    /// Returns the median of the ratios.
    pub fn median(&self) -> f64 {
        self.sorted.get(self.sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Returns the ratios at the lower and the upper quartile.
    pub fn quartiles(&self) -> (f64, f64) {
        let at = |k: usize| self.sorted.get(self.sorted.len() * k / 4).copied().unwrap_or(f64::NAN);
        (at(1), at(3))
    }

    /// Returns the bytes per second that ours writes, in the median, in units of 10^9.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds.1 / 1e9
    }

    /// Returns the same for the yardstick.
    pub fn yardstick_gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds.0 / 1e9
    }
}
