//! Programs from files, from stdin or from requests: the part that `check`, `step` and `trace` share.

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
use serde::Deserialize;

use super::console::Console;
use super::error::CliError;
use super::network::{self, TopologyArg};
use super::required;

/// The most statements of a program that the command line takes: elaboration looks at many ways for each.
const MOST_STATEMENTS: usize = 1 << 13;

/// FILE.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub(crate) struct FileArg {
    /// The program: a file, or - for stdin; `mesh dp=2,tp=2` and then a statement a line (docs/programs.md)
    file: Option<PathBuf>,
}

/// `--axes`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct AxesArg {
    /// Other sizes of axes of the program's first mesh, like dp=8: what holds for one size may not for another
    #[arg(long)]
    axes: Option<String>,
}

/// `--memory-bytes`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct MemoryArg {
    /// The most bytes at hand at a time on a rank: backward makes again what does not fit, in the least time
    #[arg(long)]
    memory_bytes: Option<u64>,
}

/// `--gather-again`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct GatherArg {
    /// Gather parameters for forward and again for backward, in place of keeping the copies
    #[arg(long)]
    gather_again: bool,
}

/// `--pieces`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct PiecesArg {
    /// Moves, and the ops that take what they make, in so many pieces, where that can be: one piece travels while another is computed
    #[arg(long)]
    pieces: Option<usize>,
}

/// `--hoist-bytes`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct HoistArg {
    /// Begin moves early and end them where what they make is taken, with at most so many bytes in flight
    #[arg(long, default_value_t = 0)]
    hoist_bytes: u64,
}

/// `--bucket-bytes`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct BucketArg {
    /// Moves that do the same steps over the same groups are one exchange, of at most so many bytes of sources and targets
    #[arg(long, default_value_t = 0)]
    bucket_bytes: u64,
}

/// `--order`.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct OrderArg {
    /// The order of calls: written, or 1f1b, in which each microbatch goes backward as soon as it can and few are in flight
    #[arg(long, value_enum, default_value = "written")]
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

/// How a program is compiled.
pub(crate) fn options(hoist: HoistArg, bucket: BucketArg, order: OrderArg) -> CompileOptions {
    let (hoist_bytes, bucket_bytes, NamedOrder(order)) =
        (hoist.hoist_bytes, bucket.bucket_bytes, order.order);
    CompileOptions { in_flight_bytes: hoist_bytes, bucket_bytes, order, ..CompileOptions::default() }
}

/// What a program is read with, beside its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'a> {
    pub(crate) axes: &'a AxesArg,
    pub(crate) memory: MemoryArg,
    pub(crate) gather: GatherArg,
    pub(crate) pieces: PiecesArg,
    pub(crate) topology: &'a TopologyArg,
}

impl Reading<'_> {
    /// Whether anything is to be made again or to come in pieces.
    fn has_passes(&self) -> bool {
        self.gather.gather_again || self.pieces.pieces.is_some() || self.memory.memory_bytes.is_some()
    }
}

impl FileArg {
    /// Whether it is stdin, which only one process has.
    #[cfg(feature = "mpi")]
    pub(crate) fn is_stdin(&self) -> bool {
        self.file.as_deref() == Some(Path::new("-"))
    }

