//! `reshard rule`: the rule of an op, and the strategies of one mesh axis that follow from it.
//!
//! The rule of some ops depends on their arguments and on the dims of their inputs. If no shapes are given,
//! small ones are tried until the op accepts them.

use std::fmt::Write as _;

use clap::Args;
use reshard_ops::rules::{Op, OpCall, OpTable, Parameter, Rule, Strategy};
use serde::{Deserialize, Serialize};

use super::arguments::Format;
use super::arguments::OutShapesArg;
use super::arguments::ShapesArg;
use super::console::{Console, WIDEST};
use super::error::CliError;
use super::{batch, ops, required};

/// The size of all dims of assumed shapes.
const ASSUMED: usize = 8;

/// Help of `--shapes` in this subcommand.
const SHAPES: &str = "Shapes of the inputs, like '64,32;32,16'; strategies then refer to their dims";

/// Arguments of `reshard rule`.
#[derive(Debug, Args)]
#[command(mut_arg("shapes", |arg| arg.help(SHAPES)))]
pub(crate) struct RuleArgs {
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
#[group(args = ["op", "shapes", "out_shapes"])]
#[serde(deny_unknown_fields)]
struct Request {
    /// Op, like mm or softmax(dim=1), or rule, like 'mk,kn->mn' [default: list all ops]
    op: Option<String>,
    #[command(flatten)]
    shapes: ShapesArg,
    #[command(flatten)]
    out_shapes: OutShapesArg,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    op: String,
    arguments: Vec<ArgumentAnswer>,
    /// The element types of operands and results; null for a rule, whose results have those of its operands.
    dtypes: Option<String>,
    /// The rule; null for a view, which regroups the digits of all axes at once.
    rule: Option<String>,
    strategies: Vec<StrategyAnswer>,
    /// The shapes, if the rule depends on them or they were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    shapes: Option<Vec<Vec<usize>>>,
    /// `true` if `shapes` were assumed.
    #[serde(skip)]
    assumed: bool,
}

/// One strategy: the placements of all operands along one axis.
#[derive(Debug, Serialize)]
pub(super) struct StrategyAnswer {
    r#in: Vec<String>,
    out: Vec<String>,
    text: String,
    /// `true` if the op must know its region.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    region: bool,
}

/// A parameter of an op.
#[derive(Debug, Serialize)]
struct ArgumentAnswer {
    name: String,
    r#type: String,
    /// The default; null if the argument is required.
    default: Option<String>,
    text: String,
}

/// An op of the table.
#[derive(Debug, Serialize)]
struct Named {
    op: String,
    /// The rule; null if it depends on the arguments or the shapes.
    rule: Option<String>,
    arguments: Vec<ArgumentAnswer>,
    /// The element types of operands and results.
    dtypes: Option<String>,
}

/// All ops of the table.
#[derive(Debug, Serialize)]
struct Names {
    ops: Vec<Named>,
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &RuleArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let table = OpTable::standard();
    if args.batch {
        return batch::run(console, |request| answer(&table, request));
    }
    if args.request.op.is_none() && !args.request.shapes.is_given() && !args.request.out_shapes.is_given() {
        let names = Names::of(&table);
        return if args.format.json { console.print_json(&names) } else { console.print(&names.text()) };
    }
    let answer = answer(&table, &args.request)?;
    if args.format.json { console.print_json(&answer) } else { console.print(&answer.text()) }
}

fn answer(table: &OpTable, request: &Request) -> Result<Answer, CliError> {
    let call: OpCall = required("op", request.op.as_deref())?.parse()?;
    let outputs = request.out_shapes.dims()?;
    if let Some(inputs) = request.shapes.dims()? {
        let op = ops::bind(table, &call, &inputs, outputs.as_deref())?;
        let rows = op.strategies().into_iter().zip(op.regions());
        let strategies = rows.map(|(strategy, region)| StrategyAnswer::of(&strategy, region)).collect();
        return Ok(Answer::of(table, &call, op.rule(), strategies, Some(inputs), false));
    }
    if outputs.is_some() {
        let message = "`out_shapes` needs `shapes`, the shapes of the inputs";
        return Err(CliError::refused("usage", message));
    }
    if let Some(rule) = ops::stated(table, &call) {
        return Ok(Answer::of(table, &call, Some(&rule), of_rule(&rule), None, false));
    }
    let (op, inputs) = assume(table, &call)?;
    let strategies = op.rule().map_or_else(Vec::new, of_rule);
    Ok(Answer::of(table, &call, op.rule(), strategies, Some(inputs), true))
}

/// The strategies of a rule.
fn of_rule(rule: &Rule) -> Vec<StrategyAnswer> {
    rule.strategies().iter().map(|s| StrategyAnswer::of(s, rule.needs_region(s))).collect()
}

/// Binds a call to the first small shapes that it accepts; returns the op and the shapes.
pub(super) fn assume(table: &OpTable, call: &OpCall) -> Result<(Op, Vec<Vec<usize>>), CliError> {
    if let OpCall::Named { name, .. } = call {
        match table.parameters(name) {
            // An error that no shapes can cure.
            None => return Ok((table.op(call, &[])?, Vec::new())),
            Some(parameters) => parameters.check(call)?,
        }
    }
    let fits = |inputs: Vec<Vec<usize>>| ops::bind(table, call, &inputs, None).ok().map(|op| (op, inputs));
    if let Some(found) = small().find_map(fits) {
        return Ok(found);
    }
    // The error for one input of two dims is the most useful one for most ops.
    let why = ops::bind(table, call, &[vec![ASSUMED; 2]], None).err();
    let why = why.map_or_else(String::new, |error| format!(" ({error})"));
    let message = format!(
        "`{call}` accepts none of the small shapes that were tried{why}; give its arguments, or the shapes of its inputs"
    );
    Err(CliError::refused("rule", message))
}

/// The shapes to try: for 2 inputs, then 1, 3 and more.
///
/// Two inputs come first because they show more of an op that accepts any number. The first input has 2 dims,
/// then 3 and so on; the others have as many, or else any number of them.
fn small() -> impl Iterator<Item = Vec<Vec<usize>>> {
    const DIMS: [usize; 6] = [2, 3, 4, 1, 5, 0];
    let alike = |inputs: usize, dims: usize| vec![vec![ASSUMED; dims]; inputs];
    let others = |inputs: u32, first: usize, code: usize| {
        let dims = (0..inputs - 1).map(|i| DIMS[code / DIMS.len().pow(i) % DIMS.len()]);
        std::iter::once(first).chain(dims).map(|dims| vec![ASSUMED; dims]).collect::<Vec<_>>()
    };
    let few = [2, 1, 3, 4].into_iter().flat_map(move |inputs: u32| {
        DIMS.into_iter().flat_map(move |first| {
            let all = (0..DIMS.len().pow(inputs - 1)).map(move |code| others(inputs, first, code));
            std::iter::once(alike(inputs as usize, first)).chain(all)
        })
    });
    let more = (1..8).flat_map(move |inputs| [2, 3, 4, 1, 5, 6, 7, 8].map(|dims| alike(inputs, dims)));
    few.chain(more).chain([Vec::new()])
}

/// The arguments of an op, with their types and defaults.
fn arguments(table: &OpTable, name: &str) -> Vec<ArgumentAnswer> {
    let one = |p: &Parameter| ArgumentAnswer {
        name: p.name().to_owned(),
        r#type: p.kind().to_string(),
        default: p.default_text(),
        text: p.to_string(),
    };
    table.parameters(name).map_or_else(Vec::new, |all| all.iter().map(one).collect())
}

/// `any, integer -> same(0)`.
fn dtypes(table: &OpTable, name: &str) -> Option<String> {
    table.dtypes(name).map(ToString::to_string)
}

/// `softmax(dim: dim = -1)`.
fn signature(name: &str, arguments: &[ArgumentAnswer]) -> String {
    let texts: Vec<&str> = arguments.iter().map(|a| a.text.as_str()).collect();
    format!("{name}({})", texts.join(", "))
}

impl Answer {
    fn of(
        table: &OpTable,
        call: &OpCall,
        rule: Option<&Rule>,
        strategies: Vec<StrategyAnswer>,
        shapes: Option<Vec<Vec<usize>>>,
        assumed: bool,
    ) -> Self {
        Self {
            op: call.to_string(),
            arguments: match call {
                OpCall::Named { name, .. } => arguments(table, name),
                OpCall::Rule(_) | OpCall::Each(_) => Vec::new(),
            },
            dtypes: call.name().and_then(|name| dtypes(table, name)),
            rule: rule.map(ToString::to_string),
            strategies,
            shapes,
            assumed,
        }
    }

