//! The properties of a cost model, as a check for any implementation.

use reshard_kernels::DType;
use std::sync::Arc;

use crate::Error;
use crate::model::load::{LevelTraffic, Span, StepTraffic, Traffic};
use crate::model::{CostModel, MinTraffic};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::planner::Planner;
use reshard_sharding::{GroupPattern, Mesh, Sharding};

/// Maximum number of pairs of shardings for which plans are made.
const PAIRS: usize = 100;

/// Checks that a model satisfies the properties of [`CostModel`] for groups, loads and plans on a mesh.
///
/// The error is the first property that it violates, with the numbers. The check covers groups of every one
/// and two axes, loads over many sizes with each number raised in turn, and plans between placements of a 2-D
/// tensor.
///
/// ```
/// use std::sync::Arc;
/// use reshard_sharding::Mesh;
/// use reshard_planner::{Topology, check_cost_model};
/// check_cost_model(Arc::new(Topology::h100()), &"dp=2,tp=8".parse::<Mesh>()?)?;
/// # Ok::<(), reshard_planner::Error>(())
/// ```
#[allow(clippy::needless_pass_by_value, reason = "as a planner takes it")]
pub fn check_cost_model(model: Arc<dyn CostModel>, mesh: &Mesh) -> Result<(), Error> {
    let planner = Planner::new().cost_model(Arc::clone(&model))?;
    says_one_thing(&*model)?;
    costs_are_monotone(&*model, mesh)?;
    bounds_are_monotone(&*model)?;
    plans_keep_the_bounds(&*model, &planner, mesh)
}

fn broken<T>(reason: String) -> Result<T, Error> {
    Err(Error::Topology { reason })
}

/// Checks that the text is one line and the same each time.
fn says_one_thing(model: &dyn CostModel) -> Result<(), Error> {
    let (text, again) = (model.cache_key(), model.cache_key());
    if text.is_empty() || text.contains('\n') || text != again {
        return broken(format!(
            "the cache key of a cost model must be one line, equal on each call, not {text:?} and {again:?}"
        ));
    }
    Ok(())
}

/// Returns the groups of one axis, and of two.
fn groups(mesh: &Mesh) -> Result<Vec<GroupPattern>, Error> {
    let names: Vec<&str> = mesh.axes().iter().map(|a| a.name().as_str()).collect();
    let mut groups = Vec::new();
    for (i, a) in names.iter().enumerate() {
        groups.push(mesh.group_of_axes(&[a])?);
        for b in &names[i + 1..] {
            groups.push(mesh.group_of_axes(&[a, b])?);
        }
    }
    groups.retain(|g| g.size() > 1);
    Ok(groups)
}

fn load_of<'a>(
    group: &'a GroupPattern,
    op: StepOp,
    traffic: &'a Traffic,
    received_and_held: [u64; 2],
) -> StepTraffic<'a> {
    StepTraffic::counted(op, traffic, received_and_held, Span::Group(group))
}

