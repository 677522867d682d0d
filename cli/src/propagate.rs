//! `reshard propagate`: the cheapest strategy for an op on a mesh, its redistributions, and the runners-up.

use std::fmt::Write as _;

use clap::Args;
use reshard_kernels::DType;
use reshard_layout::internal::counted;
use reshard_ops::propagate::{OpSharding, Operand, OperandIndex, OutputConstraint, Propagator};
use reshard_ops::rules::{Op, OpCall, OpTable};
use reshard_planner::Arithmetic;
use reshard_planner::Plan;
use reshard_sharding::{Mesh, Sharding, SubAxis};
use serde::{Deserialize, Serialize};

use super::arguments::Format;
use super::arguments::MeshArg;
use super::arguments::OutShapesArg;
use super::arguments::ShapesArg;
use super::console::{Console, WIDEST};
use super::error::CliError;
use super::explicit;
use super::listed::Listed;
use super::network::{self, BudgetArg, ObjectiveArg, TopologyArg};
use super::plan::StepAnswer;
use super::rule::{StrategyAnswer, marked};
use super::{batch, element, ops, required};

/// The number of runners-up that are printed by default.
const RUNNERS_UP: usize = 3;

/// With more ranks than this runners-up are computed only on request: each may take a pass over every rank.
const MANY_RANKS: usize = 1 << 12;

/// More runners-up than this are not listed.
const MOST: usize = 1000;

/// Help of `--objective`: the default text would promise to minimise the whole cost of a strategy.
const OBJECTIVE: &str = "Minimise this first in each redistribution: time, bytes or peak [default: time]";

