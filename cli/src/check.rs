//! `reshard check`: types, communication, computation and memory of a program, or its errors.

use std::sync::Arc;

use clap::Args;
use reshard_draw::{Limits, Page, Scene, Section};
use reshard_ops::rules::OpTable;
use reshard_program::{
    CommCost, CommScope, Note, Pass, PerPass, Program, RedistributionReport, Report, StepReport, ValueClass,
};
use serde::{Deserialize, Serialize};

use super::arguments::Format;
use super::console::Console;
use super::error::CliError;
use super::explicit::{self, Explicit};
use super::network::TopologyArg;
use super::pictures::PictureArgs;
use super::program::{AxesArg, Elaborated, FileArg, GatherArg, MemoryArg, OverlapArg, Reading, TimesBy};
use super::{batch, report, required};

/// Arguments of `reshard check`.
#[derive(Debug, Args)]
#[command(mut_arg("draw", |arg| arg.conflicts_with("batch")), mut_arg("svg", |arg| arg.conflicts_with("batch")))]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    file: FileArg,
    #[command(flatten)]
    request: Request,
    /// Print the program with all types and redistributions, itself a valid program, instead of the report
    #[arg(long, conflicts_with = "json")]
    pub(crate) print: bool,
    /// Answer one JSON request per line of stdin, like {"program":"mesh x=2\nx: f32[8] S(0)\ny: R = x"}
    #[arg(long, conflicts_with_all = ["Request", "file", "print"])]
    batch: bool,
    #[command(flatten)]
    pub(crate) pictures: PictureArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One request, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[group(args = ["explicit", "axes", "max_memory_bytes", "reshard_after_forward", "overlap_chunks", "topology"])]
#[serde(deny_unknown_fields)]
struct Request {
    /// The program's text, in a batch.
    #[arg(skip)]
    program: Option<String>,
    /// Reject implicit redistributions: all (`none`), or those that communicate (`local-only`) [default
    /// without a value: none]
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "none")]
    #[serde(default, deserialize_with = "explicit::of_a_program")]
    explicit: Option<Explicit>,
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

/// The answer; bytes and operations are those of the worst rank.
#[derive(Debug, Serialize)]
struct Answer {
    values: Vec<ValueAnswer>,
    redistributions: Vec<MoveAnswer>,
    steps: PassesAnswer<usize>,
    received_bytes: PassesAnswer<u64>,
    cost_us: PassesAnswer<f64>,
    axes: Vec<AxesAnswer>,
    operations: PassesAnswer<f64>,
    compute_us: PassesAnswer<f64>,
    peak_bytes: PeakAnswer,
    /// `true` if the program has an explicit backward pass.
    ///
    /// Else the report assumes the one that a gradient would add.
    has_explicit_backward: bool,
    /// 0 under `--explicit`, where the redistributions are the author's.
    optimality_gap_us: f64,
    notes: Vec<NoteAnswer>,
    times_by: TimesBy,
    /// The typed program, with every redistribution.
    program: String,
}

/// A value.
#[derive(Debug, Serialize)]
struct ValueAnswer {
    name: String,
    shape: Vec<usize>,
    dtype: String,
    r#type: String,
    class: &'static str,
    pass: &'static str,
}

/// A redistribution; null for a pass in which it does nothing, except forward.
#[derive(Debug, Serialize)]
struct MoveAnswer {
    value: String,
    at: String,
    from: String,
    to: String,
    forward: TrafficAnswer,
    backward: Option<TrafficAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update: Option<TrafficAnswer>,
    by_step: Vec<StepAnswer>,
}

/// The cost of communication.
#[derive(Debug, Default, Serialize)]
struct TrafficAnswer {
    steps: usize,
    received_bytes: u64,
    cost_us: f64,
}

/// A communicating step of a redistribution.
#[derive(Debug, Serialize)]
struct StepAnswer {
    pass: &'static str,
    op: &'static str,
    axes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    meshes: Vec<String>,
    group: String,
    received_bytes: u64,
    cost_us: f64,
}

