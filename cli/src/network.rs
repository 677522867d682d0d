//! What steps cost, and what to minimise: the part of a request that makes a planner.

use std::path::Path;

use clap::Args;
use reshard_checkpoint::read_text;
use reshard_planner::{Planner, SearchBudget, Topology};
use serde::Deserialize;

use super::error::CliError;

/// `--topology`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct TopologyArg {
    /// What steps cost: uniform, h100, or a TOML file with launch_us, message_us and [[levels]] [default: uniform]
    #[arg(long)]
    topology: Option<String>,
}

/// `--objective`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct ObjectiveArg {
    /// What to minimise first: time, bytes or peak [default: time]
    #[arg(long)]
    objective: Option<String>,
}

/// `--budget`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct BudgetArg {
    /// How much a search looks at before the best found so far is the answer, in units of about ten nanoseconds, or none for no limit
    /// [default: 1500000 for a plan, five times that for an op]
    #[arg(long)]
    #[serde(deserialize_with = "crate::number::as_text")]
    budget: Option<String>,
}

impl BudgetArg {
    /// What was given, if anything was.
    pub(crate) fn given(&self) -> Result<Option<SearchBudget>, CliError> {
        Ok(self.budget.as_deref().map(str::parse).transpose()?)
    }
}

/// The planner of both, each with its default.
pub(crate) fn planner(network: &TopologyArg, objective: &ObjectiveArg) -> Result<Planner, CliError> {
    Ok(Planner::new()
        .topology(topology(network.topology.as_deref().unwrap_or("uniform"))?)
        .objective(objective.objective.as_deref().unwrap_or("time").parse()?))
}

impl TopologyArg {
    /// What was given, if anything was.
    pub(crate) fn name(&self) -> Option<&str> {
        self.topology.as_deref()
    }
}

/// A profile by its name or notation, or else a file.
pub(crate) fn topology(text: &str) -> Result<Topology, CliError> {
    let is_file =
        Path::new(text).extension().is_some_and(|extension| extension == "toml") || text.contains('/');
    if !is_file {
        return Ok(text.parse()?);
    }
    let refused = |why: String| CliError::refused("topology", format!("the topology file {text} {why}"));
    let content = read_text(Path::new(text)).map_err(|error| refused(format!("cannot be read: {error}")))?;
    toml::from_str(&content).map_err(|error| refused(format!("is not a profile: {}", error.message())))
}
