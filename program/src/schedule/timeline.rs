//! Modelled timelines of all ranks: the overlap of communication with computing, and the critical path.
//!
//! Every rank has two lanes. It computes one call at a time, and exchanges one step at a time, in the order
//! in which they were posted:
//!
//! ```text
//! a call     begins when the rank has finished all before it; lasts as its operations and bytes take at the rates
//! a step     begins when all members have posted it and have a free lane; lasts as the plan predicts
//! a wait     ends when the exchange's last step on this rank has ended
//! ```
//!
//! A redistribution without communication is not a step of the lane: each rank copies for itself, starting at
//! the post.
//!
//! Each span begins when another ends, or at 0. Following these back from the last end gives the **critical
//! path**: only a shorter span on it can make the whole shorter.

use std::collections::{BTreeMap, VecDeque};

use crate::schedule::build::refused;
use crate::schedule::{Instruction, LocalCall, Schedule};
use crate::{ComputeRates, Error};

/// A timed activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// An [instruction](Schedule::instructions) of a rank that is a call.
    Call {
        /// The rank.
        rank: usize,
        /// The index of the instruction.
        instr: usize,
    },
    /// A step of an exchange, by all its members.
    Step {
        /// The result of the redistribution, or those of a bucket: `dv, dw`.
        value: String,
        /// The number of the step in the plan.
        step: usize,
        /// The participating ranks, ascending.
        members: Vec<usize>,
    },
    /// An exchange of a [measured](Timeline::measured) run, from its begin to its end on one rank.
    Exchange {
        /// The rank.
        rank: usize,
        /// The result of the redistribution, or those of a bucket: `dv, dw`.
        value: String,
        /// The participating ranks, ascending.
        members: Vec<usize>,
    },
}

/// An activity with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The activity.
    pub activity: Activity,
    /// The begin, in microseconds.
    pub begin_us: f64,
    /// The end, in microseconds.
    pub end_us: f64,
    /// The index of the span that it waited for longest, which comes before it; `None` at the beginning.
    pub after: Option<usize>,
}

/// The two lanes of a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankTimeline {
    /// The span indices of its calls, in order.
    pub calls: Vec<usize>,
    /// The span indices of its steps, or of its exchanges in a measured run, in order.
    pub steps: Vec<usize>,
    /// The begin and end of its waits, in microseconds.
    pub waits: Vec<(f64, f64)>,
}

/// A timeline of all ranks, with a lane for calls and one for steps of exchanges on each rank.
///
/// In a model timeline ([`of`](Timeline::of)), the cost model and compute rates give the times. A call begins
/// when its rank has finished the instructions before it, and a step when all its members have posted it and
/// have free lanes. In a [`measured`](Timeline::measured) timeline the times are those of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// All spans.
    pub spans: Vec<Span>,
    /// The lanes, one for each schedule, in their order.
    pub lanes: Vec<RankTimeline>,
    /// `true` for a measured run, `false` for a model.
    pub is_measured: bool,
}

/// A step that a rank has posted.
struct Posted {
    /// The number of the exchange on this rank.
    exchange: usize,
    value: String,
    step: usize,
    members: Vec<usize>,
    cost_us: f64,
    /// The post time, and the span that ended then.
    ready: Moment,
    is_last: bool,
}

/// A time, and the span that ends then.
type Moment = (f64, Option<usize>);

/// The progress of a rank through its instructions.
struct Walk<'a> {
    schedule: &'a Schedule,
    at: usize,
    now: Moment,
    posted: VecDeque<Posted>,
    /// The time at which its exchange lane is free.
    free: Moment,
    /// The end of each of its exchanges.
    done: Vec<Option<Moment>>,
}

