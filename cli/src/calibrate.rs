//! `reshard calibrate`: a network profile from measured times of collectives, and its error on others.

mod date;
mod measure;
#[cfg(feature = "mpi")]
mod mpi;
mod text;
mod threads;

use std::path::{Path, PathBuf};

use clap::Args;
use reshard_calibrate::{
    Check, Error, Filter, Options, Report, SampleOptions, Sampled, Table, Unsettled, calibrate,
};
use reshard_checkpoint::read_text;
use reshard_layout::internal::counted;
use serde::Serialize;

use super::arguments::Format;
use super::console::Console;
use super::error::CliError;
use super::network::{self, TopologyArg};
use super::pictures;
use super::run::EngineName;

/// Help of `--topology` in this subcommand.
const TOPOLOGY: &str =
    "Network to compare with the table: uniform, h100, a100, b200, h100-lines, or a TOML file";

/// Arguments of `reshard calibrate`.
#[derive(Debug, Args)]
#[command(mut_arg("topology", |arg| arg.help(TOPOLOGY)))]
pub(crate) struct CalibrateArgs {
    /// Make a profile of this table: a JSON object per line, with collective, nodes, ranks, bytes and us
    #[arg(long, value_name = "TABLE", requires = "write", conflicts_with = "topology")]
    from: Option<PathBuf>,
    /// Measure collectives on this engine: threads, or the processes of an MPI job
    #[arg(long, value_enum, requires = "write", conflicts_with_all = ["from", "check", "topology", "conditions"])]
    engine: Option<EngineName>,
    /// Ranks to measure on [default: the CPUs, at least 2; with mpi the job]
    #[arg(long, value_name = "N", requires = "engine", value_parser = ranks, allow_negative_numbers = true)]
    world: Option<usize>,
    /// Greatest size to measure, like 512KiB or 1GiB [default: 64MiB]
    #[arg(long, value_name = "SIZE", requires = "engine", value_parser = size)]
    most_bytes: Option<u64>,
    /// Limit the time of all samples; sizes that are left then are not measured [default: 60]
    #[arg(long, value_name = "SECONDS", requires = "engine", value_parser = seconds)]
    seconds: Option<f64>,
    /// Write the measurements to this file, in the format of --from
    #[arg(long, value_name = "TABLE", requires = "engine")]
    table: Option<PathBuf>,
    /// Write the profile to this TOML file
    #[arg(long, value_name = "PROFILE", conflicts_with = "check")]
    write: Option<PathBuf>,
    /// Compare this table with the network of --topology
    #[arg(long, value_name = "TABLE", conflicts_with = "from", requires = "topology")]
    check: Option<PathBuf>,
    #[command(flatten)]
    topology: TopologyArg,
    /// Use only lines with this value, like dtype=f16; may be repeated
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = condition)]
    conditions: Vec<(String, String)>,
    /// Ranks in a node [default: the most that a group of several nodes has in each; with mpi the ranks that share
    /// memory]
    #[arg(long, value_name = "RANKS", conflicts_with = "check", value_parser = ranks, allow_negative_numbers = true)]
    levels: Option<usize>,
    /// Latency and rate between nodes if no group of several was measured [default: 10:45]
    #[arg(long, value_name = "US:GB/S", conflicts_with = "check", value_parser = latency_and_rate)]
    between_nodes: Option<(f64, f64)>,
    /// Keep the fewest sizes whose curve is this near to all, like 3% [default: keep all sizes]
    #[arg(long, value_name = "PERCENT", conflicts_with = "check", value_parser = percent)]
    thin: Option<f64>,
    /// Name of the profile [default: that of its file]
    #[arg(long, conflicts_with = "check")]
    name: Option<String>,
    /// Program and version that measured [default: the name of the table, or the engine]
    #[arg(long, value_name = "TEXT", conflicts_with = "check")]
    measured_by: Option<String>,
    /// Day of the measurement, like 2026-11-28 [default with --engine: today]
    #[arg(long, conflicts_with = "check")]
    date: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The answer to `--from` and `--engine`.
#[derive(Debug, Serialize)]
struct Calibrated<'a> {
    written: String,
    /// Points whose time is uncertain or unknown; `None` for a table that existed.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsettled: Option<&'a [Unsettled]>,
    #[serde(flatten)]
    report: &'a Report,
}

