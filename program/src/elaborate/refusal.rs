//! Errors of the solver: the reason why there is no program, and the lines to write.

use crate::Error;
use crate::comm_dtype;
use crate::elaborate::ShardingSolver;
use crate::elaborate::at_hand::AtHand;
use crate::elaborate::implicit::ImplicitRedistribution;
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::search::{Frontier, Step};
use crate::elaborate::ways::Way;
use crate::graph::{Given, Graph, GraphStatement, ValueId};
use crate::local_type::{self, Along};
use crate::notation::call_text;
use reshard_kernels::DType;
use reshard_ops::rules::OpCall;
use reshard_sharding::{Mesh, Sharding, ShardingType};

/// Returns the error for an explicit redistribution that no plan implements.
pub(crate) fn no_plan(
    types: &Types,
    elaborator: &ShardingSolver,
    graph: &Graph,
    (from, to, via): (ValueId, ValueId, Option<DType>),
    frontier: &Frontier,
) -> Error {
    let first = frontier.first();
    let is = first
        .and_then(|s| types.sets.of(frontier.of(&s, from.0)).first().copied())
        .map(|id| types.get(id).clone());
    let wanted = graph.constraint(to);
    if let (Some(via), Some(a), Some(b)) = (via, &is, wanted)
        && let Err(e) = comm_dtype::plan(&elaborator.planner, &a.value, &b.value, graph.dtype(from), via)
    {
        return e;
    }
    let why_not = |a: &Sharding, b: &Sharding| {
        elaborator.planner.plan(a, b, graph.dtype(from)).err().map(|e| e.to_string())
    };
    let forward = is.as_ref().zip(wanted).and_then(|(a, b)| why_not(&a.value, &b.value));
    let backward = || {
        let gradients = is.as_ref()?.gradient.as_ref().zip(wanted?.gradient.as_ref());
        gradients.and_then(|(to, from)| why_not(from, to))
    };
    let why = forward.or_else(|| Some(format!("its gradient cannot be redistributed back: {}", backward()?)));
    let why = why.unwrap_or_else(|| "its gradient cannot be redistributed back".to_owned());
    Error::Graph { reason: format!("{} = {}: {why}", graph.name(to), graph.name(from)) }
}

/// Returns the error for an explicit redistribution along some axes that is impossible from every state.
pub(crate) fn no_part(
    types: &Types,
    graph: &Graph,
    from: ValueId,
    partly: &[(usize, Along)],
    frontier: &Frontier,
) -> Error {
    let first = frontier.first();
    let at_hand = first.as_ref().map_or(&[][..], |s| types.sets.of(frontier.of(s, from.0)));
    let is: Vec<String> = at_hand.iter().map(|&id| graph.meshes.type_text(types.get(id))).collect();
    let wanted = local_type::written(partly, graph.mesh());
    let name = graph.name(from);
    Error::Graph {
        reason: format!(
            "`{name}` is {} and cannot become {wanted}; write a placement for every axis",
            is.join(" or ")
        ),
    }
}

/// A call, with the strategy that its statement requires.
type Called<'a> = (&'a OpCall, Option<&'a [Given]>);

/// The maximum number of fixes that an error lists.
const FIXES: usize = 3;

/// A fix: the redistributions to write, and their cost.
struct Fix {
    cost: u64,
    /// The types in which the op gets its inputs.
    inputs: Vec<TypeId>,
    moves: Vec<(ValueId, TypeId, TypeId)>,
    after: Vec<(ValueId, TypeId, TypeId)>,
}