impl Timeline {
    /// Computes the timeline of a program's schedules at these compute rates.
    ///
    /// There has to be one schedule for each participating rank.
    ///
    /// ```
    /// use reshard_program::{Program, ComputeRates, schedule::{CompileOptions, Timeline}};
    /// let program: Program = "
    ///     mesh tp=2
    ///     x: f32[512,512] S(1)
    ///     w: f32[512,512] S(0)
    ///     h = mm(x, w)
    ///     y: R = h
    ///     z = relu(y)
    /// ".parse()?;
    /// let schedules: Result<Vec<_>, _> = (0..2).map(|rank| program.compile(rank, &CompileOptions::default())).collect();
    /// let timeline = Timeline::of(&schedules?, &ComputeRates::uniform())?;
    /// let report = program.report(&ComputeRates::uniform());
    /// let sum = report.compute_us.forward + report.traffic.forward.cost_us;
    /// assert!((timeline.total_us() - sum).abs() < 1e-9); // without overlap
    /// assert_eq!(timeline.critical_path().len(), 3);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns an error if two schedules are of one rank, if a member of an exchange has no schedule, and for
    /// schedules of different programs, which deadlock.
    pub fn of(schedules: &[Schedule], rates: &ComputeRates) -> Result<Timeline, Error> {
        let mut number: BTreeMap<usize, usize> = BTreeMap::new();
        for (n, schedule) in schedules.iter().enumerate() {
            if number.insert(schedule.rank(), n).is_some() {
                return Err(refused(format!(
                    "two schedules are of rank {}; pass one for each rank",
                    schedule.rank()
                )));
            }
        }
        let mut timeline = Timeline {
            spans: Vec::new(),
            lanes: vec![RankTimeline::default(); schedules.len()],
            is_measured: false,
        };
        let mut walks: Vec<Walk<'_>> = schedules.iter().map(Walk::new).collect();
        // Ranks that may continue: at first all, then those for which a step has ended.
        let mut going: VecDeque<usize> = (0..walks.len()).collect();
        while let Some(n) = going.pop_front() {
            timeline.compute(n, &mut walks[n], rates);
            // The last post of this rank may be the one that others wait for.
            let mut heads = vec![n];
            while let Some(head) = heads.pop() {
                let Some(members) = together(&walks, &number, head)? else { continue };
                timeline.step(&members, &mut walks);
                heads.extend(&members);
                going.extend(members);
            }
        }
        if let Some(walk) = walks.iter().find(|walk| walk.at < walk.schedule.instructions().len()) {
            return Err(refused(format!(
                "rank {} waits for an exchange that other ranks never begin; pass the schedules of one program for all ranks",
                walk.schedule.rank()
            )));
        }
        Ok(timeline)
    }

    /// Processes instructions until the rank waits for an unfinished exchange.
    fn compute(&mut self, n: usize, walk: &mut Walk<'_>, rates: &ComputeRates) {
        let schedule = walk.schedule;
        while let Some(instr) = schedule.instructions().get(walk.at) {
            match instr {
                Instruction::Call { kernel, .. } => {
                    let (begin_us, after) = walk.now;
                    let end_us = begin_us + time_us(&schedule.calls()[*kernel as usize], rates);
                    let activity = Activity::Call { rank: schedule.rank(), instr: walk.at };
                    walk.now = (end_us, Some(self.spans.len()));
                    self.lanes[n].calls.push(self.spans.len());
                    self.spans.push(Span { activity, begin_us, end_us, after });
                }
                Instruction::Post { exchange } if schedule.exchanges()[*exchange as usize].communicates() => {
                    walk.post(*exchange as usize);
                }
                Instruction::Post { exchange } => self.copies(n, walk, *exchange as usize),
                Instruction::Wait { exchange } => {
                    let Some(done) = walk.done[*exchange as usize] else { return };
                    if done.0 > walk.now.0 {
                        self.lanes[n].waits.push((walk.now.0, done.0));
                        walk.now = done;
                    }
                }
            }
            walk.at += 1;
        }
    }

    /// Adds the local copies of an exchange, which occupy no lane.
    fn copies(&mut self, n: usize, walk: &mut Walk<'_>, exchange: usize) {
        let transfer = &walk.schedule.exchanges()[exchange];
        let mut end = walk.now;
        for step in &transfer.steps {
            let (value, members) = (transfer.name(), vec![walk.schedule.rank()]);
            let activity = Activity::Step { value, step: step.step, members };
            let span = Span { activity, begin_us: end.0, end_us: end.0 + step.cost_us, after: end.1 };
            end = (span.end_us, Some(self.spans.len()));
            self.lanes[n].steps.push(self.spans.len());
            self.spans.push(span);
        }
        walk.done[exchange] = Some(end);
    }

    /// Runs the next step of these members, all of which have posted it.
    fn step(&mut self, members: &[usize], walks: &mut [Walk<'_>]) {
        let steps: Vec<Posted> = members.iter().filter_map(|&n| walks[n].posted.pop_front()).collect();
        let mut begin: Moment = (0.0, None);
        for (posted, &n) in steps.iter().zip(members) {
            for moment in [posted.ready, walks[n].free] {
                if moment.0 > begin.0 {
                    begin = moment;
                }
            }
        }
        let cost = steps.iter().fold(0.0f64, |most, posted| most.max(posted.cost_us));
        let end: Moment = (begin.0 + cost, Some(self.spans.len()));
        for (posted, &n) in steps.iter().zip(members) {
            walks[n].free = end;
            if posted.is_last {
                walks[n].done[posted.exchange] = Some(end);
            }
            self.lanes[n].steps.push(self.spans.len());
        }
        let Some(Posted { value, step, members, .. }) = steps.into_iter().next() else { return };
        let activity = Activity::Step { value, step, members };
        self.spans.push(Span { activity, begin_us: begin.0, end_us: end.0, after: begin.1 });
    }

    /// Returns the total time until all ranks have finished, in microseconds.
    #[doc(hidden)]
    pub fn total_us(&self) -> f64 {
        self.spans.iter().fold(0.0, |most, span| most.max(span.end_us))
    }

    /// Returns the critical path, from the beginning to the end.
    ///
    /// Each span begins when the one before it ends, or later in a measured run.
    #[doc(hidden)]
    pub fn critical_path(&self) -> Vec<&Span> {
        let last = self
            .spans
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.end_us.total_cmp(&b.1.end_us).then(b.0.cmp(&a.0)));
        let mut path = Vec::new();
        let mut at = last.map(|(n, _)| n);
        while let Some(span) = at.map(|n| &self.spans[n]) {
            path.push(span);
            at = span.after;
        }
        path.reverse();
        path
    }