/// Checks that a cost is a number from 0, that more bytes reduce neither it nor the floor of exchanges, and
/// that more peers do not reduce the floor.
fn costs_are_monotone(model: &dyn CostModel, mesh: &Mesh) -> Result<(), Error> {
    let levels = model.levels().len();
    for group in groups(mesh)? {
        let cost = |load: &StepTraffic<'_>| -> Result<f64, Error> {
            let us = model.cost_us(load);
            if us.is_finite() && us >= 0.0 && us.to_bits() == model.cost_us(load).to_bits() {
                return Ok(us);
            }
            broken(format!(
                "{} returns {us} us for {load:?}: a cost must be finite and at least 0",
                model.cache_key()
            ))
        };
        let others = group.size() - 1;
        let communicating = |op: &StepOp| op.communicates() && *op != StepOp::AllToAll;
        for op in StepOp::ALL.into_iter().filter(communicating) {
            for bytes in [0u64, 1, 1 << 10, 1 << 20, 1 << 40] {
                // Peers at as many levels as there are others, up to as many as fit at each.
                let talking = levels.min(others);
                for peers in [1, 2, 4, others / talking].into_iter().filter(|peers| peers * talking <= others)
                {
                    let at = LevelTraffic { bytes: bytes as f64, peers };
                    let mut traffic = Traffic::from_elem(LevelTraffic::default(), levels);
                    traffic[..talking].fill(at);
                    let load = load_of(&group, op, &traffic, [bytes, bytes]);
                    let before = cost(&load)?;
                    let floor = model.exchange_floor_us(&load);
                    if op == StepOp::Exchange && !(0.0..=before).contains(&floor) {
                        return broken(format!(
                            "{}: {load:?} takes {before} us, less than its exchange_floor_us of {floor} us",
                            model.cache_key()
                        ));
                    }
                    let less = |load: &StepTraffic<'_>, [before, after]: [f64; 2], what: &str| {
                        let text = model.cache_key();
                        broken(format!(
                            "{text}: {what} of {op} over {group} is {before} us with {bytes} bytes from {peers} peers at \
                             each level, and less, {after} us, with more: {load:?}"
                        ))
                    };
                    let mut more = vec![(traffic.clone(), bytes + 1 + bytes / 2, bytes)];
                    more.push((traffic.clone(), bytes, bytes + 1 + bytes / 2));
                    for l in 0..talking {
                        let mut grown = traffic.clone();
                        grown[l].bytes = at.bytes * 1.5 + 1.0;
                        more.push((grown, bytes, bytes));
                    }
                    for (traffic, received, peak) in &more {
                        let load = load_of(&group, op, traffic, [*received, *peak]);
                        let after = cost(&load)?;
                        if after < before {
                            return less(&load, [before, after], "the cost");
                        }
                    }
                    if op != StepOp::Exchange {
                        continue;
                    }
                    for l in (0..talking).filter(|_| peers * talking < others) {
                        let mut grown = traffic.clone();
                        grown[l].peers += 1;
                        more.push((grown, bytes, bytes));
                    }
                    for (traffic, received, peak) in &more {
                        let load = load_of(&group, op, traffic, [*received, *peak]);
                        let after = model.exchange_floor_us(&load);
                        if after < floor {
                            return less(&load, [floor, after], "the exchange_floor_us");
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Checks that no need takes no time, and that a larger need takes no less time.
fn bounds_are_monotone(model: &dyn CostModel) -> Result<(), Error> {
    let levels = model.levels().len();
    let text = model.cache_key();
    let nothing = vec![MinTraffic { bytes: 0.0, domains: 1, domain_size: 1 }; levels];
    let none = model.lower_bound_us(&nothing);
    if none != 0.0 || model.lower_bound_us(&[]) != 0.0 {
        return broken(format!("{text}: without traffic the least time is 0, not {none} us"));
    }
    for l in 0..levels {
        let (mut least, mut last) = (0.0, 0.0);
        for bytes in [0.0, 1.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e8, 1e12] {
            for domains in [2, 8] {
                let mut need = nothing.clone();
                need[..=l].fill(MinTraffic { domains, ..MinTraffic::bytes(bytes) });
                let us = model.lower_bound_us(&need);
                // Sums in another order differ in the last digits.
                let ordered = us.is_finite() && us >= least * (1.0 - 1e-12);
                if !ordered {
                    return broken(format!(
                        "{text}: {bytes} bytes of {domains} domains beyond level {l} take {us} us at least, and fewer, {last} bytes, \
                         {least} us"
                    ));
                }
                if domains == 2 {
                    (least, last) = (us, bytes);
                }
            }
        }
    }
    Ok(())
}

/// Checks that no plan takes less than its bounds, and no step less than the least step.
fn plans_keep_the_bounds(model: &dyn CostModel, planner: &Planner, mesh: &Mesh) -> Result<(), Error> {
    let mut texts = vec![String::new()];
    for _ in mesh.axes() {
        let with =
            |text: &String, p: &str| if text.is_empty() { p.to_owned() } else { format!("{text},{p}") };
        texts =
            texts.iter().flat_map(|t| ["R", "S(0)", "S(1)", "P"].map(|p| with(t, p))).take(1 << 10).collect();
    }
    let side = mesh.size().saturating_mul(8).min(1 << 20);
    let shardings: Vec<Sharding> =
        texts.iter().map(|text| Sharding::parse(mesh, &[side, side], text)).collect::<Result<_, _>>()?;
    let all = shardings.len() * shardings.len();
    let least = model.lower_bound_us(&MinTraffic::STEP);
    for pair in (0..all).step_by(all.div_ceil(PAIRS) | 1) {
        let (from, to) = (&shardings[pair / shardings.len()], &shardings[pair % shardings.len()]);
        for objective in Objective::ALL {
            let planner = planner.clone().objective(objective);
            let plan = planner.plan(from, to, DType::F32)?;
            let bound = planner.lower_bound_us(from, to, DType::F32)?.max(plan.lower_bound_us());
            // Sums in another order differ in the last digits.
            if plan.cost_us() < bound * (1.0 - 1e-9) {
                return broken(format!(
                    "{}: a plan takes {} us, less than its lower_bound_us of {bound} us: {plan}",
                    model.cache_key(),
                    plan.cost_us()
                ));
            }
            for step in plan.steps().iter().filter(|s| s.op().communicates()) {
                if step.cost_us < least * (1.0 - 1e-9) {
                    return broken(format!(
                        "{}: a step takes {} us, less than the lower_bound_us of {least} us of every step: {step}",
                        model.cache_key(),
                        step.cost_us
                    ));
                }
            }
        }
    }
    Ok(())
}
