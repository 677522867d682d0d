//! `reshard trace`: the events of one rank of a program, call by call and exchange by exchange.
//!
//! ```text
//! default    the events of the compiled schedule
//! --typed    the events derived from types and plans again, statement by statement: the same list
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use reshard_draw::{Limits, Page, Section, chrome_trace, timeline};
use reshard_layout::internal::counted;
use reshard_ops::rules::OpTable;
use reshard_program::schedule::{CompileOptions, Event, RankTimeline, Schedule, Timeline, TraceOperand};
use reshard_program::{CommScope, ComputeRates, ImplicitRedistribution, Program};
use serde::{Deserialize, Serialize};

use super::arguments::Format;
use super::console::Console;
use super::error::CliError;
use super::network::TopologyArg;
use super::pictures::{self, PictureArgs};
use super::program::{
    AxesArg, BucketArg, Elaborated, FileArg, GatherArg, HoistArg, MemoryArg, OrderArg, OverlapArg, Reading,
    options,
};
use super::{batch, report, required};

/// The limit of ranks times ranks times redistributions: a rank's schedule has an entry for each peer.
const MOST_PAIRS: usize = 1 << 20;

/// Arguments of `reshard trace`.
#[derive(Debug, Args)]
#[command(
    mut_arg("draw", |arg| arg.conflicts_with("batch")),
    mut_arg("svg", |arg| arg.conflicts_with("batch")),
    mut_arg("in_flight_bytes", |arg| arg.conflicts_with("typed")),
    mut_arg("bucket_bytes", |arg| arg.conflicts_with("typed")),
    mut_arg("order", |arg| arg.conflicts_with("typed"))
)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    file: FileArg,
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request per line of stdin, like
    /// {"program":"mesh x=2\nx: f32[8] S(0)\ny: R = x","rank":1}
    #[arg(long, conflicts_with_all = ["Request", "file"])]
    batch: bool,
    /// Write the modelled timeline of all ranks to this file, in Chrome's trace format
    #[arg(long, value_name = "FILE", conflicts_with = "batch")]
    pub(crate) chrome_trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pictures: PictureArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One request, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[group(args = ["rank", "typed", "time", "in_flight_bytes", "bucket_bytes", "order", "axes", "max_memory_bytes", "reshard_after_forward", "overlap_chunks", "topology"])]
#[serde(deny_unknown_fields)]
struct Request {
    /// The program's text, in a batch.
    #[arg(skip)]
    program: Option<String>,
    /// Rank to trace
    #[arg(long, value_parser = crate::whole::whole::<usize>, allow_negative_numbers = true)]
    rank: Option<usize>,
    /// Derive every event from types and plans instead of the schedule; the output is the same
    #[arg(long)]
    #[serde(default)]
    typed: bool,
    #[command(flatten)]
    #[serde(default)]
    in_flight_bytes: HoistArg,
    #[command(flatten)]
    #[serde(default)]
    bucket_bytes: BucketArg,
    #[command(flatten)]
    #[serde(default)]
    order: OrderArg,
    /// Print the modelled times of computing, exchanging, hidden exchanging and waiting, in microseconds
    #[arg(long)]
    #[serde(default)]
    time: bool,
    #[command(flatten)]
    #[serde(default)]
    axes: AxesArg,
    #[command(flatten)]
    #[serde(default)]
    max_memory_bytes: MemoryArg,
    #[command(flatten)]
    #[serde(default)]
    reshard_after_forward: GatherArg,
    #[command(flatten)]
    #[serde(default)]
    overlap_chunks: OverlapArg,
    #[command(flatten)]
    #[serde(default)]
    topology: TopologyArg,
}

impl Request {
    fn reading(&self) -> Reading<'_> {
        let Request { axes, max_memory_bytes, reshard_after_forward, overlap_chunks, topology, .. } = self;
        Reading {
            axes,
            memory: *max_memory_bytes,
            gather: *reshard_after_forward,
            overlap_chunks: *overlap_chunks,
            topology,
        }
    }
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    rank: usize,
    schedule: Vec<Line>,
    peak_bytes: usize,
    flops: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_us: Option<Time>,
}

/// Modelled or measured times, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Time {
    /// The total, until the last rank has ended.
    pub(crate) total: f64,
    pub(crate) computing: f64,
    pub(crate) exchanging: f64,
    /// The time in which exchanges overlap with computation.
    pub(crate) hidden: f64,
    pub(crate) waiting: f64,
}

/// An event of the rank.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Line {
    Call {
        call: String,
        r#in: Vec<OperandAnswer>,
        out: Vec<OperandAnswer>,
    },
    Exchange {
        exchange: &'static str,
        axes: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        meshes: Vec<String>,
        group: Vec<usize>,
        values: Vec<Moved>,
        received_bytes: u64,
        #[serde(skip)]
        over: CommScope,
    },
}

