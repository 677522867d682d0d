//! `reshard calibrate`: a network profile from measured times of collectives, and its error on others.

mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use reshard_calibrate::{Check, Error, Filter, Options, Report, Table, calibrate};
use reshard_checkpoint::read_text;
use serde::Serialize;

use super::arguments::Format;
use super::console::Console;
use super::error::CliError;
use super::network::{self, TopologyArg};
use super::pictures;

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
    /// Write the profile to this TOML file
    #[arg(long, value_name = "PROFILE", requires = "from", conflicts_with = "check")]
    write: Option<PathBuf>,
    /// Compare this table with the network of --topology
    #[arg(long, value_name = "TABLE", conflicts_with = "from", requires = "topology")]
    check: Option<PathBuf>,
    #[command(flatten)]
    topology: TopologyArg,
    /// Use only lines with this value, like dtype=f16; may be repeated
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = condition)]
    conditions: Vec<(String, String)>,
    /// Ranks in a node [default: the most that a group of several nodes has in each]
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
    /// Program and version that measured [default: the name of the table]
    #[arg(long, value_name = "TEXT", conflicts_with = "check")]
    measured_by: Option<String>,
    /// Day of the measurement, like 2026-11-28
    #[arg(long, conflicts_with = "check")]
    date: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The answer to `--from`.
#[derive(Debug, Serialize)]
struct Calibrated<'a> {
    written: String,
    #[serde(flatten)]
    report: &'a Report,
}

/// Writes a profile, or prints the errors of a network.
pub(crate) fn run(args: &CalibrateArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    match (&args.from, &args.write, &args.check) {
        (Some(from), Some(write), None) => make(args, from, write, console),
        (None, None, Some(check)) => judge(args, check, console),
        _ => Err(CliError::refused(
            "usage",
            "expected `--from` with `--write`, or `--check` with `--topology` (see --help)",
        )),
    }
}

/// Makes a profile.
fn make(args: &CalibrateArgs, from: &Path, to: &Path, console: &mut Console<'_>) -> Result<(), CliError> {
    let table = table(args, from)?;
    let defaults = Options::new(args.measured_by.clone().unwrap_or_else(|| name(from.file_name())));
    let options = Options {
        name: Some(args.name.clone().unwrap_or_else(|| name(to.file_stem()))),
        date: args.date.clone(),
        node_ranks: args.levels,
        between_nodes: args.between_nodes.unwrap_or(defaults.between_nodes),
        thin: args.thin,
        ..defaults
    };
    let (profile, report) = calibrate(&table, &options).map_err(|error| of_table(from, error))?;
    pictures::write(to, &profile.to_string())?;
    if args.format.json {
        console.print_json(&Calibrated { written: to.display().to_string(), report: &report })
    } else {
        console.print(&text::of_report(&report))
    }
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

/// Parses a latency in microseconds and a rate in GB/s.
fn latency_and_rate(text: &str) -> Result<(f64, f64), String> {
    // The ranges of the planner.
    let latency = |part: &str| part.parse().ok().filter(|us| (0.0..=1e9).contains(us));
    let rate = |part: &str| part.parse().ok().filter(|rate| (1e-6..=1e9).contains(rate));
    let parts = text.split_once(':').and_then(|(us, of)| Some((latency(us)?, rate(of)?)));
    parts.ok_or_else(|| "expected microseconds and GB/s, such as 10:45".to_owned())
}