/// Arguments of `reshard propagate`.
#[derive(Debug, Args)]
#[command(mut_arg("objective", |arg| arg.help(OBJECTIVE)))]
pub(crate) struct PropagateArgs {
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request per line of stdin, like
    /// {"mesh":"dp=2,tp=4","op":"mm","shapes":"64,32;32,16","in":"S(0),R;R,S(1)"}
    #[arg(long, conflicts_with = "Request")]
    batch: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One request, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[group(args = ["mesh", "op", "shapes", "inputs", "dtype", "topology", "objective", "out", "prefer", "penalty_us", "out_shapes", "explicit", "search_budget", "top"])]
#[serde(deny_unknown_fields)]
struct Request {
    #[command(flatten)]
    mesh: MeshArg,
    /// Op, like mm or softmax(dim=1), or rule, like 'mk,kn->mn' (`reshard rule` lists the ops)
    #[arg(long)]
    op: Option<String>,
    #[command(flatten)]
    shapes: ShapesArg,
    /// Shardings of the inputs, like 'S(0),R;R,S(1)'
    #[arg(long = "in", value_name = "IN")]
    #[serde(rename = "in")]
    inputs: Option<Listed<String>>,
    /// Dtype of all inputs, or of each, like 'i64;f32' [default: f32]
    #[arg(long)]
    dtype: Option<Listed<String>>,
    #[command(flatten)]
    topology: TopologyArg,
    #[command(flatten)]
    objective: ObjectiveArg,
    /// Required shardings of the outputs; an empty one allows any
    #[arg(long)]
    out: Option<Listed<String>>,
    /// Preferred shardings of the outputs; an empty one allows any
    #[arg(long, requires = "penalty_us")]
    prefer: Option<Listed<String>>,
    /// Cost of an output without its preferred sharding, in microseconds
    #[arg(long, requires = "prefer", allow_negative_numbers = true, value_parser = crate::number::decimal)]
    penalty_us: Option<f64>,
    #[command(flatten)]
    out_shapes: OutShapesArg,
    /// Reject the op if an input needs a redistribution, and list the redistributions that help
    #[arg(long)]
    #[serde(default, deserialize_with = "explicit::of_an_op")]
    explicit: bool,
    #[command(flatten)]
    #[serde(default)]
    search_budget: BudgetArg,
    /// Print N runners-up; with --json, also the strategies and redistributions of every option [default: 3,
    /// or 0 above 4096 ranks]
    #[arg(long, value_name = "N", value_parser = crate::whole::whole::<usize>, allow_negative_numbers = true)]
    top: Option<usize>,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    best: OptionAnswer,
    /// Present only with `advise`.
    #[serde(skip_serializing_if = "Option::is_none")]
    runners_up: Option<Vec<OptionAnswer>>,
}

/// One option.
#[derive(Debug, Default, Serialize)]
struct OptionAnswer {
    /// The shardings of the inputs after redistribution.
    r#in: Vec<String>,
    /// The shardings of the outputs as the op computes them.
    computed: Vec<String>,
    /// The shardings of the outputs after their constraints are satisfied.
    out: Vec<String>,
    /// The cost of all redistributions, plus the penalty of outputs that are not as preferred.
    cost_us: f64,
    /// The number of communicating steps.
    steps: usize,
    /// `true` if the search budget ran out: the option is then the best found.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    exhausted: bool,
    /// The strategy of every axis, with `advise` only; empty for a view.
    #[serde(skip_serializing_if = "Option::is_none")]
    strategies: Option<Vec<AxisStrategy>>,
    /// The redistributions, with `advise` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    moves: Option<Vec<Move>>,
}

/// The strategy of one axis.
#[derive(Debug, Serialize)]
struct AxisStrategy {
    axis: String,
    #[serde(flatten)]
    strategy: StrategyAnswer,
}

/// The redistribution of one operand.
#[derive(Debug, Serialize)]
struct Move {
    /// `input 0` or `output 0`.
    operand: String,
    from: String,
    to: String,
    received_bytes: u64,
    cost_us: f64,
    steps: Vec<StepAnswer>,
}

/// A request that was parsed, and its choices.
struct Asked {
    mesh: Mesh,
    op: Op,
    inputs: Vec<Operand>,
    /// Best first.
    choices: Vec<OpSharding>,
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &PropagateArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let table = OpTable::standard();
    if args.batch {
        let answer = |request: &Request| {
            let asked = propagate(&table, request, request.top.unwrap_or(0))?;
            Ok(Answer::of(&asked, request.top.is_some()))
        };
        return batch::run(console, answer);
    }
    let request = &args.request;
    if args.format.json {
        let asked = propagate(&table, request, request.top.unwrap_or(0))?;
        return console.print_json(&Answer::of(&asked, request.top.is_some()));
    }
    let few = request
        .mesh
        .mesh
        .as_deref()
        .and_then(|m| m.parse::<Mesh>().ok())
        .is_none_or(|m| m.size() <= MANY_RANKS);
    let by_default = if few { RUNNERS_UP } else { 0 };
    let runners_up = if request.explicit { 0 } else { request.top.unwrap_or(by_default) };
    console.print(&propagate(&table, request, runners_up)?.text())
}

fn propagate(table: &OpTable, request: &Request, runners_up: usize) -> Result<Asked, CliError> {
    let mesh = request.mesh.required()?;
    let call: OpCall = required("op", request.op.as_deref())?.parse()?;
    // The shapes of an op without inputs may be left out.
    let (input_shapes, placements) = match (request.shapes.dims()?, &request.inputs) {
        (None, None) if table.op(&call, &[]).is_ok() => (Vec::new(), Vec::new()),
        (given, placements) => {
            (required("shapes", given.as_deref())?.to_vec(), required("in", placements.as_ref())?.each())
        }
    };
    if input_shapes.len() != placements.len() {
        let (shapes, shardings) = (input_shapes.len(), placements.len());
        let message =
            format!("`shapes` has {shapes} values and `in` has {shardings}; give one of each per input");
        return Err(CliError::refused("usage", message));
    }
    let output_shapes = request.out_shapes.dims()?;
    let op = ops::bind(table, &call, &input_shapes, output_shapes.as_deref())?;
    let dtypes = dtypes(request.dtype.as_ref(), input_shapes.len())?;
    let mut inputs = Vec::with_capacity(input_shapes.len());
    for (i, ((shape, placements), dtype)) in input_shapes.iter().zip(&placements).zip(dtypes).enumerate() {
        let about = |error: CliError| error.about(format_args!("input {i}"));
        let sharding = Sharding::parse(&mesh, shape, placements).map_err(|error| about(error.into()))?;
        Arithmetic::Kernels.check(&sharding, dtype).map_err(|error| about(error.into()))?;
        inputs.push(Operand::new(dtype, sharding));
    }
    let constraints = constraints(request, &mesh, &op)?;
    let mut planner = network::planner(&request.topology, &request.objective)?;
    let mut propagator = Propagator::new();
    if let Some(budget) = request.search_budget.given()? {
        planner = planner.budget(budget);
        propagator = propagator.with_budget(budget);
    }
    let propagator = propagator.with_planner(planner);
    let choices = if request.explicit {
        let asked_more =
            [("top", runners_up > 0), ("out", request.out.is_some()), ("prefer", request.prefer.is_some())];
        if let Some((key, _)) = asked_more.into_iter().find(|(_, is)| *is) {
            let message = format!(
                "`explicit` redistributes nothing and cannot be combined with `{key}`; drop one of them"
            );
            return Err(CliError::refused("usage", message));
        }
        vec![propagator.explicit(&op, &mesh, &inputs)?]
    } else {
        if runners_up > MOST {
            let message = format!("`top` is {runners_up}, more than the limit of {MOST}");
            return Err(CliError::refused("usage", message));
        }
        propagator.cheapest(&op, &mesh, &inputs, &constraints, runners_up + 1)?
    };
    Ok(Asked { mesh, op, inputs, choices })
}

/// The element type of each input.
fn dtypes(listed: Option<&Listed<String>>, inputs: usize) -> Result<Vec<DType>, CliError> {
    let Some(listed) = listed else { return Ok(vec![element::dtype(None)?; inputs]) };
    let dtypes: Vec<DType> =
        listed.each().iter().map(|name| element::dtype(Some(name))).collect::<Result<_, _>>()?;
    match dtypes[..] {
        [all] => Ok(vec![all; inputs]),
        _ if dtypes.len() == inputs => Ok(dtypes),
        _ => {
            let message = format!(
                "`dtype` has {} values for {inputs}; give one for all, or one for each",
                dtypes.len(),
                inputs = counted(inputs, "input", "inputs")
            );
            Err(CliError::refused("usage", message))
        }
    }
}

/// Reads the constraint of each output.
fn constraints(request: &Request, mesh: &Mesh, op: &Op) -> Result<Vec<OutputConstraint>, CliError> {
    let (key, listed) = match (&request.out, &request.prefer) {
        (None, None) => {
            if request.penalty_us.is_some() {
                return Err(CliError::refused(
                    "usage",
                    "`penalty_us` needs `prefer`, the preferred shardings",
                ));
            }
            return Ok(Vec::new());
        }
        (Some(_), Some(_)) => {
            let message = "`out` and `prefer` cannot be combined; use `out` for required shardings, or `prefer` for preferred ones";
            return Err(CliError::refused("usage", message));
        }
        (Some(out), None) => ("out", out.each()),
        (None, Some(prefer)) => ("prefer", prefer.each()),
    };
    let penalty_us = match (key, request.penalty_us) {
        ("out", None) => None,
        ("out", Some(_)) => {
            return Err(CliError::refused("usage", "`penalty_us` needs `prefer`, the preferred shardings"));
        }
        (_, Some(us)) if us >= 0.0 && us.is_finite() => Some(us),
        (_, Some(us)) => {
            return Err(CliError::refused(
                "usage",
                format!("`penalty_us` must be finite and at least 0, not {us}"),
            ));
        }
        (_, None) => {
            return Err(CliError::refused(
                "usage",
                "`prefer` needs `penalty_us`, the cost of other shardings in microseconds",
            ));
        }
    };
    if listed.len() > op.outputs().len() {
        let message = format!(
            "`{key}` has {} shardings, but `{}` has {}",
            listed.len(),
            op.name(),
            counted(op.outputs().len(), "output", "outputs")
        );
        return Err(CliError::refused("usage", message));
    }
    let constraint = |(o, text): (usize, &String)| {
        if text.is_empty() {
            return Ok(OutputConstraint::Any);
        }
        let sharding = Sharding::parse(mesh, &op.outputs()[o], text)
            .map_err(|error| CliError::from(error).about(format_args!("output {o}")))?;
        Ok(match penalty_us {
            None => OutputConstraint::Exactly(sharding),
            Some(penalty_us) => OutputConstraint::Prefer { sharding, penalty_us },
        })
    };
    listed.iter().enumerate().map(constraint).collect()
}

impl Answer {
    fn of(asked: &Asked, explained: bool) -> Self {
        let mut options = asked.choices.iter().map(|choice| OptionAnswer::of(asked, choice, explained));
        // The library returns at least one choice.
        let best = options.next().unwrap_or_default();
        Self { best, runners_up: explained.then(|| options.collect()) }
    }
}

impl OptionAnswer {
    fn of(asked: &Asked, choice: &OpSharding, explained: bool) -> Self {
        let strategies = || {
            let of = |(sub, strategy): &(SubAxis, _)| AxisStrategy {
                axis: sub.printed(asked.mesh.axes()),
                strategy: StrategyAnswer::of(strategy, needs_region(choice, *sub)),
            };
            choice.strategies.iter().map(of).collect()
        };
        let moves = || choice.redistributions().map(|(operand, plan)| Move::of(operand, plan)).collect();
        Self {
            r#in: texts(&choice.inputs),
            computed: choice.computed().map(ToString::to_string).collect(),
            out: texts(&choice.outputs),
            cost_us: choice.cost_us,
            steps: choice.communicating_steps(),
            exhausted: choice.is_budget_exhausted(),
            strategies: explained.then(strategies),
            moves: explained.then(moves),
        }
    }
}

impl Move {
    fn of(operand: OperandIndex, plan: &Plan) -> Self {
        Self {
            operand: operand.to_string(),
            from: plan.from().to_string(),
            to: plan.to().to_string(),
            received_bytes: plan.received_bytes(),
            cost_us: plan.cost_us(),
            steps: plan.steps().iter().map(StepAnswer::of).collect(),
        }
    }
}

fn texts(shardings: &[Sharding]) -> Vec<String> {
    shardings.iter().map(ToString::to_string).collect()
}

/// Returns `true` if the op must know its region for the strategy of this (sub-)axis.
fn needs_region(choice: &OpSharding, sub: SubAxis) -> bool {
    choice.regions().any(|needing| needing == sub)
}

/// `2 steps`.
fn steps(n: usize) -> String {
    format!("{n} communicating step{}", if n == 1 { "" } else { "s" })
}

impl Asked {
    /// Prints the op, the strategy of every axis, the redistribution of every operand, and the runners-up.
    fn text(&self) -> String {
        let operands: Vec<String> = self.inputs.iter().map(ToString::to_string).collect();
        let of =
            if operands.is_empty() { format!("no inputs, on {}", self.mesh) } else { operands.join(" and ") };
        let mut text = format!("{} of {of}\n", self.op.name());
        let Some((best, others)) = self.choices.split_first() else { return text };
        self.write(&mut text, best);
        if best.is_budget_exhausted() {
            text.push_str(
                "search budget exhausted: this is the best result found (`--search-budget none` has no limit)\n",
            );
        }
        if !others.is_empty() {
            text.push_str("runners-up\n");
        }
        for choice in others {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "  {:>8.1} us, {}:  [{}] -> [{}]",
                choice.cost_us,
                steps(choice.communicating_steps()),
                texts(&choice.inputs).join("] and ["),
                texts(&choice.outputs).join("] and ["),
            );
        }
        text
    }

