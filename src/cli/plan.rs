//! `reshard plan`: the cheapest steps from one sharding to another.

use clap::Args;
use reshard_kernels::{CombineOp, DType};
use reshard_sharding::redistribute::{Objective, Plan, Planner, Step, Topology};
use reshard_sharding::{Mesh, ReduceOp, Sharding};
use serde::{Deserialize, Serialize};

use super::error::CliError;
use super::shape::Shape;
use super::{batch, output, required};

/// Arguments of `reshard plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request a line from stdin, like {"mesh":"dp=2,tp=4","shape":[64,32],"from":"S(0),R","to":"R,R"}
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
    /// What steps cost: uniform [default: uniform]
    #[arg(long)]
    topology: Option<String>,
    /// What to minimise first: time, bytes or peak [default: time]
    #[arg(long)]
    objective: Option<String>,
    /// Refuse a plan in which a rank holds more than this at any moment
    #[arg(long)]
    max_peak_bytes: Option<u64>,
    /// The mesh of the target, if it is another
    #[arg(long)]
    to_mesh: Option<String>,
    /// The groups that exist and may be used
    #[arg(long)]
    groups: Option<String>,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    steps: Vec<StepAnswer>,
    received_bytes: u64,
    cost_us: f64,
    lower_bound_us: f64,
    lower_bound_bytes: Option<u64>,
    peak_bytes: u64,
    max_shard_bytes: u64,
    groups: Vec<String>,
}

/// One step; bytes are those of its worst rank.
#[derive(Debug, Serialize)]
struct StepAnswer {
    op: &'static str,
    axes: Vec<String>,
    group: String,
    received_bytes: u64,
    sent_bytes: u64,
    cost_us: f64,
    from: String,
    to: String,
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &PlanArgs) -> Result<(), CliError> {
    if args.batch {
        return batch::run(|request| plan(request).map(|plan| Answer::of(&plan)));
    }
    let plan = plan(&args.request)?;
    if args.json { output::print_json(&Answer::of(&plan)) } else { output::print(&format!("{plan}\n")) }
}

fn plan(request: &Request) -> Result<Plan, CliError> {
    let mesh: Mesh = required("mesh", request.mesh.as_deref())?.parse()?;
    let to_mesh = request.to_mesh.as_deref().map_or_else(|| Ok(mesh.clone()), str::parse)?;
    let shape = required("shape", request.shape.as_ref())?.dims()?;
    let from = Sharding::parse(&mesh, &shape, required("from", request.from.as_deref())?)?;
    let to = Sharding::parse(&to_mesh, &shape, required("to", request.to.as_deref())?)?;
    let dtype: DType = request.dtype.as_deref().unwrap_or("f32").parse()?;
    for sharding in [&from, &to] {
        computes(dtype, sharding)?;
    }
    let topology: Topology = request.topology.as_deref().unwrap_or("uniform").parse()?;
    let objective: Objective = request.objective.as_deref().unwrap_or("time").parse()?;
    if let Some(groups) = &request.groups {
        let message = format!("the planner takes whatever groups it needs, and cannot be held to `{groups}`");
        return Err(CliError::refused("unsupported", message));
    }
    let plan =
        Planner::new().topology(topology).objective(objective).plan(&from, &to, dtype.item_bytes()?)?;
    match request.max_peak_bytes {
        Some(most) if plan.peak_bytes() > most => {
            let message = format!(
                "the plan holds {} bytes on one rank at its peak, more than the {most} allowed; --objective peak \
                 makes the least of it",
                plan.peak_bytes()
            );
            Err(CliError::refused("peak", message))
        }
        Some(_) | None => Ok(plan),
    }
}

/// Whether elements of this type can be terms of what the sharding owes.
fn computes(dtype: DType, sharding: &Sharding) -> Result<(), CliError> {
    for owed in sharding.partial() {
        match owed.op {
            ReduceOp::Sum => dtype.check_combine(CombineOp::Sum)?,
            ReduceOp::Avg => dtype.check_average()?,
            ReduceOp::Prod => dtype.check_combine(CombineOp::Prod)?,
            ReduceOp::Min => dtype.check_combine(CombineOp::Min)?,
            ReduceOp::Max => dtype.check_combine(CombineOp::Max)?,
        }
    }
    Ok(())
}

impl Answer {
    fn of(plan: &Plan) -> Self {
        Self {
            steps: plan.steps().iter().map(StepAnswer::of).collect(),
            received_bytes: plan.received_bytes(),
            cost_us: plan.cost_us(),
            lower_bound_us: plan.lower_bound_us(),
            lower_bound_bytes: plan.lower_bound_bytes(),
            peak_bytes: plan.peak_bytes(),
            max_shard_bytes: plan.max_shard_bytes(),
            groups: plan.groups().into_iter().map(ToString::to_string).collect(),
        }
    }
}

impl StepAnswer {
    fn of(step: &Step) -> Self {
        Self {
            op: step.op.as_str(),
            axes: step.axis_names(),
            group: step.group.to_string(),
            received_bytes: step.received_bytes,
            sent_bytes: step.sent_bytes,
            cost_us: step.cost_us,
            from: step.before.to_string(),
            to: step.after.to_string(),
        }
    }
}