    /// The text, which is read once.
    pub(crate) fn read(&self, console: &mut Console<'_>) -> Result<String, CliError> {
        let file = required("file", self.file.as_deref())?;
        let read = if file == Path::new("-") { of_stdin(console) } else { read_text(file) };
        // Some editors begin a file with a mark of its encoding.
        let unmarked = |text: String| text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
        read.map(unmarked).map_err(|error| {
            CliError::refused("io", format!("the program {} cannot be read: {error}", file.display()))
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

/// A program that was read and elaborated.
pub(crate) struct Elaborated {
    pub(crate) graph: Graph,
    pub(crate) program: Program,
    /// Before values were made again and moves came in pieces, where they do.
    pub(crate) plain: Option<Program>,
    pub(crate) rates: ComputeRates,
    /// What it was elaborated by.
    pub(crate) elaborator: ShardingSolver,
}

impl Elaborated {
    /// Reads a text of the standard ops and chooses what it does not say.
    pub(crate) fn of(
        table: &Arc<OpTable>,
        text: &str,
        moves: ImplicitRedistribution,
        with: Reading<'_>,
    ) -> Result<Elaborated, CliError> {
        let sizes = with.axes.axes.as_deref().map_or_else(|| Ok(Vec::new()), sizes)?;
        // At least one of four lines is a statement: others are meshes, repeat and end. What is far too long need not be read.
        within_limit(text.lines().filter(|line| is_written(line)).count() / 4)?;
        let graph = Graph::parse_with_axes(Arc::clone(table), text, &sizes)?;
        within_limit(graph.statements())?;
        let topology = network::topology(with.topology.name().unwrap_or("uniform"))?;
        let rates = ComputeRates::for_topology(&topology);
        let planner = Planner::new().topology(topology);
        let elaborator = ShardingSolver::new().planner(planner).rates(rates).implicit_redistribution(moves);
        let mut program = elaborator.solve(&graph)?;
        if moves != ImplicitRedistribution::Allow
            && let Some((axes, error)) = hidden(table, text, &sizes, &graph, &elaborator)
        {
            let message = format!("with one rank it is right, and wrong with {axes}: {error}");
            return Err(CliError::refused(error.code(), message));
        }
        let plain = with.has_passes().then(|| program.clone());
        if with.gather.gather_again {
            program = program.rematerialize(&program.gathered_parameters())?;
        }
        if let Some(pieces) = with.pieces.pieces {
            within_limit(program.redistributions().count().saturating_mul(pieces))?;
            program = program.overlap_all(pieces, &elaborator)?;
            within_limit(program.statements().len())?;
        }
        if let Some(limit) = with.memory.memory_bytes {
            program = program.rematerialize_to_fit(limit, &rates)?;
        }
        Ok(Elaborated { graph, program, plain, rates, elaborator })
    }
}

/// Whether a line says something.
fn is_written(line: &str) -> bool {
    !line.trim_start().starts_with('#') && !line.trim().is_empty()
}

fn within_limit(statements: usize) -> Result<(), CliError> {
    if statements <= MOST_STATEMENTS {
        return Ok(());
    }
    let message = format!(
        "a program has at most {MOST_STATEMENTS} statements here, and this has {statements} or more: check fewer of its equal layers"
    );
    Err(CliError::refused("too_large", message))
}

/// What is missing where axes of one rank have two, and hidden as long as they have one.
fn hidden(
    table: &Arc<OpTable>,
    text: &str,
    sizes: &[(&str, usize)],
    graph: &Graph,
    elaborator: &ShardingSolver,
) -> Option<(String, Error)> {
    let mesh = graph.mesh();
    let alone: Vec<&str> = mesh.axes().iter().filter(|a| a.size() == 1).map(|a| a.name().as_str()).collect();
    if alone.is_empty() {
        return None;
    }
    let kept = sizes.iter().copied().filter(|(name, _)| !alone.contains(name));
    let widened: Vec<(&str, usize)> = kept.chain(alone.iter().map(|&name| (name, 2))).collect();
    // Where types name sizes of shards they are for these axes alone.
    let graph = Graph::parse_with_axes(Arc::clone(table), text, &widened).ok()?;
    let error = elaborator.solve(&graph).err()?;
    let axes: Vec<String> = alone.iter().map(|name| format!("{name}=2")).collect();
    matches!(error, Error::NeedsRedistribute { .. }).then(|| (axes.join(","), error))
}

/// `dp=8,tp=2`.
fn sizes(text: &str) -> Result<Vec<(&str, usize)>, CliError> {
    let size = |part| -> Option<(&str, usize)> {
        let (name, size) = str::split_once(part, '=')?;
        Some((name.trim(), size.trim().parse().ok()?))
    };
    let wrong = |part| CliError::refused("parse", format!("{part:?} is no size of an axis: write dp=8"));
    let sizes: Vec<(&str, usize)> =
        text.split(',').map(|part| size(part).ok_or_else(|| wrong(part))).collect::<Result<_, _>>()?;
    for (at, (name, _)) in sizes.iter().enumerate() {
        if sizes[..at].iter().any(|(known, _)| known == name) {
            return Err(CliError::refused(
                "parse",
                format!("axis {name} has two sizes in {text:?}: give it one"),
            ));
        }
    }
    Ok(sizes)
}
