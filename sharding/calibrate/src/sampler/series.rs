//! The samples of one point: how many calls each has, and when there are enough.

use crate::report::{median, quantile, tenth};

use super::point::PointKey;
use super::{Cause, SampleOptions};

/// The most samples of a point. The interquartile range of steady noise does not shrink with more of them.
const MOST_SAMPLES: usize = 200;
/// The least samples of a point whose time is over: the interquartile range needs some.
const LEAST_SAMPLES: usize = 5;
/// The most calls of a sample.
const MOST_CALLS: f64 = 10_000.0;
/// The range of times of tables.
const TIMES: (f64, f64) = (1e-6, 1e9);

/// The samples of one point so far.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) key: PointKey,
    /// The number of calls of the next sample.
    pub(crate) calls: u64,
    limit_us: f64,
    spent_us: f64,
    warmups: usize,
    /// The time of the fastest call.
    least_us: f64,
    is_warm: bool,
    times: Vec<f64>,
}

/// The result of a point.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The time of a call of each counted sample.
    pub(crate) times: Vec<f64>,
    pub(crate) cause: Option<Cause>,
}

impl Outcome {
    pub(crate) fn not_measured() -> Outcome {
        Outcome { times: Vec::new(), cause: Some(Cause::NotMeasured) }
    }

    /// Returns the median time; `None` of a point that was not measured.
    pub(crate) fn median_us(&self) -> Option<f64> {
        median(&mut self.times.clone())
    }
}

impl Series {
    pub(crate) fn new(key: PointKey, limit_us: f64) -> Series {
        Series {
            key,
            calls: 1,
            limit_us,
            spent_us: 0.0,
            warmups: 0,
            least_us: f64::INFINITY,
            is_warm: false,
            times: Vec::new(),
        }
    }

    /// Records the time of a sample, and returns it as counted.
    pub(crate) fn record(&mut self, us: f64, options: &SampleOptions) -> f64 {
        // `max` of NaN is the other number.
        let call_us = (us / self.calls as f64).max(TIMES.0).min(TIMES.1);
        let us = call_us * self.calls as f64;
        // Whole picoseconds, as profiles have, so that tables are read as they are written.
        let call_us = (call_us * 1e6).round() / 1e6;
        self.spent_us += us;
        if self.is_warm || options.warmups == 0 {
            self.times.push(call_us);
        } else {
            self.warmups += 1;
            // A slow network is warm after fewer samples: the time is for counted ones.
            self.is_warm = self.warmups >= options.warmups || self.spent_us >= self.limit_us / 4.0;
        }
        // The calls of counted samples stay as they are, so that their times can be compared.
        if self.times.is_empty() {
            self.least_us = self.least_us.min(call_us);
            self.calls = (options.sample_us / self.least_us).ceil().clamp(1.0, MOST_CALLS) as u64;
        }
        us
    }

    /// Returns the result if no more samples are needed.
    pub(crate) fn outcome(&self, options: &SampleOptions) -> Option<Outcome> {
        let n = self.times.len();
        let is_over = self.spent_us >= self.limit_us;
        if n < options.samples.max(1) && !(is_over && n >= LEAST_SAMPLES) {
            return None;
        }
        let mut times = self.times.clone();
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(&mut times, share).unwrap_or(0.0));
        let range = (high - low) / middle;
        let is_settled = range <= options.tolerance;
        if !is_settled && !is_over && n < MOST_SAMPLES.max(options.samples) {
            return None;
        }
        let unstable = Cause::Unstable { samples: n, range_percent: tenth(range * 100.0) };
        Some(Outcome { times: self.times.clone(), cause: (!is_settled).then_some(unstable) })
    }
}
