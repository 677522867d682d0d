//! Timed runs: the begin and end of each instruction of a rank.
//!
//! ```text
//! each rank     run_timed: like run, with two times of a clock for every instruction
//! all ranks     Timeline::measured: the timeline, from all records
//! ```
//!
//! [`run`](PreparedSchedule::run) itself uses no clock.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::Error;
use crate::schedule::build::refused;
use crate::schedule::{ExchangeEngine, Kernels, PreparedSchedule, RunError};

/// The point at which an exchange begins on a rank: its post, or its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum ExchangeStart {
    /// At its post: it runs while the rank computes, as on a device stream.
    AtPost,
    /// At its wait, as with [`CommunicatorExchanges`](super::CommunicatorExchanges) on host memory: no part of it is overlapped.
    AtWait,
}

impl ExchangeStart {
    /// All values.
    #[doc(hidden)]
    pub const ALL: [ExchangeStart; 2] = [ExchangeStart::AtPost, ExchangeStart::AtWait];

    /// Returns its name: `at post`, `at wait`.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            ExchangeStart::AtPost => "at post",
            ExchangeStart::AtWait => "at wait",
        }
    }
}

impl fmt::Display for ExchangeStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The begin and end of each instruction of one rank, for [`Timeline::measured`](super::Timeline::measured).
///
/// Displays as lines, `rank 3, exchanges begin at wait` and nanoseconds `1200 1850` for every instruction. It
/// can be parsed from these lines, so that ranks can send theirs.
///
/// ```
/// use reshard_program::schedule::RunRecord;
/// let record: RunRecord = "rank 3, exchanges begin at wait\n1200 1850\n1850 1900".parse()?;
/// assert_eq!(record.to_string().parse::<RunRecord>()?, record);
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    rank: usize,
    begins: ExchangeStart,
    times: Vec<(Duration, Duration)>,
}

impl RunRecord {
    /// Returns a record of times measured elsewhere: begin and end of each instruction, in order.
    ///
    /// Returns an error if an instruction ends before it begins, or begins before the previous one has ended.
    #[doc(hidden)]
    pub fn new(
        rank: usize,
        begins: ExchangeStart,
        times: Vec<(Duration, Duration)>,
    ) -> Result<RunRecord, Error> {
        let mut before = Duration::ZERO;
        for (n, &(begin, end)) in times.iter().enumerate() {
            if begin < before || end < begin {
                return Err(refused(format!(
                    "instruction {n} of rank {rank} took from {begin:?} to {end:?}, but the one before it ended at {before:?}; use a monotonic clock"
                )));
            }
            before = end;
        }
        Ok(RunRecord { rank, begins, times })
    }

    /// Returns the rank.
    #[doc(hidden)]
    #[doc(hidden)]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the point at which its exchanges began.
    #[doc(hidden)]
    pub fn begins(&self) -> ExchangeStart {
        self.begins
    }

    /// Returns the begin and end of each [instruction](super::Schedule::instructions).
    #[doc(hidden)]
    #[doc(hidden)]
    pub fn times(&self) -> &[(Duration, Duration)] {
        &self.times
    }
}

impl fmt::Display for RunRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, exchanges begin {}", self.rank, self.begins)?;
        self.times.iter().try_for_each(|(begin, end)| write!(f, "\n{} {}", begin.as_nanos(), end.as_nanos()))
    }
}

impl FromStr for RunRecord {
    type Err = Error;

    fn from_str(text: &str) -> Result<RunRecord, Error> {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let head = first.strip_prefix("rank ").and_then(|rest| rest.split_once(", exchanges begin "));
        let head = head.and_then(|(rank, begins)| {
            let known = ExchangeStart::ALL.into_iter().find(|one| one.as_str() == begins);
            Some((rank.parse().ok()?, known?))
        });
        let Some((rank, begins)) = head else {
            return Err(refused(format!(
                "invalid first line {first:?} of a record; expected one such as `rank 3, exchanges begin at wait` (or `at post`)"
            )));
        };
        let times = lines.map(|line| {
            let nanos = |text: &str| text.parse().ok().map(Duration::from_nanos);
            let read = line.split_once(' ').and_then(|(begin, end)| Some((nanos(begin)?, nanos(end)?)));
            read.ok_or_else(|| {
                refused(format!("invalid times {line:?}; write begin and end in ns, such as `1200 1850`"))
            })
        });
        let times = times.collect::<Result<_, _>>()?;
        RunRecord::new(rank, begins, times)
    }
}

impl PreparedSchedule<'_> {
    /// Runs like [`run`](PreparedSchedule::run), and records the times of every instruction by `clock`.
    ///
    /// The clock has to be monotonic, with one origin for all ranks.
    ///
    /// The record is allocated before the run; the run itself allocates nothing. For the ranks of one
    /// process, use `let start = Instant::now();` before they begin, and `|| start.elapsed()` on each.
    pub fn run_timed<K, X>(
        &self,
        kernels: &mut K,
        exchanges: &mut X,
        arena: &mut K::Buffer,
        mut clock: impl FnMut() -> Duration,
    ) -> Result<RunRecord, RunError<K::Error, X::Error>>
    where
        K: Kernels,
        X: ExchangeEngine<Buffer = K::Buffer>,
    {
        let mut times = vec![(Duration::ZERO, Duration::ZERO); self.instrs.len()];
        let begins = exchanges.begins();
        for (instr, time) in self.instrs.iter().zip(&mut times) {
            let begin = clock();
            self.step(instr, kernels, exchanges, arena)?;
            *time = (begin, clock());
        }
        Ok(RunRecord { rank: self.schedule.rank, begins, times })
    }
}
