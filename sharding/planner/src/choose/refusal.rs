//! The reason why no plan keeps to the requested limits, and the cost of a limit.

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::budget::{Effort, SearchBudget};
use crate::choose;
use crate::choose::axes::UNTIL_ANY;
use crate::objective::Objective;
use crate::options::PlanOptions;
use crate::plan::Plan;
use crate::problem::Question;
use reshard_sharding::GroupPattern;

/// Returns the error for a least peak above the limit.
pub(super) fn of_peak(q: &Question<'_>, least: u64) -> Error {
    Error::PeakTooSmall { limit: q.options.max_peak_bytes.unwrap_or(0), least }
}

/// Returns another plan, or the error, where no plan was found within the limits.
///
/// If the budget ran out, it plans with a larger budget. Otherwise it plans without the limits, and returns
/// that plan if it keeps to them all the same.
pub(super) fn otherwise(q: &Question<'_>, effort: Effort) -> Result<Plan, Error> {
    let (from, to) = (q.from, q.to);
    if effort.exhausted && q.options.budget.work() < UNTIL_ANY {
        let patient = PlanOptions { budget: SearchBudget::new(UNTIL_ANY), ..q.options.clone() };
        return again(q, choose::plan(&q.part(&patient, from, to), u64::MAX, None)?);
    }
    let mut free = q.options.free();
    if q.options.max_peak_bytes.is_some() {
        // The least peak, within the admitted groups.
        let least =
            PlanOptions { groups: q.options.groups.clone(), objective: Objective::Peak, ..free.clone() };
        match choose::plan(&q.part(&least, from, to), u64::MAX, None) {
            Ok(plan) if choose::admits(q.options, &plan) => return again(q, plan),
            Ok(plan) => return Err(of_peak(q, plan.peak_bytes)),
            Err(error) if q.options.groups.is_none() => return Err(error),
            Err(_) => free.objective = Objective::Peak,
        }
    }
    let plan = choose::plan(&q.part(&free, from, to), u64::MAX, None)?;
    if choose::admits(q.options, &plan) {
        return again(q, plan);
    }
    let missing: Vec<String> = missing(q.options, &plan).iter().map(ToString::to_string).collect();
    if missing.is_empty() {
        return Err(of_peak(q, plan.peak_bytes));
    }
    Err(Error::Unsupported {
        reason: format!(
            "no plan from {from} to {to} uses the given groups only: the best one also needs {}",
            missing.join(" and ")
        ),
    })
}

/// Returns the steps of a plan as the answer to a problem whose searches did not find it.
fn again(q: &Question<'_>, plan: Plan) -> Result<Plan, Error> {
    let effort = Effort { exhausted: true, ..plan.effort };
    let mut plan = Plan { effort, ..assemble_unbounded(q, plan.steps, None)? };
    plan.bound(q, q.ends().as_ref())?;
    Ok(plan)
}

/// Returns the groups of a plan that are not admitted.
pub(crate) fn missing<'p>(options: &PlanOptions, plan: &'p Plan) -> Vec<&'p GroupPattern> {
    plan.groups().into_iter().filter(|g| !options.admits_group(g)).collect()
}
