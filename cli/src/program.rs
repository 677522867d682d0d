//! Programs from files, from stdin or from requests: the part that `check`, `step` and `trace` share.

use core::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use reshard_checkpoint::{MOST_BYTES, read_text};
use reshard_ops::rules::OpTable;
use reshard_planner::Planner;
use reshard_program::schedule::{CompileOptions, Order};
use reshard_program::{ComputeRates, Error, Graph, ImplicitRedistribution, Program, ShardingSolver};
use serde::{Deserialize, Serialize};

use super::console::Console;
use super::error::CliError;
use super::network::{self, TopologyArg};
use super::required;

/// The most statements of a program: the solver explores many candidates for each.
const MOST_STATEMENTS: usize = 1 << 13;

/// The FILE argument.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub(crate) struct FileArg {
    /// Program file, or - for stdin: a line like `mesh dp=2,tp=2`, then one statement per line
    /// (docs/programs.md)
    file: Option<PathBuf>,
}

/// `--axes`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct AxesArg {
    /// Override axis sizes of the program's first mesh, like dp=8
    #[arg(long)]
    axes: Option<String>,
}

/// `--max-memory-bytes`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct MemoryArg {
    /// Limit memory per rank to N bytes; recompute activations in backward to stay below it [default: no
    /// limit]
    #[arg(long, value_name = "N", value_parser = crate::whole::whole::<u64>, allow_negative_numbers = true)]
    max_memory_bytes: Option<u64>,
}

/// `--reshard-after-forward`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct GatherArg {
    /// Free gathered parameters after forward and gather them again in backward
    #[arg(long)]
    reshard_after_forward: bool,
}

/// `--overlap-chunks`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct OverlapArg {
    /// Split each collective and its consumer into N chunks (2 to 1024) and overlap them [default: no split]
    #[arg(long, value_name = "N", value_parser = crate::whole::whole::<usize>, allow_negative_numbers = true)]
    overlap_chunks: Option<usize>,
}

/// `--in-flight-bytes`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct HoistArg {
    /// Start communication early, with at most N bytes in flight
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::whole::whole::<u64>, allow_negative_numbers = true)]
    in_flight_bytes: u64,
}

/// `--bucket-bytes`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct BucketArg {
    /// Fuse redistributions with the same steps over the same groups, up to N bytes of sources and targets
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::whole::whole::<u64>, allow_negative_numbers = true)]
    bucket_bytes: u64,
}

/// `--order`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct OrderArg {
    /// Run calls in this order: program, or 1f1b, which runs the backward of each microbatch as early as
    /// possible
    #[arg(long, value_enum, default_value = "program")]
    order: NamedOrder,
}

/// An order by its name.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
struct NamedOrder(Order);

impl ValueEnum for NamedOrder {
    fn value_variants<'a>() -> &'a [Self] {
        &[NamedOrder(Order::Program), NamedOrder(Order::OneForwardOneBackward)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.as_str()))
    }
}

impl TryFrom<String> for NamedOrder {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse().map(Self)
    }
}

/// Collects the options of compilation.
pub(crate) fn options(hoist: HoistArg, bucket: BucketArg, order: OrderArg) -> CompileOptions {
    let (in_flight_bytes, bucket_bytes, NamedOrder(order)) =
        (hoist.in_flight_bytes, bucket.bucket_bytes, order.order);
    CompileOptions { in_flight_bytes, bucket_bytes, order, ..CompileOptions::default() }
}

/// The options with which a program is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'a> {
    pub(crate) axes: &'a AxesArg,
    pub(crate) memory: MemoryArg,
    pub(crate) gather: GatherArg,
    pub(crate) overlap_chunks: OverlapArg,
    pub(crate) topology: &'a TopologyArg,
}

impl Reading<'_> {
    /// Returns `true` if values are to be recomputed or redistributions split into chunks.
    fn has_passes(&self) -> bool {
        self.gather.reshard_after_forward
            || self.overlap_chunks.overlap_chunks.is_some()
            || self.memory.max_memory_bytes.is_some()
    }
}

impl FileArg {
    /// Returns `true` for stdin, which only one process has.
    #[cfg(feature = "mpi")]
    pub(crate) fn is_stdin(&self) -> bool {
        self.file.as_deref() == Some(Path::new("-"))
    }

