//! Why there is no program, and what to write.

use crate::Error;
use crate::along::{self, Along};
use crate::elaborate::ShardingSolver;
use crate::elaborate::at_hand::AtHand;
use crate::elaborate::moves::{ImplicitRedistribution, TypeId, Types};
use crate::elaborate::search::{Frontier, Step};
use crate::elaborate::ways::Way;
use crate::graph::{Given, Graph, GraphStatement, ValueId};
use crate::wire;
use reshard_kernels::DType;
use reshard_ops::rules::OpCall;
use reshard_sharding::{Mesh, Sharding, ShardingType};

/// A written move that no plan makes.
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
        && let Err(e) = wire::plan(&elaborator.planner, &a.value, &b.value, graph.dtype(from), via)
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
    let why = forward.or_else(|| Some(format!("its gradient cannot be moved back: {}", backward()?)));
    let why = why.unwrap_or_else(|| "its gradient cannot be moved back".to_owned());
    Error::Graph { reason: format!("{} = {}: {why}", graph.name(to), graph.name(from)) }
}

/// A written move along some axes that nothing leads to.
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
    let wanted = along::written(partly, graph.mesh());
    let name = graph.name(from);
    Error::Graph {
        reason: format!(
            "{name} is {} and cannot be {wanted}: write a move to what it is to be along every axis",
            is.join(" or ")
        ),
    }
}

/// How many ways out an error names.
const FIXES: usize = 3;

/// One way out: the moves to write, and what they cost.
struct Fix {
    cost: u64,
    moves: Vec<(ValueId, TypeId, TypeId)>,
    after: Vec<(ValueId, TypeId, TypeId)>,
}

/// An op that no state and no way lets run with the moves that are allowed.
pub(crate) fn no_way(
    types: &mut Types,
    elaborator: &ShardingSolver,
    graph: &Graph,
    statement: &GraphStatement,
    frontier: &Frontier,
    step: Step<'_>,
) -> Error {
    let GraphStatement::Op { call, inputs, outputs, .. } = statement else {
        return Error::Graph { reason: "a statement that is no op".to_owned() };
    };
    let names: Vec<&str> = inputs.iter().map(|&v| graph.name(v)).collect();
    let what = format!("{call}({})", names.join(", "));
    let first = frontier.first();
    let Some(state) = first.as_ref() else {
        return Error::Graph { reason: format!("{what}: nothing leads to it") };
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
        return Error::Graph { reason: format!("{what}: {}, and no strategy of it fits", has.join(" and ")) };
    }
    // Where values fit as they are, the gradients are what is wrong.
    let same = |f: &Fix, types: &Types| {
        f.moves.iter().chain(&f.after).all(|(_, a, b)| types.get(*a).value == types.get(*b).value)
    };
    fixes.sort_by_key(|f| (gradient_only && !same(f, types), f.cost));
    let along = fixes.first().map(|f| difference(types, graph, f)).unwrap_or_default();
    let texts: Vec<String> = fixes.iter().take(FIXES).map(|f| text(elaborator, types, graph, f)).collect();
    let allowed = match elaborator.implicit_redistribution {
        ImplicitRedistribution::Allow => "which nothing leads to",
        ImplicitRedistribution::LocalOnly => "which takes communication that is not written",
        ImplicitRedistribution::Deny => "which takes a move that is not written",
    };
    Error::NeedsRedistribute {
        gradient_only,
        reason: format!("{what}: {}; {along}, {allowed}", has.join(" and ")),
        fixes: format!("write {}", texts.join(" or ")),
    }
}

/// The moves that a way takes from a state.
fn fix(
    types: &mut Types,
    at_hand: &dyn Fn(ValueId) -> AtHand,
    way: &Way,
    inputs: &[ValueId],
    outputs: &[ValueId],
    made: &[(usize, Option<TypeId>)],
) -> Option<Fix> {
    let mut out = Fix { cost: way.picoseconds, moves: Vec::new(), after: Vec::new() };
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

/// Where the first move of a way out starts and ends, axis by axis where it can be said so; one between meshes before others.
fn difference(types: &Types, graph: &Graph, fix: &Fix) -> String {
    let across = |(_, from, to): &&(ValueId, TypeId, TypeId)| {
        types.get(*from).value.mesh() != types.get(*to).value.mesh()
    };
    let before = fix.moves.iter().find(across).or(fix.moves.first());
    let (first, verb) = match (before, fix.after.first()) {
        (Some(first), _) => (first, "has to be"),
        (None, Some(first)) => (first, "comes out as"),
        (None, None) => return "computing differs".to_owned(),
    };
    let (v, from, to) = first;
    let (a, b) = if verb == "has to be" { (from, to) } else { (to, from) };
    let (a, b) = (types.get(*a), types.get(*b));
    let words = |t: &ShardingType| -> Vec<String> { t.to_string().split(',').map(str::to_owned).collect() };
    let (has, wants) = (words(a), words(b));
    let axes = a.value.mesh().axes();
    let name = graph.name(*v);
    if a.value.mesh() == b.value.mesh() && has.len() == axes.len() && wants.len() == axes.len() {
        let differs = (0..axes.len()).filter(|&i| has[i] != wants[i]);
        let texts: Vec<String> = differs
            .map(|i| format!("along {} {name} is {} and {verb} {}", axes[i].name(), has[i], wants[i]))
            .collect();
        return texts.join(", ");
    }
    let mesh = graph.meshes.name(b.value.mesh()).unwrap_or_default();
    format!("{name} is {} and {verb} {b} on {mesh}", graph.meshes.type_text(a))
}

/// `scale.1: S(0),R = scale (all_reduce backward, 64 bytes)`.
fn text(elaborator: &ShardingSolver, types: &Types, graph: &Graph, fix: &Fix) -> String {
    let one = |(v, from, to): &(ValueId, TypeId, TypeId)| {
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
        let price = if both.is_empty() { "free".to_owned() } else { both.join("; ") };
        (graph.meshes.type_text(b), price)
    };
    let before = fix.moves.iter().map(|m| {
        let (is, price) = one(m);
        let name = graph.name(m.0);
        format!("{name}.1: {is} = {name} ({price})")
    });
    let after = fix.after.iter().map(|m| {
        let (_, price) = one(m);
        let name = graph.name(m.0);
        let is = graph.meshes.type_text(types.get(m.2));
        format!("{name} as what is made and then {name}.1: {is} of it ({price})")
    });
    before.chain(after).collect::<Vec<_>>().join(" and ")
}

/// Why an op cannot run as somebody says.
pub(crate) fn no_strategy(graph: &Graph, mesh: &Mesh, call: &OpCall, by: &[Given], inputs: usize) -> Error {
    let texts: Vec<String> = by.iter().map(|given| graph.given(given)).collect();
    let (takes, makes) = texts.split_at(inputs);
    let (takes, makes) = (takes.join("; "), makes.join("; "));
    let here = |given: &Given| match given {
        Given::Whole(is) => is.mesh() == mesh,
        Given::Along(_) => graph.mesh() == mesh,
    };
    let way_out = if by.iter().all(here) {
        "see its rules (reshard rule), or leave out by and have one chosen".to_owned()
    } else {
        let name = graph.meshes.name(mesh).unwrap_or_default();
        format!("it runs on {name}, so its shardings are on that, like {} on {name}", texts[0])
    };
    Error::Graph { reason: format!("{call} has no strategy {takes} -> {makes} here: {way_out}") }
}
