//! Measured timelines: the [records](RunRecord) of all ranks of one run as a [`Timeline`].
//!
//! ```text
//! a call       from its begin to its end
//! an exchange  one span for each rank: from when it had begun on that rank and all its senders, and the lane
//!              was free, to the end of the rank's wait
//! a wait       from its begin to its end
//! ```
//!
//! A clock sees posts and waits but not the steps between them, so an exchange of several steps is one span.
//! The lane is given to the exchange that is waited for first, so that spans of a lane do not overlap. Their
//! sum is the time in which any exchange was in progress.
//!
//! The `after` of a span is the span that ended last before it: for a call on its own rank, for an exchange
//! on the rank that began it last. Following these back gives the critical path. It has gaps, because ranks
//! need time between two instructions and for a post.

use core::time::Duration;
use std::collections::BTreeMap;

use reshard_collectives::{Exchange, ReceiveMessage};

use crate::Error;
use crate::schedule::build::refused;
use crate::schedule::{
    Activity, ExchangeStart, Instruction, RankTimeline, RunRecord, Schedule, Span, Timeline, Transfer,
    each_once,
};

/// The time at which an exchange began on a rank, and the span that ended last before it.
type Begun = (Duration, Option<usize>);

/// The progress of a rank through its instructions.
struct Walk<'a> {
    schedule: &'a Schedule,
    record: &'a RunRecord,
    at: usize,
    /// The span that ended last.
    last: Option<usize>,
    /// The last span of its exchange lane, and its end.
    lane: Option<(usize, Duration)>,
    /// The begin of each exchange; `None` before it has begun.
    begun: Vec<Option<Begun>>,
    /// The numbers of its exchanges, by the names of their results.
    makes: BTreeMap<&'a str, usize>,
}

impl Timeline {
    /// Builds the timeline of a run from the schedules and the records of all ranks.
    ///
    /// [`run_timed`](crate::schedule::PreparedSchedule::run_timed) returns the records. Both lists have the same
    /// order. The timeline starts at 0 with the first instruction.
    ///
    /// ```
    /// use reshard_program::{Program, schedule::{CompileOptions, RunRecord, Timeline}};
    /// let program: Program = "mesh tp=2\nx: f32[4] S(0)\nh = relu(x)\ny: R = h".parse()?;
    /// let schedules = [program.compile(0, &CompileOptions::default())?, program.compile(1, &CompileOptions::default())?];
    /// // Each rank calls relu, posts the gather and waits for it; rank 1 is late.
    /// let records: [RunRecord; 2] = [
    ///     "rank 0, exchanges begin at wait\n5000 7000\n7000 7000\n7000 12000".parse()?,
    ///     "rank 1, exchanges begin at wait\n5000 9000\n9000 9000\n9000 12000".parse()?,
    /// ];
    /// let timeline = Timeline::measured(&schedules, &records)?;
    /// assert_eq!(timeline.total_us(), 7.0);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns an error if a record is of another rank or lacks the time of an instruction, if a rank
    /// received data before its sender began (as with clocks of different origins), and in all cases of
    /// [`of`](Timeline::of).
    pub fn measured(schedules: &[Schedule], records: &[RunRecord]) -> Result<Timeline, Error> {
        let (ranks, given) = (schedules.len(), records.len());
        if ranks != given {
            return Err(refused(format!(
                "there are {ranks} schedules but {given} records; pass one of each for every rank"
            )));
        }
        let mut number = BTreeMap::new();
        let mut walks = Vec::with_capacity(ranks);
        for (n, (schedule, record)) in schedules.iter().zip(records).enumerate() {
            let (rank, instrs, times) =
                (schedule.rank(), schedule.instructions().len(), record.times().len());
            if number.insert(rank, n).is_some() {
                return Err(refused(format!("two schedules are of rank {rank}; pass one for each rank")));
            }
            if (record.rank(), times) != (rank, instrs) {
                return Err(refused(format!(
                    "the schedule of rank {rank} has {instrs} instructions, but its record is of rank {} and has {times}; pass the records in the order of the schedules, from runs with the same options",
                    record.rank()
                )));
            }
            walks.push(Walk::new(schedule, record));
        }
        let start =
            records.iter().filter_map(|record| Some(record.times().first()?.0)).min().unwrap_or_default();
        let mut timeline =
            Timeline { spans: Vec::new(), lanes: vec![RankTimeline::default(); ranks], is_measured: true };
        loop {
            let before: usize = walks.iter().map(|walk| walk.at).sum();
            for n in 0..walks.len() {
                timeline.go_on(n, &mut walks, &number, start)?;
            }
            if walks.iter().map(|walk| walk.at).sum::<usize>() == before {
                break;
            }
        }
        match walks.iter().find(|walk| walk.at < walk.schedule.instructions().len()) {
            None => Ok(timeline),
            Some(walk) => Err(refused(format!(
                "rank {} waits for an exchange that other ranks never begin; pass the schedules of one program for all ranks",
                walk.schedule.rank()
            ))),
        }
    }

