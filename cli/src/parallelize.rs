//! `reshard parallelize`: chooses the open types of a training program under a memory limit.

use std::sync::Arc;

use clap::Args;
use reshard_ops::rules::OpTable;
use reshard_planner::Planner;
use reshard_program::{ComputeRates, Graph, Parallelized, Parallelizer};
use serde::Serialize;

use super::arguments::Format;
use super::console::Console;
use super::error::CliError;
use super::network::{self, TopologyArg};
use super::program::FileArg;

/// Arguments of `reshard parallelize`.
#[derive(Debug, Args)]
pub(crate) struct ParallelizeArgs {
    #[command(flatten)]
    file: FileArg,
    /// Memory of a rank, such as 80GB, 16GiB or 1000000 [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    #[command(flatten)]
    topology: TopologyArg,
    /// Print the program with all types and redistributions, itself a valid program, instead of the report
    #[arg(long, conflicts_with = "json")]
    print: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Parses a number of bytes, with a decimal or a binary unit.
fn bytes(text: &str) -> Result<u64, String> {
    let units = [
        ("TiB", 1u64 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("kB", 1_000),
        ("B", 1),
        ("", 1),
    ];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1));
    let wrong = || "expected bytes such as 80GB, 16GiB or 1000000".to_owned();
    let (whole, part) = number.trim().split_once('.').unwrap_or((number.trim(), "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(part) || part.len() > 12 {
        return Err(wrong());
    }
    let scale = 10u128.pow(part.len() as u32);
    let parsed = |text: &str| text.parse::<u128>().map_err(|_| wrong());
    let scaled = parsed(whole)?.checked_mul(scale).and_then(|whole| whole.checked_add(parsed(part).ok()?));
    let total = scaled.and_then(|scaled| scaled.checked_mul(u128::from(unit))).ok_or_else(wrong)?;
    u64::try_from(total / scale).map_err(|_| wrong())
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    time_us: f64,
    /// No assignment of the model takes less.
    bound_us: f64,
    /// The part of the time above the bound.
    gap: f64,
    peak_bytes: u64,
    memory_bytes: Option<u64>,
    types: Vec<TypeAnswer>,
    /// The typed program, with every redistribution.
    program: String,
}

#[derive(Debug, Serialize)]
struct TypeAnswer {
    name: String,
    r#type: String,
}

/// Answers the flags.
pub(crate) fn run(args: &ParallelizeArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let text = args.file.read(console)?;
    let graph = Graph::parse(Arc::new(OpTable::standard()), &text)?;
    let topology = network::topology(args.topology.name().unwrap_or("uniform"))?;
    let rates = ComputeRates::for_topology(&topology);
    let mut parallelizer = Parallelizer::new().planner(Planner::new().topology(topology)).rates(rates);
    if let Some(memory) = args.memory {
        parallelizer = parallelizer.memory(memory);
    }
    let found = parallelizer.parallelize(&graph)?;
    if args.print {
        return console.print(&found.program.to_string());
    }
    let answer = Answer::of(&found, args.memory);
    if args.format.json {
        return console.print_json(&answer);
    }
    let ranks = graph.mesh().size();
    let limit = args.memory.map_or_else(String::new, |limit| format!(" of {limit}"));
    let mut out = format!(
        "on {} ({ranks} ranks): {:.1} us a step, at least {:.1} us (gap {:.2} %), peak {} bytes{limit}\n\n",
        graph.mesh(),
        answer.time_us,
        answer.bound_us,
        answer.gap * 100.0,
        answer.peak_bytes,
    );
    let width = answer.types.iter().map(|is| is.name.len()).max().unwrap_or(0);
    for TypeAnswer { name, r#type } in &answer.types {
        out += &format!("{name:width$}  {type}\n", r#type = r#type);
    }
    console.print(&out)
}

impl Answer {
    fn of(found: &Parallelized, memory_bytes: Option<u64>) -> Answer {
        let types = found.chosen.iter();
        let types = types.map(|(name, is)| TypeAnswer { name: name.clone(), r#type: is.to_string() });
        let Parallelized { program, time_us, peak_bytes, bound_us, .. } = found;
        let gap = if *time_us > 0.0 { 1.0 - bound_us / time_us } else { 0.0 };
        Answer {
            time_us: *time_us,
            bound_us: *bound_us,
            gap,
            peak_bytes: *peak_bytes,
            memory_bytes,
            types: types.collect(),
            program: program.to_string(),
        }
    }
}