/// The communication of the steps over some axes.
#[derive(Debug, Serialize)]
struct AxesAnswer {
    axes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    meshes: Vec<String>,
    #[serde(flatten)]
    passes: PassesAnswer<TrafficAnswer>,
}

/// A record with one entry for each pass.
#[derive(Debug, Serialize)]
struct PassesAnswer<T> {
    forward: T,
    backward: T,
    update: T,
}

/// A note: the kind, the axis, and the line of the report.
#[derive(Debug, Serialize)]
struct NoteAnswer {
    kind: &'static str,
    axis: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mesh: Option<String>,
    ranks: usize,
    text: String,
}

/// The peak of live bytes: the value computed then, and the bytes by class.
#[derive(Debug, Serialize)]
struct PeakAnswer {
    all: u64,
    at: String,
    parameters: u64,
    state: u64,
    inputs: u64,
    activations: u64,
    gradients: u64,
    staging: u64,
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &CheckArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let table = Arc::new(OpTable::standard());
    if args.batch {
        return batch::run(console, |request: &Request| {
            let text = required("program", request.program.as_deref())?;
            let (program, report, times) = check(&table, text, request)?;
            Ok(Answer::of(&program, &report, times))
        });
    }
    let text = args.file.read(console)?;
    let (program, report, times) = check(&table, &text, &args.request)?;
    let scene = || {
        let title = format!("program on {}", program.mesh());
        Ok(Scene::joined(title, scenes(&program, &report).into()))
    };
    if !args.pictures.show(scene, args.format.json, console)? {
        return Ok(());
    }
    if args.format.json {
        return console.print_json(&Answer::of(&program, &report, times));
    }
    if args.print {
        return console.print(&program.to_string());
    }
    // The default network is nominal by its help.
    let source = args.request.topology.name().map_or_else(String::new, |_| format!("{times}\n"));
    console.print(&format!("{report}\n{source}"))
}

/// Draws the program, its time and its bytes.
fn scenes(program: &Program, report: &Report) -> [Scene; 3] {
    [
        reshard_draw::program(program, report, Limits::USUAL),
        reshard_draw::program_cost(report),
        reshard_draw::memory(&program.memory_timeline(), Limits::USUAL),
    ]
}

/// Makes the page of a program.
pub(crate) fn page(args: &CheckArgs, console: &mut Console<'_>) -> Result<Page, CliError> {
    report::of_one(args.batch)?;
    let text = args.file.read(console)?;
    let (program, report, _) = check(&Arc::new(OpTable::standard()), &text, &args.request)?;
    let [values, time, bytes] = scenes(&program, &report);
    let all: Vec<_> =
        program.redistributions().filter(|moved| moved.forward.communicating_steps() > 0).collect();
    let heading = if all.len() > MOST_MOVES {
        format!("Redistributions: the first {MOST_MOVES} of {}", all.len())
    } else {
        "Redistributions".to_owned()
    };
    let drawn = all.iter().take(MOST_MOVES).map(|moved| {
        let mut scene = reshard_draw::plan(moved.forward, None, Limits::USUAL);
        scene.title = format!("{} becomes {}: {}", moved.from.name, moved.to.name, scene.title);
        scene
    });
    let moves: Vec<Scene> = drawn.collect();
    let mut page = Page::new(format!("Program on {}", program.mesh()))
        .with(Section::new("Values and redistributions", vec![values]))
        .with(Section::new("Time", vec![time]))
        .with(Section::new("Memory", vec![bytes]));
    if !moves.is_empty() {
        page = page.with(Section::of_steps(heading, moves));
    }
    Ok(page)
}

/// The most redistributions that have separate pictures on a page.
const MOST_MOVES: usize = 24;