/// Returns the error for an op that no strategy can run with the allowed redistributions.
pub(crate) fn no_way(
    types: &mut Types,
    elaborator: &ShardingSolver,
    graph: &Graph,
    statement: &GraphStatement,
    frontier: &Frontier,
    step: Step<'_>,
) -> Error {
    let GraphStatement::Op { call, inputs, outputs, by, .. } = statement else {
        return Error::Graph { reason: "the statement is not an op".to_owned() };
    };
    let what = shown(graph, call, inputs, outputs);
    let first = frontier.first();
    let Some(state) = first.as_ref() else {
        return Error::Graph { reason: format!("{what}: no types of its inputs are possible") };
    };
    let has: Vec<String> = (inputs.iter())
        .filter_map(|v| {
            let is = types.get(*types.sets.of(frontier.of(state, v.0)).first()?);
            Some(format!("{} is {}", graph.name(*v), graph.meshes.type_text(is)))
        })
        .collect();
    let mut fixes: Vec<Fix> = Vec::new();
    let mut gradient_only = false;
    for way in &step.ways.list {
        let at_hand = |v: ValueId| frontier.of(state, v.0);
        let Some(fix) = fix(types, &at_hand, way, inputs, outputs, step.outputs) else { continue };
        let same_values =
            fix.moves.iter().chain(&fix.after).all(|(_, a, b)| types.get(*a).value == types.get(*b).value);
        gradient_only |= same_values;
        fixes.push(fix);
    }
    if fixes.is_empty() {
        return Error::Graph {
            reason: format!("{what}: {}, and no strategy of the op fits", has.join(" and ")),
        };
    }
    // If the values fit as they are, only the gradients are wrong.
    let same = |f: &Fix, types: &Types| {
        f.moves.iter().chain(&f.after).all(|(_, a, b)| types.get(*a).value == types.get(*b).value)
    };
    fixes.sort_by_key(|f| (gradient_only && !same(f, types), f.cost));
    let along = fixes.first().map(|f| difference(types, graph, f)).unwrap_or_default();
    let op = (call, by.as_deref());
    let texts: Vec<String> = (fixes.iter().take(FIXES))
        .map(|f| text(elaborator, types, graph, (op, (inputs, outputs)), f))
        .collect();
    let allowed = match elaborator.implicit_redistribution {
        ImplicitRedistribution::Allow => "which cannot be reached by a redistribution",
        ImplicitRedistribution::LocalOnly => "which needs communication that is not written",
        ImplicitRedistribution::Deny => "which needs a redistribution that is not written",
    };
    Error::NeedsRedistribute {
        gradient_only,
        reason: format!("{what}: {}; {along}, {allowed}", has.join(" and ")),
        fixes: format!("write {}", texts.join(", or ")),
    }
}

/// Returns the redistributions that a strategy needs from a state.
fn fix(
    types: &mut Types,
    at_hand: &dyn Fn(ValueId) -> AtHand,
    way: &Way,
    inputs: &[ValueId],
    outputs: &[ValueId],
    made: &[(usize, Option<TypeId>)],
) -> Option<Fix> {
    let mut out =
        Fix { cost: way.picoseconds, inputs: way.inputs.to_vec(), moves: Vec::new(), after: Vec::new() };
    for (v, &wanted) in inputs.iter().zip(&way.inputs) {
        let at_hand = at_hand(*v);
        if types.sets.of(at_hand).contains(&wanted)
            || out.moves.iter().any(|(known, _, to)| known == v && *to == wanted)
        {
            continue;
        }
        let (from, cost) = types.cheapest(at_hand, wanted, ImplicitRedistribution::Allow)?;
        out.cost = out.cost.saturating_add(cost);
        out.moves.push((*v, from, wanted));
    }
    for ((v, (_, pin)), &is) in outputs.iter().zip(made).zip(&way.outputs) {
        let Some(pin) = pin.filter(|pin| *pin != is) else { continue };
        let cost = types.price(is, pin)?;
        out.cost = out.cost.saturating_add(cost);
        out.after.push((*v, is, pin));
    }
    Some(out)
}

/// Describes where the first redistribution of a fix starts and ends, by axis if possible.
///
/// A redistribution between meshes comes first.
fn difference(types: &Types, graph: &Graph, fix: &Fix) -> String {
    let across = |(_, from, to): &&(ValueId, TypeId, TypeId)| {
        types.get(*from).value.mesh() != types.get(*to).value.mesh()
    };
    let before = fix.moves.iter().find(across).or(fix.moves.first());
    let ((v, a, b), is, verb) = match (before, fix.after.first()) {
        (Some((v, from, to)), _) => ((v, from, to), "is", "and has to be"),
        (None, Some((v, from, to))) => ((v, to, from), "is declared", "but the op computes"),
        (None, None) => return "its strategy differs".to_owned(),
    };
    let (a, b) = (types.get(*a), types.get(*b));
    let words = |t: &ShardingType| -> Vec<String> { t.to_string().split(',').map(str::to_owned).collect() };
    let (has, wants) = (words(a), words(b));
    let axes = a.value.mesh().axes();
    let name = graph.name(*v);
    if a.value.mesh() == b.value.mesh() && has.len() == axes.len() && wants.len() == axes.len() {
        let differs = (0..axes.len()).filter(|&i| has[i] != wants[i]);
        let texts: Vec<String> = differs
            .map(|i| format!("along {} {name} {is} {} {verb} {}", axes[i].name(), has[i], wants[i]))
            .collect();
        return texts.join(", ");
    }
    let mesh = graph.meshes.name(b.value.mesh()).unwrap_or_default();
    format!("{name} {is} {} {verb} {b} on {mesh}", graph.meshes.type_text(a))
}

/// Formats a call with its results and operands: `y = softmax(x, dim=0)`.
///
/// Results inside a decomposition have no name in the text, so they are omitted.
fn shown(graph: &Graph, call: &OpCall, inputs: &[ValueId], outputs: &[ValueId]) -> String {
    let call = call_text(call, inputs.iter().map(|&v| graph.name(v).to_owned()));
    if outputs.iter().any(|v| graph.values[v.0].part) {
        return call;
    }
    let names: Vec<&str> = outputs.iter().map(|&v| graph.name(v)).collect();
    format!("{} = {call}", names.join(", "))
}

