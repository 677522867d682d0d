//! Plans of steps that are known: what they hold at most, what one rank receives in all of them, and what no plan can do
//! without.

use smallvec::SmallVec;

use crate::Error;
use crate::model::Need;
use crate::plan::Plan;
use crate::question::COUNTED;
use crate::question::Question;
use crate::regions::intersection::Intersection;
use crate::states::ends::Ends;
use crate::states::system::codes;
use crate::step::{Action, Moves, Step};

/// The plan of these steps, with its bounds. What one rank receives in all of them is counted rank by rank, unless the
/// caller knows it.
pub(crate) fn assemble(
    q: &Question<'_>,
    steps: Vec<Step>,
    ends: Option<&Ends>,
    received: Option<u64>,
) -> Result<Plan, Error> {
    let [from, to] = q.shared().clone();
    let mut shards = from.max_local_numel().max(to.max_local_numel());
    let mut peak = shards as u64 * q.item;
    for s in &steps {
        peak = peak.max(s.peak_bytes);
        shards = shards.max(s.after.max_local_numel());
    }
    let (lower_bound_bytes, lower_bound_us) = lower_bounds(q, ends)?;
    let mut plan = Plan {
        from,
        to,
        options: q.options.clone(),
        dtype: q.dtype,
        received_bytes: received.unwrap_or_else(|| steps.iter().map(|s| s.received_bytes).sum()),
        steps,
        lower_bound_bytes,
        lower_bound_us,
        peak_bytes: peak,
        max_shard_bytes: shards as u64 * q.item,
    };
    let ranks = plan.from.mesh().size().max(plan.to.mesh().size());
    let alike = |s: &Step| q.on_one_mesh() && is_same_for_all(s);
    let differ = || plan.steps.iter().filter(|s| !alike(s)).count() > 1;
    if received.is_none() && ranks <= COUNTED && differ() {
        plan.received_bytes = total_received(&plan)?;
    }
    Ok(plan)
}

/// What no plan can do without: bytes (not with partial targets) and time.
fn lower_bounds(q: &Question<'_>, ends: Option<&Ends>) -> Result<(Option<u64>, f64), Error> {
    if q.to.is_partial() {
        return Ok((None, 0.0));
    }
    if q.is_trivial() {
        return Ok((Some(0), 0.0));
    }
    let model = q.network.model;
    if let Some(ends) = ends {
        let (s, t) = (codes(&ends.from, &ends.from), codes(&ends.to, &ends.from));
        let elements = |level: usize| q.elements_needed(&ends.bounding, [&s, &t], level);
        // Over whole elements.
        let least = elements(0);
        let bytes = (least - 1e-6).max(0.0).ceil() as u64 * q.item;
        let mut needs: SmallVec<[Need; 3]> = SmallVec::new();
        needs.push(Need::bytes(least * q.item as f64));
        for level in 1..q.network.levels() {
            needs.push(Need::bytes(elements(level) * q.item as f64));
        }
        return Ok((Some(bytes), if bytes == 0 { 0.0 } else { model.least_us(&needs) }));
    }
    let overlap = Intersection::new(q.from, q.to);
    let mut worst = 0u64;
    for rank in q.to.mesh().ranks() {
        let (wanted, held) = overlap.wanted_and_held(rank)?;
        // Of a reduction no rank holds any value yet.
        let held = if q.from.is_partial() { 0 } else { held };
        worst = worst.max((wanted - held) as u64);
    }
    let bytes = worst * q.item;
    Ok((Some(bytes), model.least_us(&[Need::bytes(bytes as f64)])))
}

/// Whether every rank receives the same in a step.
fn is_same_for_all(s: &Step) -> bool {
    match &*s.action {
        Action::Slice(_)
        | Action::ZeroFill(_)
        | Action::AllGather(Moves::Modes { .. })
        | Action::AllToAll(Moves::Modes { .. })
        | Action::ReduceScatter(Moves::Modes { .. }, _)
        | Action::OrderedReduce(Moves::Modes { .. }, _) => true,
        Action::AllReduce(_) => {
            s.before.layout().is_some() && s.before.max_local_numel().is_multiple_of(s.group.size())
        }
        Action::Exchange(_)
        | Action::AllGather(Moves::Regions(_))
        | Action::AllToAll(Moves::Regions(_))
        | Action::ReduceScatter(Moves::Regions(_), _)
        | Action::OrderedReduce(Moves::Regions(_), _) => false,
    }
}

/// The greatest total that one rank receives.
fn total_received(plan: &Plan) -> Result<u64, Error> {
    let ranks = plan.ranks();
    let mut totals = vec![0u64; ranks.len()];
    for (i, step) in plan.steps.iter().enumerate() {
        // Where regions only move, whom a rank hears from is known without the blocks.
        let meetings = match &*step.action {
            Action::Slice(Moves::Regions(regions))
            | Action::ZeroFill(Moves::Regions(regions))
            | Action::AllGather(Moves::Regions(regions))
            | Action::AllToAll(Moves::Regions(regions))
            | Action::Exchange(Moves::Regions(regions)) => Some((regions, regions.meetings()?)),
            Action::Slice(Moves::Modes { .. })
            | Action::ZeroFill(Moves::Modes { .. })
            | Action::AllGather(Moves::Modes { .. })
            | Action::AllToAll(Moves::Modes { .. })
            | Action::Exchange(Moves::Modes { .. })
            | Action::ReduceScatter(..)
            | Action::OrderedReduce(..)
            | Action::AllReduce(_) => None,
        };
        for (&rank, total) in ranks.iter().zip(&mut totals) {
            let mut add = |peer: usize, numel: usize| *total += if peer == rank { 0 } else { numel as u64 };
            if let Some((regions, meetings)) = &meetings {
                regions.pulls(rank, meetings, &mut add);
            } else {
                for phase in plan.steps()[i].phases(rank)? {
                    phase.receives.iter().for_each(|m| add(m.peer, m.numel()));
                }
            }
        }
    }
    Ok(totals.into_iter().max().unwrap_or(0) * plan.item_bytes() as u64)
}
