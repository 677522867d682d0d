//! `reshard step`: a training step on random numbers by all ranks, on threads or processes, compared with one
//! device.
//!
//! ```text
//! relative error of a value = max |ranks - one device| / max(its largest element, LEAST * the largest element of all values)
//! verified                    the error of every value is within the tolerance of the dtype
//!                             (with communication dtypes: that of the same program without them)
//! ```
//!
//! Inputs of real numbers are in (-1, 1), truth values 0 or 1, and indices below the largest size of a dim
//! that they can index without an error. They depend on the seed, the name and the index, and on nothing
//! else.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use reshard_draw::{Limits, Page, Section, chrome_trace, timeline};
use reshard_layout::internal::counted;
use reshard_ops::rules::OpTable;
use reshard_program::schedule::{CompileOptions, Schedule, Timeline};
use reshard_program::{ComputeRates, Graph, ImplicitRedistribution, Program, Statement};
use reshard_reference::{Number, Ranks, Values, on_ranks, timed};
use serde::Serialize;

use super::arguments::Format;
use super::console::{Console, WIDEST};
use super::error::CliError;
use super::network::TopologyArg;
use super::pictures::{self, PictureArgs};
use super::program::{
    AxesArg, BucketArg, Elaborated, FileArg, GatherArg, HoistArg, MemoryArg, OrderArg, OverlapArg, Reading,
    options,
};
use super::run::EngineName;
use super::step_inputs::on_random_numbers;
use super::trace::{Time, within_pairs};

/// The most ranks: each is a thread.
const MOST_RANKS: usize = 64;
/// The most elements of all values, on all ranks and on one device: 128 MiB in f64.
const MOST_ELEMENTS: f64 = 16_777_216.0;
/// The most operations, on all ranks and on one device: the reference takes some 20 ns for each.
const MOST_OPERATIONS: f64 = 268_435_456.0;
/// The floor of relative errors: this part of the largest number of all values, for values below it.
const LEAST: f64 = 1e-2;
/// Arguments of `reshard step`.
#[derive(Debug, Args)]
#[command(
    mut_arg("draw", |arg| arg.help("Draw the measured timeline of all ranks as text, in colour on a terminal")),
    mut_arg("svg", |arg| arg.help("Write the measured timeline of all ranks to this file as SVG"))
)]
pub(crate) struct StepArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    #[command(flatten)]
    in_flight_bytes: HoistArg,
    #[command(flatten)]
    bucket_bytes: BucketArg,
    #[command(flatten)]
    order: OrderArg,
    /// Measure the time that each rank computes, exchanges and waits, in microseconds, and compare it with
    /// the cost model
    #[arg(long)]
    time: bool,
    /// Write the measured timeline of all ranks to this file, in Chrome's trace format
    #[arg(long, value_name = "FILE")]
    pub(crate) chrome_trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pictures: PictureArgs,
    #[command(flatten)]
    axes: AxesArg,
    #[command(flatten)]
    max_memory_bytes: MemoryArg,
    #[command(flatten)]
    reshard_after_forward: GatherArg,
    #[command(flatten)]
    overlap_chunks: OverlapArg,
    #[command(flatten)]
    topology: TopologyArg,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 0, value_parser = crate::whole::whole::<u64>, allow_negative_numbers = true)]
    seed: u64,
    /// Dtype of all real numbers; the tolerance is 1e-10 for f64 and 1e-4 for f32
    #[arg(long, value_enum, default_value_t = Precision::F64)]
    dtype: Precision,
    /// Run ranks as threads of this process, or as processes of an MPI job
    #[arg(long, value_enum, default_value_t)]
    engine: EngineName,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The precision of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Precision {
    F64,
    F32,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    /// The loss; null in JSON if it is not a finite number, like every error here.
    loss: f64,
    loss_one_device: f64,
    gradients: Vec<Compared>,
    /// The value of the program that is furthest off, and how many there are.
    worst: Compared,
    /// The worst value with communication dtypes, relative to its own largest number.
    ///
    /// `worst` is then without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    wires: Option<Compared>,
    values: usize,
    tolerance: f64,
    ranks: usize,
    received_bytes: u64,
    seed: u64,
    pub(crate) verified: bool,
    /// The times of each rank, if they were requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    times_us: Vec<Times>,
    #[serde(skip)]
    clocked: Option<Clocked>,
}

