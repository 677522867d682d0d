//! The plan of a greedy planner, axis by axis: a baseline, and a candidate in competition with regions.

use crate::Error;
use crate::assemble::{assemble, assemble_unbounded};
use crate::budget::Effort;
use crate::candidates::{greedy, regions};
use crate::choose::mirror::ROUNDED;
use crate::choose::ways::Parts;
use crate::choose::{admits, axes, beats, reduces_replicas, with_sent};
use crate::plan::Plan;
use crate::problem::Question;
use crate::step::Step;

/// Returns the plan of a greedy planner, which ignores the limits.
pub(crate) fn plan(q: &Question<'_>) -> Result<Plan, Error> {
    let mut parts = Parts::default();
    let steps = parts.resolve(q, &greedy::way(q)?)?.unwrap_or_default();
    let plan = assemble(q, with_sent(q, steps)?, q.ends().as_ref(), None)?;
    Ok(Plan { effort: parts.effort(), ..plan })
}

/// Returns the plan of one step per axis if it beats `known`, without its bounds, and the effort.
pub(super) fn best_plan(q: &Question<'_>, known: Option<&Plan>) -> Result<(Option<Plan>, Effort), Error> {
    let may = q.on_one_mesh() && q.few_ranks().is_ok();
    if !may || known.is_some_and(|plan| !axes::is_far(q, plan, ROUNDED)) {
        return Ok((None, Effort::default()));
    }
    let (mut steps, mut effort): (Vec<Step>, Effort) = (Vec::new(), Effort::default());
    let Ok(stages) = greedy::stages(q.from, q.to) else { return Ok((None, effort)) };
    for pair in stages.windows(2) {
        let Some((step, work)) = regions::one_step(q, &pair[0], &pair[1])? else { return Ok((None, effort)) };
        effort.work = effort.work.saturating_add(work);
        steps.push(step);
    }
    if reduces_replicas(q, &steps) {
        return Ok((None, effort));
    }
    let plan = assemble_unbounded(q, steps, None)?;
    Ok(((beats(q, &plan, known) && admits(q.options, &plan)).then_some(plan), effort))
}
