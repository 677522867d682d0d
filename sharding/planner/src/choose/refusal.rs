//! Why there is no plan that keeps to what was asked for, and what a limit costs.

use crate::Error;
use crate::choose;
use crate::objective::Objective;
use crate::options::Options;
use crate::plan::Plan;
use crate::question::Question;
use reshard_sharding::GroupPattern;

/// The least peak is above the limit.
pub(super) fn of_peak(q: &Question<'_>, least: u64) -> Error {
    Error::PeakTooSmall { limit: q.options.max_peak_bytes.unwrap_or(0), least }
}

/// Why no plan keeps to the groups or the memory.
pub(super) fn explain(q: &Question<'_>) -> Result<Error, Error> {
    let (from, to) = (q.from, q.to);
    let mut free = q.options.free();
    if q.options.groups.is_none() {
        free.objective = Objective::Peak;
    }
    let plan = choose::plan(&q.part(&free, from, to), u64::MAX, None)?;
    if q.options.groups.is_none() {
        return Ok(of_peak(q, plan.peak_bytes));
    }
    let missing: Vec<String> = missing(q.options, &plan).iter().map(ToString::to_string).collect();
    Ok(Error::Unsupported {
        reason: format!(
            "no plan from {from} to {to} uses the given groups only: the best one also needs {}",
            missing.join(" and ")
        ),
    })
}

/// The groups of a plan that were not given.
pub(crate) fn missing<'p>(options: &Options, plan: &'p Plan) -> Vec<&'p GroupPattern> {
    plan.groups().into_iter().filter(|g| !options.admits_group(g)).collect()
}
