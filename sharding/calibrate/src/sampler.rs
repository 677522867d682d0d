//! Measuring: the samples to take, chosen from the times of those before.
//!
//! ```text
//! SampleOptions --Sampler::new--> Sampler --next_sample--> Sample --the caller's engine--> us
//!                                    ^                                                      |
//!                                    '------------------------ record ----------------------'
//!                                    |
//!                                 finish --> Sampled: a table, and the points that are not settled
//! ```

mod bends;
mod point;
mod series;

use std::collections::{BTreeMap, VecDeque};

use reshard_kernels::DType;
use reshard_planner::StepOp;
use reshard_planner::internal::MEASURED;
use serde::Serialize;

use crate::error::Error;
use crate::table::{Measurement, Table};
use point::PointKey;
use series::{Outcome, Series};

/// Everything that determines which samples are taken.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOptions {
    /// The number of ranks.
    pub world: usize,
    /// The ranks of a node, which are consecutive; it divides the number of ranks.
    pub node_ranks: usize,
    /// `true` if only the group of all ranks is measured.
    pub only_whole: bool,
    /// The greatest size in bytes, as nccl-tests counts it.
    pub most_bytes: u64,
    /// The collectives, a part of all-gather, reduce-scatter, all-reduce and all-to-all.
    pub collectives: Vec<StepOp>,
    /// The element type; every rank has a whole number of elements.
    pub dtype: DType,
    /// The time of one sample in microseconds: short collectives are called several times.
    pub sample_us: f64,
    /// The number of samples of a point that are discarded.
    pub warmups: usize,
    /// The least number of samples of a point that are counted.
    pub samples: usize,
    /// The interquartile range, relative to the median, below which a point is settled.
    pub tolerance: f64,
    /// The most time of all samples of one point, in microseconds.
    pub point_us: f64,
    /// The most time of all samples, in microseconds: when it is over, no further point is begun.
    pub total_us: f64,
}

impl SampleOptions {
    /// Returns the defaults: one node, sizes to 64 MiB, all collectives of f32, and a minute.
    pub fn new(world: usize) -> SampleOptions {
        SampleOptions {
            world,
            node_ranks: world,
            only_whole: false,
            most_bytes: 64 << 20,
            collectives: MEASURED.to_vec(),
            dtype: DType::F32,
            sample_us: 200.0,
            warmups: 5,
            samples: 15,
            tolerance: 0.03,
            point_us: 2e6,
            total_us: 60e6,
        }
    }
}

/// The next sample: a number of calls of one collective by the ranks of one group.
///
/// The other ranks of the world take no part. All ranks of the world pass a barrier before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The collective.
    pub collective: StepOp,
    /// The ranks of the group, ascending.
    pub members: Vec<usize>,
    /// The number of nodes of the group, each with as many ranks.
    pub nodes: usize,
    /// The size in bytes, as nccl-tests counts it; a multiple of an element for each member.
    ///
    /// It is the size of the gathered tensor, of the input of a reduction, or of the buffer of one rank of an
    /// all-to-all.
    pub bytes: u64,
    /// The number of calls, in sequence.
    pub calls: u64,
}

/// The result of all samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// A measurement for each counted sample: its time per call.
    pub table: Table,
    /// The points that are not settled, by collective, group and size.
    pub unsettled: Vec<Unsettled>,
}

/// A point whose time is uncertain or unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unsettled {
    /// The collective.
    pub collective: StepOp,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of ranks in all.
    pub ranks: usize,
    /// The size in bytes, as nccl-tests counts it.
    pub bytes: u64,
    /// The reason.
    #[serde(flatten)]
    pub cause: Cause,
}

/// The reason why a point is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// The samples differ too much; the table has them.
    Unstable {
        /// The number of counted samples.
        samples: usize,
        /// Their interquartile range in percent of their median.
        range_percent: f64,
    },
    /// The time for all samples was over; the table has no such point.
    NotMeasured,
}