    /// Processes instructions until the rank waits for an exchange that another rank has not begun.
    fn go_on(
        &mut self,
        n: usize,
        walks: &mut [Walk<'_>],
        number: &BTreeMap<usize, usize>,
        start: Duration,
    ) -> Result<(), Error> {
        let us = |time: Duration| time.saturating_sub(start).as_nanos() as f64 / 1000.0;
        let Walk { schedule, record, .. } = walks[n];
        while let Some(instr) = schedule.instructions().get(walks[n].at) {
            let at = walks[n].at;
            let (begin, end) = record.times()[at];
            let made = self.spans.len();
            match instr {
                Instruction::Call { .. } => {
                    let activity = Activity::Call { rank: schedule.rank(), instr: at };
                    let after = walks[n].last.replace(made);
                    self.spans.push(Span { activity, begin_us: us(begin), end_us: us(end), after });
                    self.lanes[n].calls.push(made);
                }
                Instruction::Post { exchange } => {
                    if record.begins() == ExchangeStart::AtPost {
                        walks[n].begin(*exchange as usize, begin);
                    }
                }
                Instruction::Wait { exchange } => {
                    let exchange = *exchange as usize;
                    if record.begins() == ExchangeStart::AtWait {
                        walks[n].begin(exchange, begin);
                    }
                    let transfer = &schedule.exchanges()[exchange];
                    let Some((begun, mut after)) = latest(walks, number, n, exchange, end)? else {
                        return Ok(());
                    };
                    let mut from = begun;
                    if let Some((before, free)) = walks[n].lane.filter(|(_, free)| *free >= begun) {
                        (from, after) = (free, Some(before));
                    }
                    let members =
                        if transfer.communicates() { members(transfer) } else { vec![schedule.rank()] };
                    let activity =
                        Activity::Exchange { rank: schedule.rank(), value: transfer.name(), members };
                    self.spans.push(Span { activity, begin_us: us(from), end_us: us(end), after });
                    self.lanes[n].steps.push(made);
                    self.lanes[n].waits.push((us(begin), us(end)));
                    walks[n].last = Some(made);
                    walks[n].lane = Some((made, end));
                }
            }
            walks[n].at += 1;
        }
        Ok(())
    }
}

impl<'a> Walk<'a> {
    fn new(schedule: &'a Schedule, record: &'a RunRecord) -> Walk<'a> {
        let all = schedule.exchanges().iter().enumerate();
        let makes = all.flat_map(|(n, of)| of.moves.iter().map(move |moved| (moved.values.1.as_str(), n)));
        let begun = vec![None; schedule.exchanges().len()];
        Walk { schedule, record, at: 0, last: None, lane: None, begun, makes: makes.collect() }
    }

    /// Begins an exchange, unless it has begun.
    fn begin(&mut self, exchange: usize, now: Duration) {
        self.begun[exchange].get_or_insert((now, self.last));
    }
}

/// Returns every rank that participates in some step.
fn members(transfer: &Transfer) -> Vec<usize> {
    each_once(transfer.steps.iter().flat_map(|step| &step.members).copied().collect())
}

/// Returns the latest begin of an exchange, on rank `n` and the ranks that it receives from.
///
/// `None` if one of them has not reached it.
fn latest(
    walks: &[Walk<'_>],
    number: &BTreeMap<usize, usize>,
    n: usize,
    exchange: usize,
    end: Duration,
) -> Result<Option<Begun>, Error> {
    let transfer = &walks[n].schedule.exchanges()[exchange];
    let Some(mut latest) = walks[n].begun[exchange] else { return Ok(None) };
    let receives = transfer.compiled.exchanges().flat_map(Exchange::receives);
    let peers = each_once(receives.filter(|message| message.bytes() > 0).map(ReceiveMessage::peer).collect());
    let rank = walks[n].schedule.rank();
    for peer in peers.into_iter().filter(|peer| *peer != rank) {
        let Some(other) = number.get(&peer).map(|&other| &walks[other]) else {
            return Err(refused(format!(
                "rank {rank} exchanges `{}` with rank {peer}, whose schedule is missing; pass the schedules of all ranks",
                transfer.name()
            )));
        };
        let theirs = transfer.moves.iter().filter_map(|moved| other.makes.get(moved.values.1.as_str()));
        for &theirs in theirs {
            let Some(begun) = other.begun[theirs] else { return Ok(None) };
            if begun.0 > end {
                return Err(refused(format!(
                    "rank {rank} had `{}` at {end:?}, but rank {peer} began to send it at {:?}; use one clock for all ranks",
                    transfer.name(),
                    begun.0
                )));
            }
            if begun.0 > latest.0 {
                latest = begun;
            }
        }
    }
    Ok(Some(latest))
}