    /// Prints the arguments if there are any, the rule, one strategy a line, and the element types if they are stated.
    fn text(&self) -> String {
        let mut text = String::new();
        if !self.arguments.is_empty() {
            let name = self.op.split('(').next().unwrap_or_default();
            let _ = writeln!(text, "{}", signature(name, &self.arguments));
        }
        text.push_str(self.rule.as_deref().unwrap_or(
            "a view: it regroups all axes jointly and has no strategies per axis (see `reshard view`)",
        ));
        if let (Some(shapes), true) = (&self.shapes, self.assumed) {
            text.push_str(&on(shapes));
        }
        text.push('\n');
        for strategy in &self.strategies {
            let _ = writeln!(text, "{}", marked(&strategy.text, strategy.region));
        }
        if let Some(dtypes) = &self.dtypes {
            let _ = writeln!(text, "element types: {dtypes}");
        }
        text
    }
}

/// Prints the assumed shapes.
pub(super) fn on(shapes: &[Vec<usize>]) -> String {
    let shapes: Vec<String> = shapes.iter().map(|shape| format!("{shape:?}").replace(' ', "")).collect();
    let on = if shapes.is_empty() { "no inputs".to_owned() } else { shapes.join(" and ") };
    format!("      (on {on}; --shapes for others)")
}

impl StrategyAnswer {
    pub(super) fn of(strategy: &Strategy, region: bool) -> Self {
        Self {
            r#in: strategy.inputs.iter().map(ToString::to_string).collect(),
            out: strategy.outputs.iter().map(ToString::to_string).collect(),
            text: strategy.to_string(),
            region,
        }
    }
}

/// Prints a strategy, with a mark if the op must know its region for it.
pub(super) fn marked(strategy: &str, region: bool) -> String {
    format!("{strategy}{}", if region { "   (needs its region)" } else { "" })
}

impl Names {
    fn of(table: &OpTable) -> Self {
        let named = |name: &str| Named {
            op: name.to_owned(),
            rule: table.rule(name).map(|rule| rule.to_string()),
            arguments: arguments(table, name),
            dtypes: dtypes(table, name),
        };
        Self { ops: table.names().map(named).collect() }
    }

    /// `mm        mk,kn->mn`, and `softmax(dim: dim = -1)`.
    fn text(&self) -> String {
        let call = |op: &Named| match &op.arguments[..] {
            [] => op.op.clone(),
            arguments => signature(&op.op, arguments),
        };
        let width = self
            .ops
            .iter()
            .filter(|op| op.rule.is_some())
            .map(|op| op.op.len())
            .max()
            .unwrap_or(0)
            .min(WIDEST);
        let mut text = String::new();
        for op in &self.ops {
            // Writing to a string does not fail.
            let _ = match &op.rule {
                Some(rule) => writeln!(text, "{:width$}   {rule}", call(op)),
                None => writeln!(text, "{}", call(op)),
            };
        }
        text
    }
}