/// The times of a rank.
#[derive(Debug, Serialize)]
struct Times {
    rank: usize,
    measured: Time,
    model: Time,
}

/// A measured run, and the modelled times of the ranks.
#[derive(Debug)]
struct Clocked {
    schedules: Vec<Schedule>,
    measured: Timeline,
    model: Timeline,
}

impl Clocked {
    fn times(&self) -> Vec<Times> {
        let Clocked { schedules, measured, model } = self;
        let of = |schedule: &Schedule| {
            let rank = schedule.rank();
            let [measured, model] = [measured, model].map(|timeline| Time::of(schedules, timeline, rank));
            Times { rank, measured, model }
        };
        schedules.iter().map(of).collect()
    }
}

/// The relative error of a value.
#[derive(Clone, Debug, Default, Serialize)]
struct Compared {
    name: String,
    relative_error: f64,
}

/// The ranks that execute a program.
pub(crate) trait Job {
    /// The number of ranks, if it is fixed.
    fn size(&self) -> Option<usize>;

    /// Runs a program on the ranks.
    fn carry_out<T: Number>(&mut self, program: &Program, inputs: &Values<T>) -> Result<Ranks<T>, CliError>;
}

/// Each on a thread of this process.
struct Threads;

impl Job for Threads {
    fn size(&self) -> Option<usize> {
        None
    }

    fn carry_out<T: Number>(&mut self, program: &Program, inputs: &Values<T>) -> Result<Ranks<T>, CliError> {
        Ok(on_ranks(program, inputs)?)
    }
}

/// Answers; a step that is not verified ends with status 1.
pub(crate) fn run(args: &StepArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    if args.is_timed() && args.engine != EngineName::Threads {
        return Err(CliError::refused(
            "no_such_engine",
            "times are measured with `--engine threads` only; drop `--engine`, or drop `--time`, `--draw`, `--svg` and `--chrome-trace`",
        ));
    }
    match args.engine {
        EngineName::Threads => {
            let answer = answer(args, console, &mut Threads)?;
            say(args, &answer, console)
        }
        #[cfg(feature = "mpi")]
        EngineName::Mpi => super::step_mpi::run(args, console),
        #[cfg(not(feature = "mpi"))]
        EngineName::Mpi => Err(super::no_mpi::no_mpi()),
        EngineName::Cuda | EngineName::Nccl => Err(CliError::refused(
            "no_such_engine",
            "`reshard step` computes in host memory; use `--engine threads` or `--engine mpi`",
        )),
    }
}

impl StepArgs {
    /// Returns `true` if times are requested.
    fn is_timed(&self) -> bool {
        self.time || self.chrome_trace.is_some() || self.pictures.are_asked()
    }
}

/// Makes the page of measured and modelled times.
///
/// The second result is the verdict if the step is not verified.
pub(crate) fn page(args: &StepArgs, console: &mut Console<'_>) -> Result<(Page, Option<String>), CliError> {
    if args.engine != EngineName::Threads {
        return Err(CliError::refused(
            "no_such_engine",
            "times are measured with `--engine threads` only; drop `--engine`",
        ));
    }
    let answer = answer_timed(args, console, &mut Threads, true)?;
    let mut page = Page::new(format!("Run of a program on {}", counted(answer.ranks, "rank", "ranks")));
    page.words = answer.text().lines().map(str::to_owned).collect();
    if let Some(Clocked { schedules, measured, model }) = &answer.clocked {
        for (title, times) in [("Measured, on threads", measured), ("Predicted by the cost model", model)] {
            page = page.with(Section::new(title, vec![timeline(times, schedules, Limits::USUAL)]));
        }
    }
    Ok((page, (!answer.verified).then(|| answer.verdict())))
}