/// Writes a profile, or prints the errors of a network.
pub(crate) fn run(args: &CalibrateArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    match (&args.from, args.engine, &args.write, &args.check) {
        (Some(from), None, Some(write), None) => make(args, from, write, console),
        (None, Some(engine), Some(write), None) => measured(args, engine, write, console),
        (None, None, None, Some(check)) => judge(args, check, console),
        _ => Err(CliError::refused(
            "usage",
            "expected `--from` or `--engine` with `--write`, or `--check` with `--topology` (see --help)",
        )),
    }
}

/// Makes a profile of a table.
fn make(args: &CalibrateArgs, from: &Path, to: &Path, console: &mut Console<'_>) -> Result<(), CliError> {
    let table = table(args, from)?;
    let options = args.options(to, Options::new(name(from.file_name())));
    let report = write(&table, &options, to, |error| of_table(from, error))?;
    answer(args, to, &report, None, console)
}

/// Measures on an engine, and makes a profile of that.
fn measured(
    args: &CalibrateArgs,
    engine: EngineName,
    to: &Path,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    // Before a minute of measuring.
    for path in args.table.iter().map(PathBuf::as_path).chain([to]) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            let message = format!("{} cannot be written: its folder does not exist", path.display());
            return Err(CliError::refused("io", message));
        }
    }
    match engine {
        EngineName::Threads => {
            let options = args.samples(args.world.unwrap_or_else(|| cpus().max(2)), args.levels);
            let sampled = threads::run(&options, console.progress)?;
            conclude(args, engine, &options, &sampled, to, console)
        }
        #[cfg(feature = "mpi")]
        EngineName::Mpi => mpi::run(args, to, console),
        #[cfg(not(feature = "mpi"))]
        EngineName::Mpi => Err(super::no_mpi::no_mpi()),
        EngineName::Cuda | EngineName::Nccl => Err(CliError::refused(
            "no_such_engine",
            "`reshard calibrate` measures in host memory; use `--engine threads` or `--engine mpi`, or `--from` with a table of nccl-tests",
        )),
    }
}

/// Writes the measurements and the profile, and prints the report; points that are not settled give status 1.
fn conclude(
    args: &CalibrateArgs,
    engine: EngineName,
    samples: &SampleOptions,
    sampled: &Sampled,
    to: &Path,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    if let Some(path) = &args.table {
        pictures::write(path, &sampled.table.to_string())?;
    }
    let (version, cpus) = (env!("CARGO_PKG_VERSION"), counted(cpus(), "CPU", "CPUs"));
    // Reductions are some 40 times slower there.
    let build = if cfg!(debug_assertions) { ", debug build" } else { "" };
    let defaults = Options {
        date: Some(date::today()),
        node_ranks: Some(samples.node_ranks).filter(|&ranks| ranks < samples.world),
        ..Options::new(format!("reshard {version}, engine {}, {cpus}{build}", engine.name()))
    };
    let options = args.options(to, defaults);
    let report =
        write(&sampled.table, &options, to, |error| CliError::failed(error.code(), error.to_string()))?;
    answer(args, to, &report, Some(&sampled.unsettled), console)?;
    if sampled.unsettled.is_empty() { Ok(()) } else { Err(CliError::told(1)) }
}

impl CalibrateArgs {
    /// Returns the options of a profile, with these defaults.
    fn options(&self, to: &Path, defaults: Options) -> Options {
        Options {
            name: Some(self.name.clone().unwrap_or_else(|| name(to.file_stem()))),
            from: self.measured_by.clone().unwrap_or(defaults.from),
            date: self.date.clone().or(defaults.date),
            node_ranks: self.levels.or(defaults.node_ranks),
            between_nodes: self.between_nodes.unwrap_or(defaults.between_nodes),
            thin: self.thin,
            for_levels: defaults.for_levels,
            compute: defaults.compute,
        }
    }

