//! A run with a clock: when each instruction of a rank began and ended.
//!
//! ```text
//! each rank     run_timed: as run, and two times of a clock for every instruction
//! together      Timeline::measured: when ranks did what, of the records of all
//! ```
//!
//! [`run`](Prepared::run) has no clock and knows nothing of this.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::Error;
use crate::schedule::build::refused;
use crate::schedule::{ExchangeEngine, Kernels, PreparedSchedule};

/// Where an exchange begins on a rank: at its post, or only where it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeStart {
    /// At its post: it goes on while the rank computes, as on a stream of a device.
    AtPost,
    /// Where it is waited for, as by [`Engine`](super::Engine) on host memory: nothing of it is hidden.
    AtWait,
}

impl ExchangeStart {
    /// All, in order.
    pub const ALL: [ExchangeStart; 2] = [ExchangeStart::AtPost, ExchangeStart::AtWait];

    /// Its name: `at post`, `at wait`.
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

/// When each instruction of one rank began and ended, for [`Timeline::measured`](super::Timeline::measured).
///
/// Displays as lines, `rank 3, exchanges begin at wait` and nanoseconds `1200 1850` for every instruction, and is read from them, so that
/// ranks can send theirs.
///
/// ```
/// use reshard_program::schedule::Record;
/// let record: Record = "rank 3, exchanges begin at wait\n1200 1850\n1850 1900".parse()?;
/// assert_eq!((record.rank(), record.times().len()), (3, 2));
/// assert_eq!(record.to_string().parse::<Record>()?, record);
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    rank: usize,
    begins: ExchangeStart,
    times: Vec<(Duration, Duration)>,
}

impl RunRecord {
    /// One of times that were taken elsewhere: of each instruction from when until when, in order.
    ///
    /// Fails where an instruction ends before it begins, or begins before the one that stands before it has ended.
    pub fn new(
        rank: usize,
        begins: ExchangeStart,
        times: Vec<(Duration, Duration)>,
    ) -> Result<RunRecord, Error> {
        let mut before = Duration::ZERO;
        for (n, &(begin, end)) in times.iter().enumerate() {
            if begin < before || end < begin {
                return Err(refused(format!(
                    "instruction {n} of rank {rank} took from {begin:?} to {end:?}, after one that ended at {before:?}: a rank does one thing after the other, so take times by a clock that never goes back"
                )));
            }
            before = end;
        }
        Ok(RunRecord { rank, begins, times })
    }

    /// The rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Where its exchanges began.
    pub fn begins(&self) -> ExchangeStart {
        self.begins
    }

    /// Of each [instruction](super::Schedule::instrs), from when until when.
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
                "a record begins like rank 3, exchanges begin at wait (or at post), and not with {first:?}"
            )));
        };
        let times = lines.map(|line| {
            let nanos = |text: &str| text.parse().ok().map(Duration::from_nanos);
            let read = line.split_once(' ').and_then(|(begin, end)| Some((nanos(begin)?, nanos(end)?)));
            read.ok_or_else(|| {
                refused(format!("{line:?} is no time: write begin and end in ns, like 1200 1850"))
            })
        });
        let times = times.collect::<Result<_, _>>()?;
        RunRecord::new(rank, begins, times)
    }
}

impl PreparedSchedule<'_> {
    /// As [`run`](Prepared::run), with the times of every instruction by this clock: one that never goes back, and has one start for all ranks.
    ///
    /// The record is allocated before anything is run, and nothing is after that. A clock of the ranks of one process:
    /// `let start = Instant::now();` before they begin, and `|| start.elapsed()` on each.
    pub fn run_timed<K, X, E>(
        &self,
        kernels: &mut K,
        exchanges: &mut X,
        arena: &mut K::Buffer,
        mut clock: impl FnMut() -> Duration,
    ) -> Result<RunRecord, E>
    where
        K: Kernels,
        X: ExchangeEngine<Buffer = K::Buffer>,
        E: From<K::Error> + From<X::Error>,
    {
        let mut times = vec![(Duration::ZERO, Duration::ZERO); self.instrs.len()];
        let begins = exchanges.begins();
        for (instr, time) in self.instrs.iter().zip(&mut times) {
            let begin = clock();
            self.step::<K, X, E>(instr, kernels, exchanges, arena)?;
            *time = (begin, clock());
        }
        Ok(RunRecord { rank: self.schedule.rank, begins, times })
    }
}