/// Runs a step on these ranks.
pub(crate) fn answer<J: Job>(
    args: &StepArgs,
    console: &mut Console<'_>,
    job: &mut J,
) -> Result<Answer, CliError> {
    answer_timed(args, console, job, args.is_timed())
}

fn answer_timed<J: Job>(
    args: &StepArgs,
    console: &mut Console<'_>,
    job: &mut J,
    is_timed: bool,
) -> Result<Answer, CliError> {
    let text = args.file.read(console)?;
    let table = Arc::new(OpTable::standard());
    let StepArgs { axes, max_memory_bytes, reshard_after_forward, overlap_chunks, topology, .. } = args;
    let with = Reading {
        axes,
        memory: *max_memory_bytes,
        gather: *reshard_after_forward,
        overlap_chunks: *overlap_chunks,
        topology,
    };
    let elaborated = Elaborated::of(&table, &text, ImplicitRedistribution::Allow, with)?;
    let Elaborated { graph, program, plain, rates, .. } = &elaborated;
    let plain = plain.as_ref().unwrap_or(program);
    within_limits(program)?;
    if is_timed {
        within_pairs(program)?;
    }
    let exact = graph.without_comm_dtypes().map(|graph| {
        let axes = &AxesArg::default();
        Elaborated::of(&table, &graph.to_string(), ImplicitRedistribution::Allow, Reading { axes, ..with })
    });
    let exact = exact.transpose()?.map(|exact| exact.program);
    let clock = is_timed.then(|| (options(args.in_flight_bytes, args.bucket_bytes, args.order), rates));
    let clock = clock.as_ref();
    let world = program.mesh().world_size();
    if let Some(size) = job.size().filter(|&size| size != world) {
        let message = format!(
            "the job has {size}, but the mesh `{}` needs {world}; start {world} processes",
            program.mesh(),
            size = counted(size, "rank", "ranks")
        );
        return Err(CliError::refused("world", message));
    }
    match args.dtype {
        Precision::F64 => {
            step::<f64, J>(graph, [plain, program], exact.as_ref(), args.seed, 1e-10, job, clock)
        }
        Precision::F32 => {
            step::<f32, J>(graph, [plain, program], exact.as_ref(), args.seed, 1e-4, job, clock)
        }
    }
}

/// Prints an answer.
pub(crate) fn say(args: &StepArgs, answer: &Answer, console: &mut Console<'_>) -> Result<(), CliError> {
    if let Some(Clocked { schedules, measured, .. }) = &answer.clocked {
        if let Some(path) = &args.chrome_trace {
            pictures::write(path, &chrome_trace(measured, schedules))?;
        }
        let scene = || Ok(timeline(measured, schedules, Limits::USUAL));
        args.pictures.show(scene, args.format.json, console)?;
    }
    if args.format.json {
        console.print_json(answer)?;
    } else {
        console.print(&answer.text())?;
    }
    if answer.verified { Ok(()) } else { Err(CliError::told(1)) }
}

fn within_limits(program: &Program) -> Result<(), CliError> {
    let too_large = |what: String| Err(CliError::refused("too_large", what));
    let ranks = program.mesh().size();
    if ranks > MOST_RANKS {
        return too_large(format!(
            "the mesh `{}` has {ranks} ranks, and a step runs at most {MOST_RANKS}, one per thread; give smaller axis sizes with `--axes`",
            program.mesh()
        ));
    }
    let product = |shape: &[usize]| shape.iter().map(|&n| n as f64).product::<f64>();
    let elements: f64 = (program.values().iter())
        .map(|v| product(v.shape()) + v.ty.value.mesh().size() as f64 * v.ty.value.max_local_numel() as f64)
        .sum();
    if elements > MOST_ELEMENTS {
        return too_large(format!(
            "the step needs {elements} elements on all ranks, more than the limit of {MOST_ELEMENTS}; make its dims smaller"
        ));
    }
    let operations: f64 = (program.statements().iter())
        .map(|item| match item {
            Statement::Op { op, operations, .. } => op.operations() + ranks as f64 * operations,
            Statement::Input(_) | Statement::Redistribute { .. } | Statement::NoGrad => 0.0,
        })
        .sum();
    if operations > MOST_OPERATIONS {
        return too_large(format!(
            "the step needs {operations} operations on all ranks, more than the limit of {MOST_OPERATIONS}; make its dims smaller"
        ));
    }
    Ok(())
}