    /// Returns the options of a sampler; all ranks are in one node unless nodes have fewer.
    fn samples(&self, world: usize, node_ranks: Option<usize>) -> SampleOptions {
        let defaults = SampleOptions::new(world);
        SampleOptions {
            node_ranks: node_ranks.unwrap_or(world),
            most_bytes: self.most_bytes.unwrap_or(defaults.most_bytes),
            total_us: self.seconds.map_or(defaults.total_us, |seconds| seconds * 1e6),
            ..defaults
        }
    }
}

/// Makes a profile and writes it.
fn write(
    table: &Table,
    options: &Options,
    to: &Path,
    error: impl FnOnce(Error) -> CliError,
) -> Result<Report, CliError> {
    let (profile, report) = calibrate(table, options).map_err(error)?;
    pictures::write(to, &profile.to_string())?;
    Ok(report)
}

/// Prints a report.
fn answer(
    args: &CalibrateArgs,
    to: &Path,
    report: &Report,
    unsettled: Option<&[Unsettled]>,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    if args.format.json {
        return console.print_json(&Calibrated { written: to.display().to_string(), unsettled, report });
    }
    console.print(&(text::of_report(report) + &text::of_unsettled(unsettled.unwrap_or_default())))
}

/// Returns the number of CPUs of this process.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Compares a network with a table.
fn judge(args: &CalibrateArgs, path: &Path, console: &mut Console<'_>) -> Result<(), CliError> {
    let topology = network::topology(args.topology.name().unwrap_or("uniform"))?;
    let table = table(args, path)?;
    let check = Check::of(&table, &topology).map_err(|error| of_table(path, error))?;
    if args.format.json { console.print_json(&check) } else { console.print(&text::of_check(&check)) }
}

fn table(args: &CalibrateArgs, path: &Path) -> Result<Table, CliError> {
    let text = read_text(path).map_err(|error| {
        CliError::refused("table", format!("the table `{}` cannot be read: {error}", path.display()))
    })?;
    let filter = Filter { conditions: args.conditions.clone() };
    Table::parse(&text, &filter).map_err(|error| of_table(path, error))
}

/// Returns the error of a table, with its path.
fn of_table(path: &Path, error: Error) -> CliError {
    if let Error::Planner(error) = error {
        return error.into();
    }
    // The text of a line begins with its number, any other with a verb.
    let colon = if matches!(error, Error::Line { .. }) { ":" } else { "" };
    CliError::refused(error.code(), format!("the table `{}`{colon} {error}", path.display()))
}

/// Returns the name of a file.
fn name(of: Option<&std::ffi::OsStr>) -> String {
    of.unwrap_or_default().to_string_lossy().into_owned()
}

/// Parses a condition on lines.
fn condition(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as dtype=f16")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses a distance of at most 100 percent, with or without the sign.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    let share = number.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent: f64| percent / 100.0);
    share.ok_or_else(|| "expected a number from 0 to 100, such as 3%".to_owned())
}

/// Parses the number of ranks in a node.
fn ranks(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&ranks| ranks > 1 && i32::try_from(ranks).is_ok());
    number.ok_or_else(|| format!("expected a whole number from 2 to {}", i32::MAX))
}

/// Parses a size in bytes, with or without a binary unit.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let bytes = unit.and_then(|unit: u64| digits.parse::<u64>().ok()?.checked_mul(unit));
    let bytes = bytes.filter(|bytes| (1..=1 << 40).contains(bytes));
    bytes.ok_or_else(|| "expected 1 B to 1024 GiB, such as 4096, 512KiB, 64MiB or 1GiB".to_owned())
}

/// Parses a number of seconds, at most a day.
fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|&seconds| seconds > 0.0 && seconds <= 86_400.0);
    number.ok_or_else(|| "expected a number of seconds up to 86400, such as 60".to_owned())
}

/// Parses a latency in microseconds and a rate in GB/s.
fn latency_and_rate(text: &str) -> Result<(f64, f64), String> {
    // The ranges of the planner.
    let latency = |part: &str| part.parse().ok().filter(|us| (0.0..=1e9).contains(us));
    let rate = |part: &str| part.parse().ok().filter(|rate| (1e-6..=1e9).contains(rate));
    let parts = text.split_once(':').and_then(|(us, of)| Some((latency(us)?, rate(of)?)));
    parts.ok_or_else(|| "expected microseconds and GB/s, such as 10:45".to_owned())
}