    fn write(&self, text: &mut String, choice: &OpSharding) {
        let mut rows: Vec<(String, String)> = Vec::new();
        for (sub, strategy) in &choice.strategies {
            let strategy = marked(&strategy.to_string(), needs_region(choice, *sub));
            rows.push((sub.printed(self.mesh.axes()), strategy));
        }
        let inputs = choice.inputs.iter().enumerate().map(|(i, is)| (OperandIndex::Input(i), is, "stays"));
        let outputs = choice.outputs.iter().enumerate().map(|(o, is)| (OperandIndex::Output(o), is, ""));
        for (operand, sharding, stays) in inputs.chain(outputs) {
            let name = operand.to_string();
            let Some(plan) = choice.plan(operand) else {
                rows.push((name, format!("[{sharding}] {stays}").trim_end().to_owned()));
                continue;
            };
            rows.push((name, format!("[{}] -> [{sharding}]", plan.from())));
            for step in plan.steps() {
                let axes = step.axis_names().join(",");
                let line = format!(
                    "  {} over {axes} ({}): {} B, {:.1} us",
                    step.op(),
                    step.group,
                    step.received_bytes,
                    step.cost_us
                );
                rows.push((String::new(), line));
            }
        }
        let cost = format!("{:.1} us, {}", choice.cost_us, steps(choice.communicating_steps()));
        rows.push(("cost".to_owned(), cost));
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(WIDEST);
        for (name, what) in rows {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name:width$}   {what}");
        }
    }
}