/// Runs a program on ranks, and the untransformed program on one device, and compares them.
///
/// With communication dtypes, `exact` is the program without them, and it is compared instead.
fn step<T: Number + Into<f64>, J: Job>(
    graph: &Graph,
    [plain, program]: [&Program; 2],
    exact: Option<&Program>,
    seed: u64,
    tolerance: f64,
    job: &mut J,
    clock: Option<&(CompileOptions, &ComputeRates)>,
) -> Result<Answer, CliError> {
    // The last gradient: earlier ones may be part of its loss.
    let Some((loss, _)) = graph.gradients().last() else {
        let message = "the program has no `gradient` statement; add one, such as `gradient loss`";
        return Err(CliError::refused("no_gradient", message));
    };
    let (inputs, whole) = on_random_numbers::<T>(plain, seed)?;
    let ranks = job.carry_out(program, &inputs)?;
    let clocked = clock.map(|(options, rates)| clocked(program, &inputs, options, rates)).transpose()?;
    let beside = |program: &Program, ranks: &Ranks<T>| {
        let mut numbers: Vec<(&str, Vec<f64>, Vec<f64>)> = Vec::with_capacity(whole.len());
        for (name, expected) in whole.iter().filter(|(name, _)| program.value(name).is_some()) {
            let found = of(ranks, name)?;
            numbers.push((name.as_str(), expected.iter().map(|&x| x.into()).collect(), found));
        }
        Ok::<_, CliError>(numbers)
    };
    let through = beside(program, &ranks)?;
    let exactly = exact.map(|exact| beside(exact, &job.carry_out(exact, &inputs)?)).transpose()?;
    let numbers = exactly.as_ref().unwrap_or(&through);
    let largest = |list: &[f64]| list.iter().filter(|x| x.is_finite()).fold(0.0f64, |a, x| a.max(x.abs()));
    let least = LEAST * numbers.iter().map(|(_, expected, _)| largest(expected)).fold(0.0, f64::max);
    let compared = |(name, expected, found): &(&str, Vec<f64>, Vec<f64>), least: f64| {
        let scale = largest(expected).max(least).max(f64::MIN_POSITIVE);
        let errors = expected.iter().zip(found).map(|(a, b)| off(*a, *b) / scale);
        // If one of two is NaN, NaN is the greater.
        let relative_error =
            errors.fold(0.0, |a: f64, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) });
        Compared { name: (*name).to_owned(), relative_error }
    };
    let worst_of =
        |all: &[Compared]| all.iter().max_by(|a, b| a.relative_error.total_cmp(&b.relative_error)).cloned();
    let all: Vec<Compared> = numbers.iter().map(|value| compared(value, least)).collect();
    let worst = worst_of(&all);
    // Relative to its own largest number: a value that rounds to zero has an error of 1.
    let wires = exactly
        .as_ref()
        .and_then(|_| worst_of(&through.iter().map(|value| compared(value, 0.0)).collect::<Vec<_>>()));
    let is_within = |value: &Compared| value.relative_error <= tolerance;
    // The rounding of communication dtypes is the program's choice; only a non-finite error fails the step.
    let verified =
        all.iter().all(is_within) && wires.as_ref().is_none_or(|worst| worst.relative_error.is_finite());
    let asked = graph.gradients().flat_map(|(_, list)| list);
    let gradients = asked.filter_map(|(_, d)| all.iter().find(|v| v.name == graph.name(d)).cloned());
    let name = graph.name(loss);
    let (_, expected, found) = (through.iter().find(|(of, _, _)| *of == name))
        .ok_or_else(|| CliError::failed("internal", format!("{name} was not computed")))?;
    let one_device: f64 = expected.iter().sum();
    if !one_device.is_finite() {
        let message = format!(
            "`{name}` is {one_device} for random inputs in (-1, 1); avoid roots and logarithms of negative numbers, or try another `--seed`"
        );
        return Err(CliError::refused("not_finite", message));
    }
    Ok(Answer {
        loss: found.iter().sum(),
        loss_one_device: one_device,
        gradients: gradients.collect(),
        worst: worst.unwrap_or_default(),
        wires,
        values: all.len(),
        tolerance,
        ranks: program.mesh().size(),
        received_bytes: ranks.received_bytes(),
        seed,
        verified,
        times_us: clocked.as_ref().map_or_else(Vec::new, Clocked::times),
        clocked,
    })
}

