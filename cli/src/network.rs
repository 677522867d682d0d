//! The network and the objective: the part of a request that configures a planner.

use std::path::Path;

use clap::Args;
use reshard_checkpoint::read_text;
use reshard_planner::{Planner, Profile, SearchBudget, Topology};
use serde::Deserialize;

use super::error::CliError;

/// `--topology`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct TopologyArg {
    /// Network of the cost model: uniform, h100, a100, b200, h100-lines, or a TOML file (docs/calibrate.md)
    /// [default: uniform]
    #[arg(long)]
    topology: Option<String>,
}

/// `--objective`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct ObjectiveArg {
    /// Minimise this first: time, bytes or peak [default: time]
    #[arg(long)]
    objective: Option<String>,
}

/// `--search-budget`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(transparent)]
pub(crate) struct BudgetArg {
    /// Limit the search, in units of about 10 ns, or `none` [default: 1500000 for a plan, 7500000 for an op]
    #[arg(long)]
    #[serde(deserialize_with = "crate::number::as_text")]
    search_budget: Option<String>,
}

impl BudgetArg {
    /// Parses the budget, if one was given.
    pub(crate) fn given(&self) -> Result<Option<SearchBudget>, CliError> {
        Ok(self.search_budget.as_deref().map(str::parse).transpose()?)
    }
}

/// Makes the planner of both, each with its default.
pub(crate) fn planner(network: &TopologyArg, objective: &ObjectiveArg) -> Result<Planner, CliError> {
    Ok(Planner::new()
        .topology(topology(network.topology.as_deref().unwrap_or("uniform"))?)
        .objective(objective.objective.as_deref().unwrap_or("time").parse()?))
}

impl TopologyArg {
    /// Returns the name or notation, if one was given.
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
    let refused = |why: String| CliError::refused("topology", format!("the topology file `{text}` {why}"));
    let content = read_text(Path::new(text)).map_err(|error| refused(format!("cannot be read: {error}")))?;
    let profile: Result<Profile, _> = content.parse();
    profile
        .and_then(Topology::try_from)
        .map_err(|error| refused(format!("is not a network profile: {error}")))
}
