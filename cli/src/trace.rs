//! `reshard trace`: what one rank of a program does, call by call and exchange by exchange.
//!
//! ```text
//! usual      the schedule's own trace: what the list without types does
//! --typed    every item is asked for again, rows of the propagator and plans of the planner: the same list
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
    AxesArg, BucketArg, Elaborated, FileArg, GatherArg, HoistArg, MemoryArg, OrderArg, PiecesArg, Reading,
    options,
};
use super::{batch, report, required};

/// The most ranks times moves: a rank's part of a move says what it has to do with each other rank.
const MOST_PAIRS: usize = 1 << 20;

/// Arguments of `reshard trace`.
#[derive(Debug, Args)]
#[command(
    mut_arg("draw", |arg| arg.conflicts_with("batch")),
    mut_arg("svg", |arg| arg.conflicts_with("batch")),
    mut_arg("hoist_bytes", |arg| arg.conflicts_with("typed")),
    mut_arg("bucket_bytes", |arg| arg.conflicts_with("typed")),
    mut_arg("order", |arg| arg.conflicts_with("typed"))
)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    file: FileArg,
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request a line from stdin, like {"program":"mesh x=2\nx: f32[8] S(0)\ny: R = x","rank":1}
    #[arg(long, conflicts_with_all = ["Request", "file"])]
    batch: bool,
    /// Write what all ranks do to this file, in Chrome's trace format
    #[arg(long, value_name = "FILE", conflicts_with = "batch")]
    pub(crate) chrome: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pictures: PictureArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One question, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[group(args = ["rank", "typed", "time", "hoist_bytes", "bucket_bytes", "order", "axes", "memory_bytes", "gather_again", "pieces", "topology"])]
#[serde(deny_unknown_fields)]
struct Request {
    /// The text, in a batch.
    #[arg(skip)]
    program: Option<String>,
    /// Whose
    #[arg(long)]
    rank: Option<usize>,
    /// Ask for every item again, with types, in place of reading the schedule: what is printed is the same
    #[arg(long)]
    #[serde(default)]
    typed: bool,
    #[command(flatten)]
    #[serde(default)]
    hoist_bytes: HoistArg,
    #[command(flatten)]
    #[serde(default)]
    bucket_bytes: BucketArg,
    #[command(flatten)]
    #[serde(default)]
    order: OrderArg,
    /// How long it takes by the model: computing, exchanging, and how much of that is hidden
    #[arg(long)]
    #[serde(default)]
    time: bool,
    #[command(flatten)]
    #[serde(default)]
    axes: AxesArg,
    #[command(flatten)]
    #[serde(default)]
    memory_bytes: MemoryArg,
    #[command(flatten)]
    #[serde(default)]
    gather_again: GatherArg,
    #[command(flatten)]
    #[serde(default)]
    pieces: PiecesArg,
    #[command(flatten)]
    #[serde(default)]
    topology: TopologyArg,
}

impl Request {
    fn reading(&self) -> Reading<'_> {
        let Request { axes, memory_bytes, gather_again, pieces, topology, .. } = self;
        Reading { axes, memory: *memory_bytes, gather: *gather_again, pieces: *pieces, topology }
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

/// How long things take, by the model or in a run, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Time {
    /// All ranks until the last has ended.
    pub(crate) total: f64,
    pub(crate) computing: f64,
    pub(crate) exchanging: f64,
    /// What is exchanged while the rank computes.
    pub(crate) hidden: f64,
    pub(crate) waiting: f64,
}

/// Something that the rank does.
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

/// A tensor that an op takes or makes.
#[derive(Debug, Serialize)]
struct OperandAnswer {
    value: String,
    dtype: String,
    shape: Vec<usize>,
}

/// What is moved, and what that becomes.
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
    let is_drawn = args.pictures.are_asked() || args.chrome.is_some();
    // Pictures are of all ranks.
    let is_answered = args.request.rank.is_some() || args.format.json || !is_drawn;
    if is_answered {
        required("rank", args.request.rank.as_ref())?;
    }
    let text = args.file.read(console)?;
    let Traced { answer, timed, .. } = trace(&table, &text, &args.request, is_drawn)?;
    if let Some((schedules, times)) = timed.filter(|_| is_drawn) {
        if let Some(path) = &args.chrome {
            pictures::write(path, &chrome_trace(&times, &schedules))?;
        }
        let scene = || Ok(timeline(&times, &schedules, Limits::USUAL));
        if !args.pictures.show(scene, args.format.json, console)? || !is_answered {
            return Ok(());
        }
    }
    if args.format.json { console.print_json(&answer) } else { console.print(&answer.text()) }
}

/// When ranks do what, and everything else that can be seen of it.
pub(crate) fn page(args: &TraceArgs, console: &mut Console<'_>) -> Result<Page, CliError> {
    report::of_one(args.batch)?;
    let text = args.file.read(console)?;
    let Traced { answer, timed, program } =
        trace(&Arc::new(OpTable::standard()), &text, &args.request, true)?;
    let mut page = Page::new(format!("Timeline of a program on {}", program.mesh()));
    if let Some((schedules, times)) = &timed {
        page.words = match args.request.rank {
            Some(_) => answer.text().lines().last().map(str::to_owned).into_iter().collect(),
            None => vec![format!("all ranks in {:.1} us by the model", times.total_us())],
        };
        page = page.with(Section::new("When ranks do what", vec![timeline(times, schedules, Limits::USUAL)]));
    }
    Ok(page.with(Section::new(
        "Bytes at hand, as the program is written",
        vec![reshard_draw::memory(&program.memory_timeline(), Limits::USUAL)],
    )))
}

/// An answer, the times of all ranks where they were asked for, and what it is of.
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
            "a trace is of at most {MOST_PAIRS} ranks times moves, and this program has {ranks} and {moves} moves: give axes smaller sizes with --axes",
            ranks = counted(ranks, "rank", "ranks")
        );
        return Err(CliError::refused("too_large", message));
    }
    let options = options(request.hoist_bytes, request.bucket_bytes, request.order);
    if request.typed && options != CompileOptions::default() {
        let message = "typed is the order of the program, and hoist_bytes, bucket_bytes and order make others: leave typed out, or all of them";
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

/// Refuses programs of which the schedules of all ranks are too large.
pub(crate) fn within_pairs(program: &Program) -> Result<(), CliError> {
    let (ranks, moves) = (program.mesh().size(), program.redistributions().count());
    if ranks.saturating_mul(ranks).saturating_mul(moves) > MOST_PAIRS {
        let message = format!(
            "times are of at most {MOST_PAIRS} ranks times ranks times moves, and this program has {ranks} and {moves} moves: give axes smaller sizes with --axes",
            ranks = counted(ranks, "rank", "ranks")
        );
        return Err(CliError::refused("too_large", message));
    }
    Ok(())
}

/// The schedules of all ranks of a program, and when they do what.
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
    /// That of a rank, among all ranks of the program.
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
                "all ranks in {total:.1} us by the model: this one computes {computing:.1} us, exchanges {exchanging:.1} us, {hidden:.1} of them hidden, and waits {waiting:.1} us"
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
