//! Requests to the planner, and its complete answers.

use std::fmt::Write as _;

use reshard_kernels::DType;
use reshard_planner::{Arithmetic, Error, Level, Objective, Phase, Plan, Planner, SearchBudget, Topology};
use reshard_sharding::{GroupPattern, Mesh, Sharding};
use reshard_verify::Random;

use crate::answers::{chance, mesh, names, placements, shape, some_sub_axes};
use crate::ledger::{NO_PLAN, Price, price};

fn level(ranks: Option<usize>, gbytes_per_s: f64, latency_us: f64) -> Level {
    Level { ranks, gbytes_per_s, latency_us }
}

fn topology(r: &mut Random) -> (&'static str, Topology) {
    match r.below(6) {
        0 | 1 => ("uniform", Topology::uniform()),
        2 | 3 => ("h100", Topology::h100_lines()),
        4 => {
            let levels = [level(Some(4), 300.0, 1.5), level(None, 25.0, 9.0)];
            ("nodes of 4", Topology::new(5.0, 0.3, &levels).expect("monotone"))
        }
        _ => {
            let levels = [level(Some(2), 400.0, 1.0), level(Some(6), 90.0, 4.0), level(None, 20.0, 12.0)];
            ("three levels", Topology::new(6.6, 0.2, &levels).expect("monotone"))
        }
    }
}

/// Returns groups of some sub-axes of both meshes.
fn groups(r: &mut Random, meshes: [&Mesh; 2]) -> Vec<GroupPattern> {
    let mut all = Vec::new();
    for _ in 0..=r.below(4) {
        let m = meshes[r.below(2)];
        all.extend(m.group(&some_sub_axes(r, m)));
    }
    all
}

/// Returns the random numbers of request number `q`.
pub(crate) fn random(q: u64) -> Random {
    Random::new(q.wrapping_add(1 << 40))
}

/// Returns the answer to request number `q`, and its price.
pub(crate) fn answer(q: u64) -> (String, Price) {
    let mut r = random(q);
    let mut text = format!("{q}");
    let price = asked(&mut r, &mut text).unwrap_or_else(|e| {
        let _ = write!(text, " | {}", e.code());
        NO_PLAN
    });
    (text + "\n", price)
}

/// A request to the planner.
pub(crate) struct Request {
    pub(crate) planner: Planner,
    pub(crate) topology: Topology,
    pub(crate) from: Sharding,
    pub(crate) to: Sharding,
    pub(crate) dtype: DType,
}

/// Draws a request, and writes it.
pub(crate) fn request(r: &mut Random, text: &mut String) -> Result<Request, Error> {
    let a: Mesh = mesh(r).parse()?;
    let b: Mesh = if chance(r, 10) { mesh(r).parse()? } else { a.clone() };
    let whole = shape(r);
    let terms = chance(r, 45);
    let into_terms = terms && chance(r, 40);
    let (from, to) = (placements(r, &a, &whole, terms), placements(r, &b, &whole, into_terms));
    // The reduction does not change the cost, so the element type is free.
    let dtype = [DType::U8, DType::BF16, DType::F32, DType::F64][r.below(4)];
    let item = dtype.bits() / 8;
    let (network, topology) = topology(r);
    let objective = Objective::ALL[r.below(3)];
    let mut planner =
        Planner::new().topology(topology.clone()).objective(objective).arithmetic(Arithmetic::Framework);
    // The golden answers do not depend on the default budget. Without a budget, a few would take minutes.
    planner = planner.budget(SearchBudget::new(15_000_000));
    let _ = write!(text, " {a} {b} {whole:?} {from} -> {to} {item} {network} {objective}");
    let known = chance(r, 12).then(|| groups(r, [&a, &b]));
    let limit = chance(r, 14).then(|| 2 + r.below(9));
    if chance(r, 8) {
        planner = planner.deterministic(true);
        text.push_str(" in order");
    }
    let from = Sharding::parse(&a, &whole, &from)?;
    let to = Sharding::parse(&b, &whole, &to)?;
    if let Some(known) = known {
        text.push_str(" of ");
        for group in &known {
            let _ = write!(text, "{group};");
        }
        planner = planner.with_groups(known);
    }
    if let Some(quarters) = limit {
        let bytes =
            (from.max_local_numel() + to.max_local_numel()) as u64 * item as u64 * quarters as u64 / 4;
        let _ = write!(text, " within {bytes}");
        planner = planner.max_peak_bytes(bytes);
    }
    Ok(Request { planner, topology, from, to, dtype })
}