/// Formats a fix as the lines to write instead of a statement, joined by `and`.
///
/// `` `x.1: S(0),R = x` (all_reduce backward, 64 bytes) and `y = mul(x.1, w)` ``.
fn text(
    elaborator: &ShardingSolver,
    types: &Types,
    graph: &Graph,
    (op, (inputs, outputs)): (Called<'_>, (&[ValueId], &[ValueId])),
    fix: &Fix,
) -> String {
    let price = |(v, from, to): &(ValueId, TypeId, TypeId)| {
        let (a, b) = (types.get(*from), types.get(*to));
        let dtype = graph.dtype(*v);
        let way = |a, b, which: &str| -> Option<String> {
            let plan = elaborator.planner.plan(a, b, dtype).ok()?;
            let ops: Vec<String> =
                plan.steps().iter().filter(|s| s.op().communicates()).map(|s| s.op().to_string()).collect();
            (!ops.is_empty())
                .then(|| format!("{} {which}, {} bytes", ops.join(" and "), plan.received_bytes()))
        };
        let back =
            a.gradient.as_ref().zip(b.gradient.as_ref()).and_then(|(to, from)| way(from, to, "backward"));
        let both: Vec<String> = way(&a.value, &b.value, "forward").into_iter().chain(back).collect();
        if both.is_empty() { "free".to_owned() } else { both.join("; ") }
    };
    // A name that is taken would make the written lines invalid.
    let mut used: Vec<String> = Vec::new();
    let mut fresh = |v: ValueId| {
        let mut names = (1usize..).map(|n| format!("{}.{n}", graph.name(v)));
        let copy = names.find(|copy| !graph.knows(copy) && !used.contains(copy)).unwrap_or_default();
        used.push(copy.clone());
        copy
    };
    let is = |id: TypeId| graph.meshes.type_text(types.get(id));
    let mut lines: Vec<String> = Vec::new();
    let mut copies: Vec<(ValueId, TypeId, String)> = Vec::new();
    for row in &fix.moves {
        let (v, _, to) = *row;
        let copy = fresh(v);
        lines.push(format!("`{copy}: {} = {}` ({})", is(to), graph.name(v), price(row)));
        copies.push((v, to, copy));
    }
    if inputs.iter().chain(outputs).any(|v| graph.values[v.0].part) {
        // The text has the op of which this one is a part, and that one takes the copies.
        let replaced = copies.iter().map(|(v, _, copy)| format!("pass {copy} instead of {}", graph.name(*v)));
        lines.extend(replaced);
        return all_of(&lines);
    }
    let operand = |(v, wanted): (&ValueId, &TypeId)| {
        let copy = copies.iter().find(|(known, to, _)| known == v && to == wanted);
        copy.map_or_else(|| graph.name(*v).to_owned(), |(_, _, copy)| copy.clone())
    };
    let operands: Vec<String> = inputs.iter().zip(&fix.inputs).map(operand).collect();
    let mut results: Vec<(String, Option<String>)> = Vec::new();
    let mut after: Vec<String> = Vec::new();
    for &v in outputs {
        let Some(row) = fix.after.iter().find(|(known, _, _)| *known == v) else {
            results.push((graph.name(v).to_owned(), graph.constraint(v).map(|t| graph.meshes.type_text(t))));
            continue;
        };
        let (_, made, to) = *row;
        let copy = fresh(v);
        after.push(format!("`{}: {} = {copy}` ({})", graph.name(v), is(to), price(row)));
        results.push((copy, Some(is(made))));
    }
    lines.push(format!("`{}`", graph.op_text(op, (inputs, outputs), &operands, &results)));
    lines.extend(after);
    all_of(&lines)
}

/// Joins lines: `a, b and c`.
fn all_of(lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns the error for an op that cannot run with the declared types.
pub(crate) fn no_strategy(graph: &Graph, mesh: &Mesh, call: &OpCall, by: &[Given], inputs: usize) -> Error {
    let texts: Vec<String> = by.iter().map(|given| graph.given(given)).collect();
    let (takes, makes) = texts.split_at(inputs);
    let (takes, makes) = (takes.join("; "), makes.join("; "));
    let here = |given: &Given| match given {
        Given::Whole { value, .. } => value.mesh() == mesh,
        Given::Along(_) => graph.mesh() == mesh,
    };
    let way_out = if by.iter().all(here) {
        "list its strategies with `reshard rule`, or omit `by` to have one chosen".to_owned()
    } else {
        let name = graph.meshes.name(mesh).unwrap_or_default();
        let bare = texts[0].split(" on ").next().unwrap_or_default();
        format!("it runs on {name}, so write shardings on that mesh, such as `{bare} on {name}`")
    };
    Error::Graph { reason: format!("{call} has no strategy `{takes} -> {makes}` here; {way_out}") }
}