/// An operand or a result of an op.
#[derive(Debug, Serialize)]
struct OperandAnswer {
    value: String,
    dtype: String,
    shape: Vec<usize>,
}

/// A value that is redistributed, and its result.
#[derive(Debug, Serialize)]
struct Moved {
    from: String,
    to: String,
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &TraceArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let table = Arc::new(OpTable::standard());
    if args.batch {
        return batch::run(console, |request: &Request| {
            let text = required("program", request.program.as_deref())?;
            trace(&table, text, request, false).map(|traced| traced.answer)
        });
    }
    let is_drawn = args.pictures.are_asked() || args.chrome_trace.is_some();
    // Pictures show all ranks.
    let is_answered = args.request.rank.is_some() || args.format.json || !is_drawn;
    if is_answered {
        required("rank", args.request.rank.as_ref())?;
    }
    let text = args.file.read(console)?;
    let Traced { answer, timed, .. } = trace(&table, &text, &args.request, is_drawn)?;
    if let Some((schedules, times)) = timed.filter(|_| is_drawn) {
        if let Some(path) = &args.chrome_trace {
            pictures::write(path, &chrome_trace(&times, &schedules))?;
        }
        let scene = || Ok(timeline(&times, &schedules, Limits::USUAL));
        if !args.pictures.show(scene, args.format.json, console)? || !is_answered {
            return Ok(());
        }
    }
    if args.format.json { console.print_json(&answer) } else { console.print(&answer.text()) }
}

/// Makes the page of the modelled times of all ranks.
pub(crate) fn page(args: &TraceArgs, console: &mut Console<'_>) -> Result<Page, CliError> {
    report::of_one(args.batch)?;
    let text = args.file.read(console)?;
    let Traced { answer, timed, program } =
        trace(&Arc::new(OpTable::standard()), &text, &args.request, true)?;
    let mut page = Page::new(format!("Timeline of a program on {}", program.mesh()));
    if let Some((schedules, times)) = &timed {
        page.words = match args.request.rank {
            Some(_) => answer.text().lines().last().map(str::to_owned).into_iter().collect(),
            None => vec![format!("all ranks: {:.1} us by the cost model", times.total_us())],
        };
        page =
            page.with(Section::new("Timeline of all ranks", vec![timeline(times, schedules, Limits::USUAL)]));
    }
    Ok(page.with(Section::new(
        "Live bytes, in program order",
        vec![reshard_draw::memory(&program.memory_timeline(), Limits::USUAL)],
    )))
}

/// An answer, the times of all ranks if they were requested, and the program.
struct Traced {
    answer: Answer,
    timed: Option<(Vec<Schedule>, Timeline)>,
    program: Program,
}

fn trace(table: &Arc<OpTable>, text: &str, request: &Request, is_drawn: bool) -> Result<Traced, CliError> {
    if !is_drawn {
        required("rank", request.rank.as_ref())?;
    }
    let Elaborated { program, elaborator, rates, .. } =
        Elaborated::of(table, text, ImplicitRedistribution::Allow, request.reading())?;
    let rank = request.rank.or_else(|| program.mesh().ranks().next()).unwrap_or_default();
    let (ranks, moves) = (program.mesh().size(), program.redistributions().count());
    if ranks.saturating_mul(moves) > MOST_PAIRS {
        let message = format!(
            "the program has {ranks} and {moves} redistributions, and their product is above {MOST_PAIRS}; give smaller axis sizes with `--axes`",
            ranks = counted(ranks, "rank", "ranks")
        );
        return Err(CliError::refused("too_large", message));
    }
    let options = options(request.in_flight_bytes, request.bucket_bytes, request.order);
    if request.typed && options != CompileOptions::default() {
        let message = "`typed` traces the program order, which `in_flight_bytes`, `bucket_bytes` and `order` change; drop `typed`, or drop the others";
        return Err(CliError::refused("schedule", message));
    }
    let schedule = program.compile(rank, &options)?;
    let is_timed = request.time || is_drawn;
    let timed = if is_timed { Some(times(&program, &options, &rates)?) } else { None };
    let time_us =
        timed.as_ref().filter(|_| request.time).map(|(schedules, times)| Time::of(schedules, times, rank));
    let events = if request.typed {
        elaborator
            .implicit_redistribution(ImplicitRedistribution::Deny)
            .solve(&program.graph()?)?
            .trace(rank)?
    } else {
        schedule.trace()
    };
    Ok(Traced { answer: Answer::of(&schedule, events, time_us), timed, program })
}

