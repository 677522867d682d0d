//! Errors: the reason why an op cannot run, and the alternatives, each checked before it is named.

use crate::Error;
use crate::propagate::choice::OpSharding;
use crate::propagate::operand::Operand;
use crate::propagate::problem::{Problem, Stays};
use crate::propagate::propagator::Propagator;
use crate::propagate::slots::Class;
use crate::rules::{Entry, Op};
use reshard_sharding::Mesh;

/// Above this number of ranks only one alternative is computed: uneven ones examine every rank.
const MANY_RANKS: usize = 1 << 12;

/// The most operands that are spelled out.
const SHOWN: usize = 4;

/// `mm of f32[64,32] [S(0),R] on dp=2,tp=4 and ..`.
fn call(op: &Op, inputs: &[Operand]) -> String {
    let shown: Vec<String> = inputs.iter().take(SHOWN).map(ToString::to_string).collect();
    let more =
        if inputs.len() > SHOWN { format!(" and {} more", inputs.len() - SHOWN) } else { String::new() };
    format!("{} of {}{more}", op.name(), shown.join(" and "))
}

/// Returns the error if there is no strategy at all, or none was found within the work that was spent.
pub(super) fn nothing_fits(op: &Op, inputs: &[Operand], last: Option<Error>, spent: Option<u64>) -> Error {
    let why = last.map_or(String::new(), |e| format!(": {e}"));
    let within = spent.map_or(String::new(), |work| format!(" within {work} units of work"));
    Error::Unsupported { reason: format!("{}: no strategy found{within}{why}", call(op, inputs)) }
}

/// Returns the error if no strategy takes the inputs as they are.
pub(super) fn needs_redistribute(
    propagator: &Propagator,
    problem: &Problem<'_>,
    op: &Op,
    mesh: &Mesh,
    inputs: &[Operand],
) -> Error {
    let choices = match propagator.advise_hastily(op, mesh, inputs, advised(mesh), Stays::Written) {
        Ok(none) if none.is_empty() && !op.in_place_inputs().is_empty() => {
            propagator.advise_hastily(op, mesh, inputs, advised(mesh), Stays::Nothing)
        }
        choices => choices,
    };
    let fixes = ways_out(propagator, op, mesh, inputs, &choices.unwrap_or_default());
    let fixes = fixes.unwrap_or_else(|| "no redistribution of the inputs helps".to_owned());
    Error::NeedsRedistribution { reason: format!("{}: {}", call(op, inputs), why(problem)), fixes }
}

/// Returns the error for a tensor that the op writes and that would have to be redistributed.
pub(super) fn written_moves(propagator: &Propagator, op: &Op, mesh: &Mesh, inputs: &[Operand]) -> Error {
    let written: Vec<String> =
        op.in_place_inputs().iter().take(SHOWN).map(|(i, _)| format!("input {i}")).collect();
    let (written, are) = (written.join(" and "), if written.len() == 1 { "is" } else { "are" });
    let stays = format!("{written} {are} written in place and cannot be redistributed");
    let choices =
        propagator.advise_hastily(op, mesh, inputs, advised(mesh), Stays::Nothing).unwrap_or_default();
    let fixes = ways_out(propagator, op, mesh, inputs, &choices);
    let fixes = fixes.map_or_else(String::new, |fixes| format!("{fixes} before it, or "));
    Error::NeedsRedistribution {
        reason: format!("{}: {stays}, and no strategy accepts and preserves the sharding", call(op, inputs)),
        fixes: format!("{fixes}use the op that returns a new tensor"),
    }
}

/// The number of alternatives that an error names.
fn advised(mesh: &Mesh) -> usize {
    if mesh.size() > MANY_RANKS { 1 } else { 3 }
}

/// Lists the valid alternatives: `redistribute input 1 to [R,S(1)] (6.7 us), or ..`.
fn ways_out(
    propagator: &Propagator,
    op: &Op,
    mesh: &Mesh,
    inputs: &[Operand],
    choices: &[OpSharding],
) -> Option<String> {
    let works = choices.iter().filter(|c| typechecks(propagator, op, mesh, inputs, c));
    let fixes: Vec<String> = works.map(fix).collect();
    (!fixes.is_empty()).then(|| format!("redistribute {}", fixes.join(", or ")))
}

/// Returns `true` if the inputs of a choice are accepted without redistribution.
fn typechecks(
    propagator: &Propagator,
    op: &Op,
    mesh: &Mesh,
    inputs: &[Operand],
    choice: &OpSharding,
) -> bool {
    let changed: Vec<Operand> =
        inputs.iter().zip(&choice.inputs).map(|(x, s)| Operand::new(x.dtype, s.clone())).collect();
    matches!(propagator.as_they_are(op, mesh, &changed), Ok(Some(_)))
}

/// `input 1 to [R,S(1)] (6.7 us)`.
fn fix(choice: &OpSharding) -> String {
    let mut moves: Vec<String> = Vec::new();
    for (i, plan) in choice.plans.iter().enumerate() {
        if plan.is_some() && moves.len() < SHOWN {
            moves.push(format!("input {i} to [{}]", choice.inputs[i]));
        }
    }
    let more = choice.plans.iter().flatten().count() - moves.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more} ({:.1} us, {} bytes)", moves.join(" and "), choice.cost_us, choice.received_bytes())
}

/// Describes the first axis along which the inputs fit no strategy.
fn why(problem: &Problem<'_>) -> String {
    if problem.op.is_view() {
        return "the view is not free".to_owned();
    }
    for (slot, sub) in problem.slots.iter().enumerate() {
        let takes = |row: u16| {
            problem.inputs.iter().all(|a| {
                let letter = problem.letter(slot, row, a.operand);
                match (letter.entry, &a.at[slot]) {
                    (Entry::Replicate, Class::Replicate) | (Entry::Fixed(_), _) => true,
                    (Entry::Partial(op), Class::Partial(held)) => op == *held,
                    (Entry::Shard { dim, .. }, Class::Shard { dim: d, kind }) => {
                        usize::from(dim) == *d && problem.kinds[slot][usize::from(letter.kind)] == *kind
                    }
                    _ => false,
                }
            })
        };
        if !(0..problem.rows[slot].len() as u16).any(takes) {
            let name = sub.printed(problem.mesh.axes());
            let are: Vec<String> = problem
                .alike
                .iter()
                .take(SHOWN)
                .map(|&a| printed(&problem.inputs[usize::from(a)].at[slot]))
                .collect();
            let more = if problem.alike.len() > SHOWN { ",.." } else { "" };
            return format!(
                "along {name} the inputs are {}{more}, and no strategy accepts these",
                are.join(",")
            );
        }
    }
    "each axis has a strategy that accepts the inputs, but no combination of them does: the axes shard a dim in \
     different orders, or a dim that must be sharded evenly does not divide"
        .to_owned()
}

fn printed(class: &Class) -> String {
    match class {
        Class::Replicate => "R".to_owned(),
        Class::Partial(op) => reshard_sharding::Placement::Partial(*op).to_string(),
        Class::Shard { dim, kind } => {
            let kind = kind.to_string();
            match kind.split_once('(') {
                None => format!("{kind}({dim})"),
                Some((name, rest)) => format!("{name}({dim},{rest}"),
            }
        }
        Class::Mixed => "sub-axes that do not divide each other".to_owned(),
    }
}