fn check(
    table: &Arc<OpTable>,
    text: &str,
    request: &Request,
) -> Result<(Program, Report, TimesBy), CliError> {
    let moves = Explicit::moves(request.explicit);
    let Elaborated { program, rates, times, .. } = Elaborated::of(table, text, moves, request.reading())?;
    let report = program.report(&rates);
    Ok((program, report, times))
}

impl Answer {
    fn of(program: &Program, report: &Report, times: TimesBy) -> Self {
        let axes = |(over, passes): (&CommScope, &PerPass<CommCost>)| AxesAnswer {
            axes: owned(over.axes()),
            meshes: owned(over.meshes()),
            passes: PassesAnswer::of(|pass| TrafficAnswer::of(passes.of(pass))),
        };
        let values = report.values.iter().map(|value| ValueAnswer {
            name: value.name.clone(),
            shape: value.ty.value.shape().to_vec(),
            dtype: value.dtype.to_string(),
            r#type: value.text.clone(),
            class: value.class.as_str(),
            pass: value.pass.as_str(),
        });
        let of = |class| report.peak.of(class);
        Self {
            values: values.collect(),
            redistributions: report.redistributions.iter().map(MoveAnswer::of).collect(),
            steps: PassesAnswer::of(|pass| report.traffic.of(pass).steps),
            received_bytes: PassesAnswer::of(|pass| report.traffic.of(pass).received_bytes),
            cost_us: PassesAnswer::of(|pass| report.traffic.of(pass).cost_us),
            axes: report.by_axes.iter().map(axes).collect(),
            operations: PassesAnswer::of(|pass| *report.operations.of(pass)),
            compute_us: PassesAnswer::of(|pass| *report.compute_us.of(pass)),
            peak_bytes: PeakAnswer {
                all: report.peak.bytes,
                at: report.peak.at.clone(),
                parameters: of(ValueClass::Parameter),
                state: of(ValueClass::State),
                inputs: of(ValueClass::Input),
                activations: of(ValueClass::Activation),
                gradients: of(ValueClass::Gradient),
                staging: report.peak.staging,
            },
            has_explicit_backward: report.has_explicit_backward,
            optimality_gap_us: report.optimality_gap_us,
            notes: report.notes.iter().map(NoteAnswer::of).collect(),
            times_by: times,
            program: program.to_string(),
        }
    }
}

fn owned<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

impl<T> PassesAnswer<T> {
    fn of(of: impl Fn(Pass) -> T) -> Self {
        Self { forward: of(Pass::Forward), backward: of(Pass::Backward), update: of(Pass::Update) }
    }
}

impl NoteAnswer {
    fn of(note: &Note) -> Self {
        let (kind, text) = (note.code(), note.to_string());
        let Note::SameWork { axis, mesh, ranks } = note.clone();
        Self { kind, axis, mesh, ranks, text }
    }
}

impl TrafficAnswer {
    fn of(traffic: &CommCost) -> Self {
        let CommCost { steps, received_bytes, cost_us } = *traffic;
        Self { steps, received_bytes, cost_us }
    }
}

impl MoveAnswer {
    fn of(row: &RedistributionReport) -> Self {
        let of = |pass| row.traffic.of(pass).as_ref().map(TrafficAnswer::of);
        let [from, to] = row.texts.clone();
        Self {
            value: row.value.clone(),
            at: row.consumer.clone(),
            from,
            to,
            forward: of(Pass::Forward).unwrap_or_default(),
            backward: of(Pass::Backward),
            update: of(Pass::Update),
            by_step: row.steps.iter().map(StepAnswer::of).collect(),
        }
    }
}

impl StepAnswer {
    fn of(step: &StepReport) -> Self {
        Self {
            pass: step.pass.as_str(),
            op: step.op.as_str(),
            axes: owned(step.over.axes()),
            meshes: owned(step.over.meshes()),
            group: step.group.clone(),
            received_bytes: step.traffic.received_bytes,
            cost_us: step.traffic.cost_us,
        }
    }
}
