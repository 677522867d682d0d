//! The choice: every candidate is compared here, and nowhere else.
//!
//! On one mesh with nesting digits the routes within the digit system are compared (`routes`). Otherwise, and where terms meet
//! extents that no digit divides or must be combined in order, the ways over regions are, too. The least by objective wins
//! (`model::totals` says how ties are ordered), of equal ones the earlier, so a plan is a pure function of its inputs.
//!
//! Legs that are questions of their own are resolved here, by asking again, without limits: those are kept to by the whole
//! plan.

pub(crate) mod considered;
pub(crate) mod price;
pub(crate) mod refusal;
mod routes;

#[cfg(test)]
pub(crate) use routes::key as key_of_route;

use std::borrow::Cow;

use crate::Error;
use crate::assemble::assemble;
use crate::candidates::{Leg, greedy, regions};
use crate::choose::considered::{Considered, Watch};
use crate::model::totals::{Cost, Totals};
use crate::options::Options;
use crate::plan::Plan;
use crate::question::Question;
use crate::step::Step;
use reshard_sharding::Sharding;

/// The most ranks for which a reduction within a digit system is also tried in uneven pieces: those look at every rank.
const COUNTED_UNEVEN: usize = 1 << 10;

/// The best plan, found sooner if it is known to cost at most `limit` picoseconds; `watch` is told of every candidate.
pub(crate) fn plan(q: &Question<'_>, limit: u64, mut watch: Option<&mut Watch>) -> Result<Plan, Error> {
    if q.is_trivial() {
        let plan = assemble(q, Vec::new(), None, None)?;
        return if admits(q.options, &plan) { Ok(plan) } else { Err(refusal::of_peak(q, plan.peak_bytes)) };
    }
    let ends = q.ends();
    let mut best = None;
    if let Some(ends) = ends.as_ref().filter(|_| !q.reduces_in_order()) {
        best = routes::best_plan(q, ends, limit, &mut watch)?;
    }
    let uneven = ends.as_ref().is_some_and(|e| needs_uneven(q, e.lacks_spares()));
    if ends.is_none() || q.reduces_in_order() || uneven {
        for way in regions::ways(q)? {
            let Some(steps) = resolve(q, way)? else { continue };
            let plan = assemble(q, steps, ends.as_ref(), None)?;
            let admitted = admits(q.options, &plan);
            Watch::see(&mut watch, || Considered::plan(&plan, admitted));
            let better = |b: &Plan| key(q.options, &plan) < key(q.options, b);
            if admitted && best.as_ref().is_none_or(better) {
                best = Some(plan);
                Watch::prefer(&mut watch);
            }
        }
    }
    match best {
        Some(plan) => Ok(plan),
        None => Err(refusal::explain(q)?),
    }
}

/// Whether uneven pieces of regions compete with the digits' routes.
fn needs_uneven(q: &Question<'_>, lacks_spares: bool) -> bool {
    lacks_spares && q.from.mesh().size() <= COUNTED_UNEVEN
}

/// The plan of a greedy planner, axis by axis; it keeps to no limit.
pub(crate) fn greedy(q: &Question<'_>) -> Result<Plan, Error> {
    let steps = resolve(q, greedy::way(q)?)?.unwrap_or_default();
    assemble(q, steps, q.ends().as_ref(), None)
}

/// The steps of a way; `None` if a leg that must move nothing does.
fn resolve(q: &Question<'_>, way: Vec<Leg>) -> Result<Option<Vec<Step>>, Error> {
    let mut steps: Vec<Step> = Vec::with_capacity(way.len());
    for leg in way {
        match leg {
            Leg::Step(step) => steps.push(*step),
            Leg::Plan { to } => steps.extend(part(q, &steps, &to)?.steps),
            Leg::Local { to } => {
                let part = part(q, &steps, &to)?;
                if part.received_bytes > 0 {
                    return Ok(None);
                }
                steps.extend(part.steps);
            }
        }
    }
    Ok(Some(steps))
}

/// The plan from where some steps lead.
fn part(q: &Question<'_>, steps: &[Step], to: &Sharding) -> Result<Plan, Error> {
    let from = steps.last().map_or(q.from, |s| &s.after);
    let options =
        if q.options.is_limited() { Cow::Owned(q.options.free()) } else { Cow::Borrowed(q.options) };
    plan(&Question::checked(&options, from, to, q.dtype)?, u64::MAX, None)
}

/// Whether a plan keeps to the memory and the groups that were asked for.
fn admits(options: &Options, plan: &Plan) -> bool {
    options.admits_peak(plan.peak_bytes) && plan.groups().into_iter().all(|g| options.admits_group(g))
}

/// What plans are compared by.
fn key(options: &Options, plan: &Plan) -> [u64; 3] {
    let costs = plan.steps.iter().map(|s| Cost::new(s.cost_us, s.received_bytes, s.peak_bytes));
    let mut totals = Totals::of(costs);
    // Steps have their worst ranks, which need not be one rank.
    (totals.bytes, totals.peak) = (plan.received_bytes, plan.peak_bytes);
    totals.key(options.objective)
}
