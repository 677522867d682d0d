//! What steps cost, and what to minimise: the part of a request that makes a planner.

use std::path::Path;

use reshard_sharding::redistribute::{Planner, Topology};

use super::error::CliError;

/// The planner of `--topology` and `--objective`, each with its default.
pub(crate) fn planner(network: Option<&str>, objective: Option<&str>) -> Result<Planner, CliError> {
    Ok(Planner::new()
        .topology(topology(network.unwrap_or("uniform"))?)
        .objective(objective.unwrap_or("time").parse()?))
}

/// A profile by its name or notation, or else a file.
fn topology(text: &str) -> Result<Topology, CliError> {
    let is_file =
        Path::new(text).extension().is_some_and(|extension| extension == "toml") || text.contains('/');
    if !is_file {
        return Ok(text.parse()?);
    }
    let refused = |why: String| CliError::refused("topology", format!("the topology file {text} {why}"));
    let content =
        std::fs::read_to_string(text).map_err(|error| refused(format!("cannot be read: {error}")))?;
    toml::from_str(&content).map_err(|error| refused(format!("is not a profile: {}", error.message())))
}