/// Rejects programs for which the schedules of all ranks are too large.
pub(crate) fn within_pairs(program: &Program) -> Result<(), CliError> {
    let (ranks, moves) = (program.mesh().size(), program.redistributions().count());
    if ranks.saturating_mul(ranks).saturating_mul(moves) > MOST_PAIRS {
        let message = format!(
            "cannot time {ranks} and {moves} redistributions: ranks * ranks * redistributions is above {MOST_PAIRS}; give smaller axis sizes with `--axes`",
            ranks = counted(ranks, "rank", "ranks")
        );
        return Err(CliError::refused("too_large", message));
    }
    Ok(())
}

/// Compiles the schedules of all ranks of a program, and models their times.
fn times(
    program: &Program,
    options: &CompileOptions,
    rates: &ComputeRates,
) -> Result<(Vec<Schedule>, Timeline), CliError> {
    within_pairs(program)?;
    let schedules: Result<Vec<Schedule>, _> =
        program.mesh().ranks().map(|rank| program.compile(rank, options)).collect();
    let schedules = schedules?;
    let times = Timeline::of(&schedules, rates)?;
    Ok((schedules, times))
}

impl Time {
    /// Returns the times of one rank, and the total of all.
    pub(crate) fn of(schedules: &[Schedule], timeline: &Timeline, rank: usize) -> Self {
        let none = RankTimeline::default();
        let lanes = schedules.iter().zip(&timeline.lanes);
        let lane = lanes.filter(|(schedule, _)| schedule.rank() == rank).map(|(_, lane)| lane).next();
        let lane = lane.unwrap_or(&none);
        Self {
            total: timeline.total_us(),
            computing: timeline.computing_us(lane),
            exchanging: timeline.exchanging_us(lane),
            hidden: timeline.hidden_us(lane),
            waiting: timeline.waiting_us(lane),
        }
    }
}

impl Answer {
    fn of(schedule: &Schedule, events: Vec<Event>, time_us: Option<Time>) -> Self {
        Self {
            rank: schedule.rank(),
            schedule: events.into_iter().map(Line::of).collect(),
            peak_bytes: schedule.arena_bytes(),
            flops: schedule.operations(),
            time_us,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let (mut calls, mut exchanges, mut received) = (0, 0, 0u64);
        for line in &self.schedule {
            // Writing to a string does not fail.
            let _ = match line {
                Line::Call { call, r#in, out } => {
                    calls += 1;
                    writeln!(text, "{} = {call}({})", list(out), list(r#in))
                }
                Line::Exchange { exchange, over, group, values, received_bytes, .. } => {
                    exchanges += 1;
                    received = received.saturating_add(*received_bytes);
                    let (from, to): (Vec<&str>, Vec<&str>) =
                        values.iter().map(|moved| (moved.from.as_str(), moved.to.as_str())).unzip();
                    let group: Vec<String> = group.iter().map(usize::to_string).collect();
                    writeln!(
                        text,
                        "  {exchange} over {over} with {}: {} -> {}, receives {received_bytes} B",
                        group.join(","),
                        from.join(", "),
                        to.join(", ")
                    )
                }
            };
        }
        let _ = writeln!(
            text,
            "rank {}: {calls} calls of {} operations, {exchanges} exchanges, {received} B received, an arena of {} B",
            self.rank, self.flops, self.peak_bytes
        );
        if let Some(Time { total, computing, exchanging, hidden, waiting }) = &self.time_us {
            let _ = writeln!(
                text,
                "all ranks: {total:.1} us by the cost model; this rank computes {computing:.1} us, exchanges {exchanging:.1} us, {hidden:.1} of them hidden, and waits {waiting:.1} us"
            );
        }
        text
    }
}

/// `x f32[4,8], w f32[8]`.
fn list(operands: &[OperandAnswer]) -> String {
    let of = |OperandAnswer { value, dtype, shape }: &OperandAnswer| {
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        format!("{value} {dtype}[{}]", shape.join(","))
    };
    operands.iter().map(of).collect::<Vec<_>>().join(", ")
}

impl Line {
    fn of(event: Event) -> Self {
        match event {
            Event::Call { call, takes, makes } => Self::Call {
                call: call.to_string(),
                r#in: takes.into_iter().map(OperandAnswer::of).collect(),
                out: makes.into_iter().map(OperandAnswer::of).collect(),
            },
            Event::Exchange { op, over, members, values, received_bytes } => Self::Exchange {
                exchange: op.as_str(),
                axes: over.axes().map(str::to_owned).collect(),
                meshes: over.meshes().into_iter().map(str::to_owned).collect(),
                group: members,
                values: values.into_iter().map(|(from, to)| Moved { from, to }).collect(),
                received_bytes,
                over,
            },
        }
    }
}

impl OperandAnswer {
    fn of(TraceOperand { name, dtype, shape }: TraceOperand) -> Self {
        Self { value: name, dtype: dtype.to_string(), shape }
    }
}