    /// Returns the compute time of a lane, in microseconds.
    #[doc(hidden)]
    pub fn computing_us(&self, lane: &RankTimeline) -> f64 {
        self.sum(&lane.calls)
    }

    /// Returns the exchange time of a lane, overlapped or not, in microseconds.
    #[doc(hidden)]
    pub fn exchanging_us(&self, lane: &RankTimeline) -> f64 {
        self.sum(&lane.steps)
    }

    /// Returns the wait time of a lane, in microseconds: for its exchanges, and for ranks that post later.
    #[doc(hidden)]
    pub fn waiting_us(&self, lane: &RankTimeline) -> f64 {
        lane.waits.iter().fold(0.0, |sum, (begin, end)| sum + (end - begin))
    }

    /// Returns the exchange time during which a lane does not wait, in microseconds.
    #[doc(hidden)]
    pub fn hidden_us(&self, lane: &RankTimeline) -> f64 {
        // Steps do not overlap, and neither do waits.
        let seen = |span: &Span| {
            lane.waits.iter().fold(0.0, |sum, (begin, end)| {
                sum + (end.min(span.end_us) - begin.max(span.begin_us)).max(0.0)
            })
        };
        lane.steps.iter().fold(0.0, |sum, &n| {
            let span = &self.spans[n];
            sum + (span.end_us - span.begin_us - seen(span)).max(0.0)
        })
    }

    fn sum(&self, numbers: &[usize]) -> f64 {
        numbers.iter().fold(0.0, |sum, &n| sum + (self.spans[n].end_us - self.spans[n].begin_us))
    }
}

impl<'a> Walk<'a> {
    fn new(schedule: &'a Schedule) -> Walk<'a> {
        let done = vec![None; schedule.exchanges().len()];
        Walk { schedule, at: 0, now: (0.0, None), posted: VecDeque::new(), free: (0.0, None), done }
    }

    fn post(&mut self, exchange: usize) {
        let transfer = &self.schedule.exchanges()[exchange];
        let last = transfer.steps.len().saturating_sub(1);
        self.posted.extend(transfer.steps.iter().enumerate().map(|(i, step)| Posted {
            exchange,
            value: transfer.name(),
            step: step.step,
            members: step.members.clone(),
            cost_us: step.cost_us,
            ready: self.now,
            is_last: i == last,
        }));
    }
}

/// Returns the walks of all members of a rank's next step; `None` if a member has not reached it.
fn together(
    walks: &[Walk<'_>],
    number: &BTreeMap<usize, usize>,
    n: usize,
) -> Result<Option<Vec<usize>>, Error> {
    let Some(next) = walks[n].posted.front() else { return Ok(None) };
    let mut all = Vec::with_capacity(next.members.len());
    for rank in &next.members {
        let Some(&other) = number.get(rank) else {
            return Err(refused(format!(
                "rank {} exchanges `{}` with rank {rank}, whose schedule is missing; pass the schedules of all ranks",
                walks[n].schedule.rank(),
                next.value
            )));
        };
        let same = |posted: &Posted| (&posted.value, posted.step) == (&next.value, next.step);
        if !walks[other].posted.front().is_some_and(same) {
            return Ok(None);
        }
        all.push(other);
    }
    Ok(Some(all))
}

/// Returns the compute time of a call, in microseconds.
fn time_us(call: &LocalCall, rates: &ComputeRates) -> f64 {
    let operands = || call.inputs.iter().chain(&call.outputs);
    let stored = operands().zip(&call.stored).filter(|(_, stored)| **stored);
    let bytes = stored.map(|(t, _)| t.bytes().unwrap_or(usize::MAX) as u64).fold(0, u64::saturating_add);
    let dtype = operands().map(|t| t.dtype).find(|d| !d.is_integral());
    dtype.map_or(0.0, |dtype| rates.time_us(dtype, call.operations, bytes))
}