fn asked(r: &mut Random, text: &mut String) -> Result<Price, Error> {
    let Request { planner, topology, from, to, dtype } = request(r, text)?;
    if let Ok(us) = planner.lower_bound_us(&from, &to, dtype) {
        let _ = write!(text, " >= {:x}", us.to_bits());
    }
    let plan = planner.plan(&from, &to, dtype)?;
    write_plan(text, &plan);
    for (group, us) in planner.group_savings(&plan)? {
        let _ = write!(text, " | {group} saves {:x}", us.to_bits());
    }
    let ranks = plan.ranks();
    let rank = ranks[r.below(ranks.len())];
    for (step, phase) in plan.phases(rank)? {
        let _ = write!(text, " | {rank} in {step}:");
        write_phase(text, &phase);
    }
    if chance(r, 5) {
        let explained = planner.explain(&from, &to, dtype)?.to_string();
        let _ = write!(text, " | {}", facts(&explained));
    }
    Ok(price(&plan, &topology))
}

/// Returns the facts of an explanation: its lines with figures, without the candidates and without prose.
fn facts(text: &str) -> String {
    let (plan, rest) = text.split_once("\ncandidates, by ").unwrap_or((text, ""));
    let greedy = rest.find("\naxis by axis").map_or("", |at| &rest[at..]);
    let is_fact = |line: &&str| match line.strip_prefix("       ") {
        Some(detail) => ["dim ", "partial: ", "ranks "].iter().any(|start| detail.starts_with(start)),
        None => line.contains(|c: char| c.is_ascii_digit()),
    };
    plan.lines().chain(greedy.lines()).filter(is_fact).collect::<Vec<_>>().join("\n")
}

fn write_plan(text: &mut String, plan: &Plan) {
    let _ = write!(
        text,
        " = {} {:?} {:x} {:x} {} {}",
        plan.received_bytes(),
        plan.lower_bound_bytes(),
        plan.cost_us().to_bits(),
        plan.lower_bound_us().to_bits(),
        plan.peak_bytes(),
        plan.max_shard_bytes()
    );
    for s in plan.steps() {
        let (mesh, axes) = (s.before.mesh(), &s.axes);
        let _ = write!(
            text,
            " | {} {} {} {} -> {} {} {} {:x}",
            s.op(),
            names(mesh, axes),
            s.group,
            s.before,
            s.after,
            s.received_bytes,
            s.sent_bytes,
            s.cost_us.to_bits()
        );
    }
}

/// Writes a phase, except for blocks beyond the first fifty of a message.
fn write_phase(text: &mut String, phase: &Phase) {
    let _ = write!(text, " {} {} {:?}", phase.source_len, phase.target_len, phase.members);
    if let Some(op) = phase.fill_identity {
        let _ = write!(text, " fill {op}");
    }
    if let Some(reduce) = phase.reduce {
        let _ = write!(text, " {} / {}", reduce.op, reduce.divisor);
    }
    for (name, messages) in [("<-", &phase.receives), ("->", &phase.sends)] {
        for m in messages {
            let _ = write!(text, " {name} {}", m.peer);
            for block in m.blocks.iter().take(50) {
                let _ = write!(text, " {} {}", block.source_offset, block.target_offset);
                for m in block.modes.iter().rev() {
                    let _ = write!(text, "({} {} {})", m.extent, m.stride.0, m.stride.1);
                }
            }
        }
    }
}
