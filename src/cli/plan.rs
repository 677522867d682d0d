//! `reshard plan`: the cheapest steps from one sharding to another.

use clap::{Args, ValueEnum};
use reshard_kernels::DType;
use reshard_sharding::{Mesh, Objective, Plan, Planner, Sharding, Step, Topology};
use serde::{Deserialize, Serialize};

use super::error::CliError;
use super::shape::Shape;
use super::{batch, output};

/// Arguments of `reshard plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request a line from stdin, like {"mesh":"dp=2,tp=4","shape":[64,32],"from":"..","to":".."}
    #[arg(long, conflicts_with_all = [
        "mesh", "shape", "dtype", "from", "to", "topology", "objective", "max_peak_bytes", "to_mesh", "groups",
    ])]
    batch: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// One question, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    /// The mesh of the source, like dp=2,tp=4
    #[arg(long)]
    mesh: Option<String>,
    /// The tensor's shape, like 1024,4096
    #[arg(long, allow_hyphen_values = true)]
    shape: Option<Shape>,
    /// The type of the elements [default: f32]
    #[arg(long)]
    dtype: Option<String>,
    /// The sharding to start from, one placement per mesh axis, like S(0),R
    #[arg(long)]
    from: Option<String>,
    /// The sharding to reach
    #[arg(long)]
    to: Option<String>,
    /// What steps cost: uniform, h100, or a TOML file [default: uniform]
    #[arg(long)]
    topology: Option<String>,
    /// What to minimise first: time, bytes or peak [default: time]
    #[arg(long)]
    objective: Option<String>,
    /// Refuse plans in which a rank holds more at any moment
    #[arg(long)]
    max_peak_bytes: Option<u64>,
    /// The mesh of the target, if it is another
    #[arg(long)]
    to_mesh: Option<String>,
    /// Use only these groups: axes like `dp;dp,tp`, or rank layouts like `4:1;(4,2):(1,8)`
    #[arg(long)]
    groups: Option<String>,
}