    /// Reads the text; call it once.
    pub(crate) fn read(&self, console: &mut Console<'_>) -> Result<String, CliError> {
        let file = required("file", self.file.as_deref())?;
        let read = if file == Path::new("-") { of_stdin(console) } else { read_text(file) };
        // Some editors begin a file with a byte order mark.
        let unmarked = |text: String| text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
        read.map(unmarked).map_err(|error| {
            CliError::refused("io", format!("the program `{}` cannot be read: {error}", file.display()))
        })
    }
}

/// All of stdin, up to the limit of files.
fn of_stdin(console: &mut Console<'_>) -> io::Result<String> {
    let mut bytes = Vec::new();
    Read::take(&mut *console.input, MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("it is longer than {MOST_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        io::Error::other(format!("it is not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
    })
}

/// The sources of modelled times.
#[derive(Debug, Serialize)]
pub(crate) struct TimesBy {
    /// The name of the network and who measured it.
    network: String,
    /// The source of the compute rates.
    computing: String,
}

impl fmt::Display for TimesBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "times of communication by {}\ntimes of computing by {}", self.network, self.computing)
    }
}

/// A program that was read and solved.
pub(crate) struct Elaborated {
    pub(crate) graph: Graph,
    pub(crate) program: Program,
    /// The program before recomputation and overlap chunks, if there are any.
    pub(crate) plain: Option<Program>,
    pub(crate) rates: ComputeRates,
    pub(crate) times: TimesBy,
    /// The solver of the program.
    pub(crate) elaborator: ShardingSolver,
}

impl Elaborated {
    /// Reads a text with the standard ops and solves its open types.
    pub(crate) fn of(
        table: &Arc<OpTable>,
        text: &str,
        moves: ImplicitRedistribution,
        with: Reading<'_>,
    ) -> Result<Elaborated, CliError> {
        let sizes = with.axes.axes.as_deref().map_or_else(|| Ok(Vec::new()), sizes)?;
        // At least one of four lines is a statement; others are meshes, repeat and end. A text far above the
        // limit is not read.
        within_limit(text.lines().filter(|line| is_written(line)).count() / 4)?;
        let graph = Graph::parse_with_axes(Arc::clone(table), text, &sizes)?;
        within_limit(graph.statements())?;
        let topology = network::topology(with.topology.name().unwrap_or("uniform"))?;
        let rates = ComputeRates::for_topology(&topology);
        let times = TimesBy { network: topology.origin(), computing: ComputeRates::origin(&topology) };
        let planner = Planner::new().topology(topology);
        let elaborator = ShardingSolver::new().planner(planner).rates(rates).implicit_redistribution(moves);
        let mut program = elaborator.solve(&graph)?;
        let plain = with.has_passes().then(|| program.clone());
        if with.gather.reshard_after_forward {
            program = program.rematerialize(&program.gathered_parameters())?;
        }
        if let Some(overlap_chunks) = with.overlap_chunks.overlap_chunks {
            within_limit(program.redistributions().count().saturating_mul(overlap_chunks))?;
            program = program.overlap_all(overlap_chunks, &elaborator)?;
            within_limit(program.statements().len())?;
        }
        if let Some(limit) = with.memory.max_memory_bytes {
            program = program.rematerialize_to_fit(limit, &rates)?;
        }
        Ok(Elaborated { graph, program, plain, rates, times, elaborator })
    }
}

/// Returns `true` if a line has content.
fn is_written(line: &str) -> bool {
    !line.trim_start().starts_with('#') && !line.trim().is_empty()
}

fn within_limit(statements: usize) -> Result<(), CliError> {
    if statements <= MOST_STATEMENTS {
        return Ok(());
    }
    let message = format!(
        "the program has {statements} or more statements, above the limit of {MOST_STATEMENTS}; check fewer of its equal layers"
    );
    Err(CliError::refused("too_large", message))
}

/// `dp=8,tp=2`.
fn sizes(text: &str) -> Result<Vec<(&str, usize)>, CliError> {
    let size = |part| -> Option<(&str, usize)> {
        let (name, size) = str::split_once(part, '=')?;
        Some((name.trim(), size.trim().parse().ok()?))
    };
    let wrong =
        |part| CliError::refused("parse", format!("invalid axis size {part:?}; expected a form like `dp=8`"));
    let sizes: Vec<(&str, usize)> =
        text.split(',').map(|part| size(part).ok_or_else(|| wrong(part))).collect::<Result<_, _>>()?;
    for (at, (name, _)) in sizes.iter().enumerate() {
        if sizes[..at].iter().any(|(known, _)| known == name) {
            return Err(CliError::refused(
                "parse",
                format!("axis {name} has two sizes in {text:?}; give it one"),
            ));
        }
    }
    Ok(sizes)
}