/// Chooses the next sample from the times of those before.
///
/// A sampler runs nothing and has no clock, so that any engine can measure: threads, MPI, or a process group of a
/// framework. Its decisions depend on its options and on the recorded times alone. In a job of processes every rank
/// has a sampler, and records the same time: the greatest of all ranks. Then all ranks choose the same samples.
///
/// Sizes ascend from 512 B by 4, and by 2 from 256 KiB to 32 MiB. At the end follow sizes between two of which one is
/// more than 10 % from the line of its neighbours.
///
/// ```
/// use reshard_calibrate::{SampleOptions, Sampler};
/// let options = SampleOptions { most_bytes: 4096, ..SampleOptions::new(2) };
/// let mut sampler = Sampler::new(&options)?;
/// while let Some(sample) = sampler.next_sample() {
///     // A network of 5 us and 1 GB/s; an engine measures the calls instead.
///     sampler.record(sample.calls as f64 * (5.0 + sample.bytes as f64 / 1e3));
/// }
/// let sampled = sampler.finish();
/// assert!(sampled.unsettled.is_empty());
/// assert_eq!(sampled.table.measurements[0].us, 5.512);
/// # Ok::<(), reshard_calibrate::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SampleOptions,
    /// Points of one collective and size over each spread; those of greater sizes follow.
    blocks: VecDeque<Vec<PointKey>>,
    /// The open points of the block in progress, in turn.
    turns: VecDeque<Series>,
    done: BTreeMap<PointKey, Outcome>,
    /// The time of all samples.
    spent_us: f64,
    has_bends: bool,
}

impl Sampler {
    /// Makes a sampler that has taken no sample.
    ///
    /// Errors: [`Error::Samples`] for options that describe no measurement.
    pub fn new(options: &SampleOptions) -> Result<Sampler, Error> {
        let blocks = point::blocks(options)?;
        let options = options.clone();
        let mut sampler = Sampler {
            options,
            blocks: blocks.into(),
            turns: VecDeque::new(),
            done: BTreeMap::new(),
            spent_us: 0.0,
            has_bends: false,
        };
        sampler.begin();
        Ok(sampler)
    }

    /// Returns the sample to take; `None` after the last one.
    ///
    /// It stays the same until its time is recorded.
    pub fn next_sample(&self) -> Option<Sample> {
        let series = self.turns.front()?;
        let PointKey { collective, nodes, bytes, .. } = series.key;
        let members = series.key.members(self.options.node_ranks);
        Some(Sample { collective: MEASURED[collective], members, nodes, bytes, calls: series.calls })
    }

    /// Records the time of all calls of the sample, in microseconds: that of the slowest rank.
    ///
    /// A time that is not a number, or outside of the range of tables, is taken as the nearest end of that range. Has
    /// no effect after the last sample.
    pub fn record(&mut self, us: f64) {
        let Some(mut series) = self.turns.pop_front() else { return };
        self.spent_us += series.record(us, &self.options);
        match series.outcome(&self.options) {
            Some(outcome) => {
                self.done.insert(series.key, outcome);
            }
            // The other spreads take their turns first, so that drift affects all of them.
            None => self.turns.push_back(series),
        }
        self.begin();
    }

    /// Returns the part of the work that is done, from 0 to 1.
    pub fn progress(&self) -> f64 {
        let open = self.turns.len() + self.blocks.iter().map(Vec::len).sum::<usize>();
        let points = self.done.len() as f64 / (self.done.len() + open).max(1) as f64;
        points.max((self.spent_us / self.options.total_us).min(1.0))
    }

    /// Returns the measurements; points that were not measured are among the unsettled ones.
    pub fn finish(self) -> Sampled {
        let mut sampled = Sampled {
            table: Table {
                measurements: Vec::new(),
                dtype: Some(self.options.dtype.name().to_owned()),
                left_out: 0,
                differing: BTreeMap::new(),
            },
            unsettled: Vec::new(),
        };
        for (key, outcome) in self.done {
            let PointKey { collective, nodes, ranks, bytes } = key;
            let collective = MEASURED[collective];
            if let Some(cause) = outcome.cause {
                sampled.unsettled.push(Unsettled { collective, nodes, ranks, bytes, cause });
            }
            let measured = outcome.times.into_iter();
            let measured = measured.map(|us| Measurement { collective, nodes, ranks, bytes, us });
            sampled.table.measurements.extend(measured);
        }
        sampled
    }

    /// Begins the next block if none is in progress; after the last one, the sizes next to bends.
    fn begin(&mut self) {
        while self.turns.is_empty() {
            let Some(block) = self.blocks.pop_front() else {
                if core::mem::replace(&mut self.has_bends, true) {
                    return;
                }
                self.blocks = bends::blocks(&self.done, &self.options).into();
                continue;
            };
            let left_us = self.options.total_us - self.spent_us;
            // Small sizes take less than their share, and leave it to those that follow.
            let points = block.len() + self.blocks.iter().map(Vec::len).sum::<usize>();
            let limit_us = (left_us / points as f64).min(self.options.point_us);
            if left_us > 0.0 {
                self.turns.extend(block.into_iter().map(|key| Series::new(key, limit_us)));
            } else if !self.has_bends {
                self.done.extend(block.into_iter().map(|key| (key, Outcome::not_measured())));
            }
        }
    }
}
