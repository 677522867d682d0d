//! When ranks did what, of a run that took place: the [records](Record) of all ranks as one [`Timeline`].
//!
//! ```text
//! a call       from when it began until when it ended
//! an exchange  one span for each rank: from when it had begun on that rank and on all from whom that receives something, and the lane
//!              was free, until the rank's wait ended
//! a wait       from when it began until when it ended
//! ```
//!
//! A clock sees posts and waits and not the steps between them, so an exchange of several steps is one span. The lane is given to the exchange
//! that is waited for first, so that spans of a lane do not overlap, and together are the time in which anything was under way.
//!
//! What a span was **after** is what had ended last before it: of a call on its own rank, of an exchange on the rank that began it last. Going back
//! along that is the critical path. It has gaps, since ranks take time between two instructions and for a post.

use core::time::Duration;
use std::collections::BTreeMap;

use reshard_collectives::{Exchange, ReceiveMessage};

use crate::Error;
use crate::schedule::build::refused;
use crate::schedule::{
    Activity, ExchangeStart, Instruction, RankTimeline, RunRecord, Schedule, Span, Timeline, Transfer,
    each_once,
};

/// When an exchange began on a rank, and the span that had ended last before.
type Begun = (Duration, Option<usize>);

/// A rank on its way through its list.
struct Walk<'a> {
    schedule: &'a Schedule,
    record: &'a RunRecord,
    at: usize,
    /// What ended last.
    last: Option<usize>,
    /// The last span of its lane of exchanges, and when that ended.
    lane: Option<(usize, Duration)>,
    /// Of each exchange, once it has begun.
    begun: Vec<Option<Begun>>,
    /// The numbers of its exchanges, by what they make.
    makes: BTreeMap<&'a str, usize>,
}

impl Timeline {
    /// When ranks did what in a run, of a program's schedules and the [record](crate::schedule::Prepared::run_timed) of each, in the same order.
    /// It begins at 0 with what was begun first.
    ///
    /// ```
    /// use reshard_program::{Program, schedule::{Options, Record, Timeline}};
    /// let program: Program = "mesh tp=2\nx: f32[4] S(0)\nh = relu(x)\ny: R = h".parse()?;
    /// let schedules = [program.compile(0, &Options::default())?, program.compile(1, &Options::default())?];
    /// // Each calls relu, posts the gather and waits for it; rank 1 is late.
    /// let records: [Record; 2] = [
    ///     "rank 0, exchanges begin at wait\n5000 7000\n7000 7000\n7000 12000".parse()?,
    ///     "rank 1, exchanges begin at wait\n5000 9000\n9000 9000\n9000 12000".parse()?,
    /// ];
    /// let timeline = Timeline::measured(&schedules, &records)?;
    /// assert_eq!(timeline.total_us(), 7.0);
    /// let times: Vec<_> =
    ///     timeline.lanes.iter().map(|l| (timeline.computing_us(l), timeline.exchanging_us(l), timeline.waiting_us(l))).collect();
    /// assert_eq!(times, [(2.0, 3.0, 5.0), (4.0, 3.0, 3.0)]);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Fails where a record is of another rank or has not a time for every instruction, where a rank had what others had not begun to send, as by clocks of
    /// different starts, and as [`of`](Timeline::of) does.
    pub fn measured(schedules: &[Schedule], records: &[RunRecord]) -> Result<Timeline, Error> {
        let (ranks, given) = (schedules.len(), records.len());
        if ranks != given {
            return Err(refused(format!(
                "there are {ranks} schedules and {given} records: give one of each for every rank"
            )));
        }
        let mut number = BTreeMap::new();
        let mut walks = Vec::with_capacity(ranks);
        for (n, (schedule, record)) in schedules.iter().zip(records).enumerate() {
            let (rank, instrs, times) =
                (schedule.rank(), schedule.instructions().len(), record.times().len());
            if number.insert(rank, n).is_some() {
                return Err(refused(format!("two schedules are of rank {rank}")));
            }
            if (record.rank(), times) != (rank, instrs) {
                return Err(refused(format!(
                    "the schedule of rank {rank} has {instrs} instructions, and its record is of rank {} and {times}: give records in the order of schedules, of the same options",
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
                "rank {} waits for an exchange that others do not come to: give the schedules of one program, for all ranks",
                walk.schedule.rank()
            ))),
        }
    }

    /// Goes on until the rank waits for what somebody has not begun.
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

    /// Begins an exchange, if it has not.
    fn begin(&mut self, exchange: usize, now: Duration) {
        self.begun[exchange].get_or_insert((now, self.last));
    }
}

/// Every rank that takes part in some step.
fn members(transfer: &Transfer) -> Vec<usize> {
    each_once(transfer.steps.iter().flat_map(|step| &step.members).copied().collect())
}

/// When an exchange of a rank had begun there and where it receives from; none as long as somebody has not come to it.
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
                "rank {rank} exchanges {} with rank {peer}, of whom there is no schedule here",
                transfer.name()
            )));
        };
        let theirs = transfer.moves.iter().filter_map(|moved| other.makes.get(moved.values.1.as_str()));
        for &theirs in theirs {
            let Some(begun) = other.begun[theirs] else { return Ok(None) };
            if begun.0 > end {
                return Err(refused(format!(
                    "rank {rank} had {} at {end:?}, and rank {peer} began to send it at {:?}: take the times of all ranks by one clock",
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
