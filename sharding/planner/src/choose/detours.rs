//! Two-stage plans: the best plan through an intermediate sharding, where uneven partial values may need
//! fewer bytes.
//!
//! They are tried last, when a plan is known already, and are returned only if they beat it. So no plan
//! becomes more expensive by them. Each stage is the best plan between its ends, transposed plans included,
//! but has no intermediate sharding itself. It is not planned if the lower bounds of both stages reach the
//! bytes of the known plan.

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::budget::Effort;
use crate::candidates::detours::between;
use crate::candidates::regions::one_step;
use crate::choose::{Best, COUNTED_UNEVEN, admits, reduces_replicas, turned};
use crate::objective::Objective;
use crate::options::PlanOptions;
use crate::plan::Plan;
use crate::problem::Question;
use crate::step::Step;
use reshard_sharding::Sharding;

/// Returns `true` if an intermediate sharding may save bytes.
///
/// It may for partial values of one end, or transposed of the other, where the ranks do not divide some dim.
pub(super) fn are_asked(q: &Question<'_>) -> bool {
    let ranks = q.from.mesh().size();
    let is_uneven = || q.from.shape().iter().any(|len| !len.is_multiple_of(ranks));
    q.options.objective == Objective::Bytes
        && !q.options.deterministic
        && q.on_one_mesh()
        && ranks <= COUNTED_UNEVEN
        && is_uneven()
}

/// Returns the best of them if it receives less than `most`, without its bounds, and the effort.
///
/// The search stops when the budget is exhausted, so that a smaller budget never finds more.
pub(super) fn best_plan(q: &Question<'_>, mut most: u64) -> Result<(Option<Plan>, Effort), Error> {
    let (mut best, mut effort): (Option<Plan>, Effort) = (None, Effort::default());
    let options = q.options.without_limits();
    let least = q.least_bytes()?;
    for between in between(q)? {
        if most <= least {
            break;
        }
        // A stage that cannot be planned is skipped, since a plan is known.
        let Ok((steps, more)) = by_way_of(q, &options, &between, most) else { continue };
        effort = effort.and(more);
        effort.exhausted |= effort.work > q.options.budget.work();
        if effort.exhausted {
            break;
        }
        let Some(steps) = steps.filter(|steps| !reduces_replicas(q, steps)) else { continue };
        let plan = assemble_unbounded(q, steps, None)?;
        if admits(q.options, &plan) && plan.received_bytes < most {
            most = plan.received_bytes;
            best = Some(plan);
        }
    }
    Ok((best, effort))
}

/// Returns the steps through `between` if both stages receive less than `most`, and the effort.
fn by_way_of(
    q: &Question<'_>,
    options: &PlanOptions,
    between: &Sharding,
    most: u64,
) -> Result<(Option<Vec<Step>>, Effort), Error> {
    let (mut all, mut effort): (Vec<Step>, Effort) = (Vec::new(), Effort::default());
    let ends = [[q.from, between], [between, q.to]];
    let [Ok(first), Ok(then)] = ends.map(|[from, to]| Question::checked(options, from, to, q.dtype)) else {
        return Ok((None, effort));
    };
    let mut bytes = [first.least_bytes()?, then.least_bytes()?];
    for (at, part) in [&first, &then].into_iter().enumerate() {
        if bytes[0] + bytes[1] >= most {
            return Ok((None, effort));
        }
        // From partial values onto parts of what each rank holds, it is one reduction.
        let (steps, received, more) = if at == 0 && !q.to.is_partial() {
            let Some((step, work)) = one_step(part, part.from, part.to)? else { return Ok((None, effort)) };
            let received = step.received_bytes;
            (vec![step], received, Effort { work, exhausted: false })
        } else {
            let Best { plan, effort: more, .. } = turned(part, bytes[at])?;
            let Some(plan) = plan else { return Ok((None, effort.and(more))) };
            (plan.steps, plan.received_bytes, more)
        };
        bytes[at] = received;
        effort = effort.and(more);
        all.extend(steps);
    }
    Ok(((bytes[0] + bytes[1] < most).then_some(all), effort))
}
