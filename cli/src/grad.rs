//! `reshard grad`: the gradient formula of an op, and every forward strategy with its transposed backward.

use std::fmt::Write as _;

use clap::Args;
use reshard_ops::rules::{OpCall, OpTable, OperandPlacement, Strategy};
use serde::{Deserialize, Serialize};

use super::arguments::Format;
use super::arguments::ShapesArg;
use super::console::{Console, WIDEST};
use super::error::CliError;
use super::{batch, ops, required, rule};

/// Help of `--shapes` in this subcommand.
const SHAPES: &str = "Shapes of the inputs, like '64,32;32,16'; strategies then refer to their dims";

/// Arguments of `reshard grad`.
#[derive(Debug, Args)]
#[command(mut_arg("shapes", |arg| arg.help(SHAPES)))]
pub(crate) struct GradArgs {
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request per line of stdin, like {"op":"softmax(dim=1)","shapes":[[64,32]]}
    #[arg(long, conflicts_with = "Request")]
    batch: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One request, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[group(args = ["op", "shapes"])]
#[serde(deny_unknown_fields)]
struct Request {
    /// Op, like mm or softmax(dim=1), or rule, like 'mk,kn->mn'
    op: Option<String>,
    #[command(flatten)]
    shapes: ShapesArg,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    op: String,
    /// The rows; empty for a view, whose backward is the inverse view.
    rows: Vec<RowAnswer>,
    /// The calls of the formula, empty if no input has a gradient; null for an op without a formula.
    gradient: Option<Vec<String>>,
    /// The shapes that were given, or those that the formula is for.
    shapes: Vec<Vec<usize>>,
    #[serde(skip)]
    assumed: bool,
}

/// A row forward and backward: from the gradients of the outputs to those of the inputs.
#[derive(Debug, Serialize)]
struct RowAnswer {
    forward: String,
    /// The backward strategy.
    ///
    /// Null if the forward one has partial values without gradients (avg, prod, min, max).
    backward: Option<String>,
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &GradArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let table = OpTable::standard();
    if args.batch {
        return batch::run(console, |request| answer(&table, request));
    }
    let answer = answer(&table, &args.request)?;
    if args.format.json { console.print_json(&answer) } else { console.print(&answer.text()) }
}

fn answer(table: &OpTable, request: &Request) -> Result<Answer, CliError> {
    let call: OpCall = required("op", request.op.as_deref())?.parse()?;
    let given = request.shapes.dims()?;
    let assumed = given.is_none();
    let (op, inputs) = match given {
        Some(inputs) => (ops::bind(table, &call, &inputs, None)?, inputs),
        None => rule::assume(table, &call)?,
    };
    // As in `reshard rule`: without given shapes the strategies are over the letters of the rule.
    let forward = match op.rule().filter(|_| assumed) {
        Some(rule) => rule.strategies(),
        None => op.strategies(),
    };
    let shapes: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
    let gradient = match table.gradient(&call, &shapes) {
        Ok(gradient) => Some(gradient.lines()),
        Err(reshard_ops::Error::Sharding(reshard_sharding::Error::NoGradient { .. })) => None,
        Err(error) => return Err(error.into()),
    };
    let rows = if op.is_view() { Vec::new() } else { rows(&forward, op.inputs().len(), op.outputs().len()) };
    Ok(Answer { op: call.to_string(), rows, gradient, shapes: inputs, assumed })
}

/// Returns every strategy with its possible backward strategies.
///
/// The all-replicated one, which every op has, is last.
fn rows(forward: &[Strategy], inputs: usize, outputs: usize) -> Vec<RowAnswer> {
    let replicas = Strategy {
        inputs: vec![OperandPlacement::Replicate; inputs],
        outputs: vec![OperandPlacement::Replicate; outputs],
    };
    let mut rows = Vec::new();
    for strategy in forward.iter().filter(|&strategy| *strategy != replicas).chain([&replicas]) {
        let row = |backward| RowAnswer { forward: strategy.to_string(), backward };
        let backward = strategy.transposes();
        if backward.is_empty() {
            rows.push(row(None));
        }
        rows.extend(backward.iter().map(|backward| row(Some(backward.to_string()))));
    }
    rows
}

impl Answer {
    fn text(&self) -> String {
        let mut text = String::new();
        let width = self.rows.iter().map(|row| row.forward.len()).max().unwrap_or(0).min(WIDEST);
        for row in &self.rows {
            let backward = row.backward.as_deref().unwrap_or("no gradient: reduce the partial values first");
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:width$}   backward   {backward}", row.forward);
        }
        if self.rows.is_empty() {
            text.push_str("a view: its backward is the inverse view\n");
        }
        let on = if self.assumed { rule::on(&self.shapes) } else { String::new() };
        match self.gradient.as_deref() {
            None => {
                let _ = writeln!(text, "no gradient formula{on}");
            }
            Some([]) => {
                let _ = writeln!(text, "no input has a gradient{on}");
            }
            Some(lines) => {
                let _ = writeln!(text, "gradient{on}");
                for line in lines {
                    let _ = writeln!(text, "  {line}");
                }
            }
        }
        text
    }
}