/// Runs the schedules of all ranks on threads, with a clock.
fn clocked<T: Number>(
    program: &Program,
    inputs: &Values<T>,
    options: &CompileOptions,
    rates: &ComputeRates,
) -> Result<Clocked, CliError> {
    let run = timed(program, inputs, options)?;
    let (measured, model) = (run.timeline()?, Timeline::of(&run.schedules, rates)?);
    Ok(Clocked { schedules: run.schedules, measured, model })
}

/// Assembles a value from its shards; if replicas differ, the step has failed.
fn of<T: Number + Into<f64>>(ranks: &Ranks<T>, name: &str) -> Result<Vec<f64>, CliError> {
    let whole = ranks.whole(name).map_err(|error| CliError::failed("verification", error.to_string()))?;
    Ok(whole.iter().map(|&x| x.into()).collect())
}

/// Returns the difference of two numbers; equal infinities, and two NaNs, have the difference 0.
#[expect(clippy::float_cmp, reason = "infinities have no difference")]
fn off(a: f64, b: f64) -> f64 {
    if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() }
}

impl Answer {
    /// Returns a line with the verdict and the value of the largest error.
    fn verdict(&self) -> String {
        let Answer { worst, values, tolerance, verified, .. } = self;
        let verdict = if *verified { "verified" } else { "NOT verified" };
        format!(
            "{verdict}: {values}, largest relative error {:.1e} (in {}), tolerance {tolerance:.0e}",
            worst.relative_error,
            worst.name,
            values = counted(values, "value", "values")
        )
    }

    fn text(&self) -> String {
        let Answer { loss, loss_one_device, gradients, wires, ranks, .. } = self;
        let width = gradients.iter().map(|g| g.name.chars().count()).max().unwrap_or(0).min(WIDEST);
        let mut text = format!(
            "loss {loss} on {ranks}, {loss_one_device} on one device\n",
            ranks = counted(ranks, "rank", "ranks")
        );
        for Compared { name, relative_error } in gradients {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name:width$}   relative error {relative_error:.1e}");
        }
        let _ = writeln!(text, "{}", self.verdict());
        if let Some(Compared { name, relative_error }) = wires {
            let _ = writeln!(
                text,
                "this is without communication dtypes; with them the largest error is {relative_error:.1e} of the largest element (in {name})"
            );
        }
        if let Some(Times { measured, model, .. }) = self.times_us.first() {
            let (run, model) = (measured.total, model.total);
            let _ = writeln!(
                text,
                "all ranks: {run:.1} us measured, {model:.1} us by the cost model (in brackets)"
            );
        }
        for Times { rank, measured: run, model } in &self.times_us {
            let _ = writeln!(
                text,
                "  rank {rank} computes {:.1} us ({:.1}), exchanges {:.1} us ({:.1}), {:.1} of them hidden ({:.1}), and waits {:.1} us ({:.1})",
                run.computing,
                model.computing,
                run.exchanging,
                model.exchanging,
                run.hidden,
                model.hidden,
                run.waiting,
                model.waiting
            );
        }
        text
    }
}
