//! The choice: all candidates are compared here, and nowhere else.
//!
//! On one mesh with nesting digits, the routes within the digit system are compared (`routes`). Otherwise the
//! paths over regions are compared as well. They also are where partial values are on extents that no digit
//! divides, or must be combined in order. The candidate with the least objective wins (`model::totals`
//! defines the order of ties), and of equal ones the earlier. So a plan is a pure function of its inputs.
//!
//! Segments that are separate problems are solved here, without limits: the limits apply to the whole plan.

pub(crate) mod alike;
mod axes;
mod by_way;
pub(crate) mod considered;
mod detours;
pub(crate) mod greedy;
pub(crate) mod mirror;
mod one_exchange;
pub(crate) mod price;
pub(crate) mod refusal;
mod routes;
mod ways;

#[cfg(test)]
pub(crate) use routes::key as key_of_route;

use crate::Error;
use crate::assemble::assemble;
use crate::budget::Effort;
use crate::candidates::CandidateSource;
use crate::choose::considered::Watch;
use crate::choose::routes::Routed;
use crate::model::network::is_hierarchical;
use crate::model::totals::{Cost, Totals};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::options::PlanOptions;
use crate::plan::Plan;
use crate::problem::Question;
use crate::states::ends::Ends;
use crate::step::Step;

/// Maximum number of ranks for which a reduction of digits is also tried in uneven blocks.
///
/// Uneven blocks need an examination of every rank.
const COUNTED_UNEVEN: usize = 1 << 10;

/// Returns the best plan, found sooner if it is known to cost at most `limit` picoseconds.
///
/// `watch` records every candidate.
pub(crate) fn plan(q: &Question<'_>, limit: u64, mut watch: Option<&mut Watch>) -> Result<Plan, Error> {
    if q.is_trivial() {
        let plan = assemble(q, Vec::new(), None, None)?;
        return if admits(q.options, &plan) { Ok(plan) } else { Err(refusal::of_peak(q, plan.peak_bytes)) };
    }
    let ends = q.ends();
    best_plan(q, ends.as_ref(), limit, &mut watch)?.bounded(q, ends.as_ref())
}

/// Returns the cost of the plan in picoseconds, each step rounded, and the effort.
///
/// Parts of a plan that no comparison needs are not computed.
pub(crate) fn picoseconds(q: &Question<'_>) -> Result<(u64, Effort), Error> {
    if q.is_trivial() {
        return plan(q, u64::MAX, None).map(|plan| (0, plan.effort));
    }
    let Best { plan, effort, .. } = best_plan(q, q.ends().as_ref(), u64::MAX, &mut None)?;
    let plan = if let Some(plan) = plan { plan } else { refusal::otherwise(q, effort)? };
    Ok((totals(&plan).picoseconds, effort))
}

/// Returns the best plan without transposed ones, for a segment of a plan or a transposed problem.
pub(crate) fn plan_straight(q: &Question<'_>) -> Result<Plan, Error> {
    if q.is_trivial() {
        return plan(q, u64::MAX, None);
    }
    let ends = q.ends();
    straight(q, ends.as_ref(), u64::MAX, &mut None)?.bounded(q, ends.as_ref())
}

/// The best plan so far, if there is one.
struct Best {
    plan: Option<Plan>,
    effort: Effort,
    /// `true` if the plan's bounds are filled in.
    is_bounded: bool,
    /// `true` if it may not be the best: regions competed, or there were too many digits.
    has_others: bool,
}

impl Best {
    /// Takes over a better plan of a generator, without its bounds, and adds its effort.
    fn take(
        &mut self,
        origin: CandidateSource,
        found: (Option<Plan>, Effort),
        watch: &mut Option<&mut Watch>,
    ) {
        let (found, more) = found;
        self.effort = self.effort.and(more);
        if let Some(plan) = found {
            Watch::found(watch, origin, &plan);
            (self.plan, self.is_bounded) = (Some(plan), false);
        }
    }

    /// Tries the plan of one step per axis, and the transposed plan.
    fn turn(
        &mut self,
        q: &Question<'_>,
        ends: Option<&Ends>,
        watch: &mut Option<&mut Watch>,
    ) -> Result<(), Error> {
        if self.has_others {
            self.take(CandidateSource::Greedy, greedy::best_plan(q, self.plan.as_ref())?, watch);
        }
        if (!self.effort.exhausted || self.plan.is_none() || q.options.is_limited())
            && mirror::may_help(q, ends, self.plan.as_ref())
        {
            self.take(CandidateSource::Mirror, mirror::best_plan(q, self.plan.as_ref())?, watch);
        }
        Ok(())
    }

    /// Tries one exchange between the cotangent shardings.
    fn exchange(&mut self, q: &Question<'_>, watch: &mut Option<&mut Watch>) -> Result<(), Error> {
        if let Some(plan) = &self.plan
            && one_exchange::may_help(q, &totals(plan), f64::INFINITY)?
        {
            self.take(CandidateSource::OneExchange, one_exchange::best_plan(q, plan)?, watch);
        }
        Ok(())
    }

    /// Returns the bytes that the plan receives, if fewer may suffice.
    ///
    /// Without partial values fewer never suffice.
    fn may_be_loose(&self, q: &Question<'_>) -> Option<u64> {
        if !q.from.is_partial() && !q.to.is_partial() {
            return None;
        }
        let plan = self.plan.as_ref().filter(|_| !self.effort.exhausted)?;
        let is_least = self.is_bounded && plan.lower_bound_bytes == Some(plan.received_bytes);
        (plan.received_bytes > 0 && !is_least).then_some(plan.received_bytes)
    }

    /// Returns the plan with its bounds, or the reason why there is none.
    fn bounded(self, q: &Question<'_>, ends: Option<&Ends>) -> Result<Plan, Error> {
        let Best { plan, effort, is_bounded, .. } = self;
        let Some(plan) = plan else { return refusal::otherwise(q, effort) };
        let mut plan = Plan { effort, steps: with_sent(q, plan.steps)?, ..plan };
        if !is_bounded {
            plan.bound(q, ends)?;
        }
        Ok(plan)
    }
}

/// Returns the best plan of all candidates.
fn best_plan(
    q: &Question<'_>,
    ends: Option<&Ends>,
    limit: u64,
    watch: &mut Option<&mut Watch>,
) -> Result<Best, Error> {
    let mut best = straight(q, ends, limit, watch)?;
    best.turn(q, ends, watch)?;
    best.exchange(q, watch)?;
    if detours::are_asked(q) {
        if let Some(most) = best.may_be_loose(q).filter(|_| q.from.is_partial()) {
            best.take(CandidateSource::Detour, detours::best_plan(q, most)?, watch);
        }
        if let Some(known) = best.plan.as_ref().filter(|_| best.may_be_loose(q).is_some()) {
            best.take(CandidateSource::Detour, mirror::best_detour(q, known)?, watch);
        }
        if let Some(most) = best.may_be_loose(q).filter(|_| by_way::is_small(q)) {
            best.take(CandidateSource::Detour, by_way::best_plan(q, most)?, watch);
        }
    }
    Ok(best)
}

/// Returns the best plan without intermediate shardings, which is one stage of a two-stage plan.
///
/// Transposed plans are included unless the bytes are known to be as few as `least`.
fn turned(q: &Question<'_>, least: u64) -> Result<Best, Error> {
    let ends = q.ends();
    let mut best = straight(q, ends.as_ref(), u64::MAX, &mut None)?;
    if best.plan.as_ref().is_none_or(|plan| plan.received_bytes > least) {
        best.turn(q, ends.as_ref(), &mut None)?;
    }
    Ok(best)
}

/// Returns the best plan of the routes over digits, of regions and of placements.
fn straight(
    q: &Question<'_>,
    ends: Option<&Ends>,
    limit: u64,
    watch: &mut Option<&mut Watch>,
) -> Result<Best, Error> {
    let mut routed = Routed { plan: None, effort: Effort::default(), left_out: false };
    if let Some(ends) = ends.filter(|_| !q.reduces_in_order()) {
        routed = routes::best_plan(q, ends, limit, watch)?;
    }
    let Routed { plan, effort, left_out } = routed;
    // Of a hierarchical axis, the digits of a route may not be a group, but whole axes are.
    let lacks_groups = plan.is_none() && is_hierarchical(q.from.mesh());
    let by_regions = goes_by_regions(q, ends) || lacks_groups;
    let mut best = Best { plan, effort, is_bounded: true, has_others: by_regions || left_out };
    if by_regions {
        let (found, more) = ways::best_plan(q, best.plan.as_ref(), watch)?;
        best.effort = best.effort.and(more);
        if let Some(mut plan) = found {
            plan.bound(q, ends)?;
            best.plan = Some(plan);
        }
    }
    if axes::may_help(q, best.plan.as_ref(), by_regions) {
        best.take(CandidateSource::Axes, axes::best_plan(q, best.plan.as_ref())?, watch);
    }
    // The result of a search that ran out of budget proves nothing.
    best.is_bounded &= !best.effort.exhausted;
    Ok(best)
}

/// Returns `true` if there are paths over regions.
fn goes_by_regions(q: &Question<'_>, ends: Option<&Ends>) -> bool {
    ends.is_none_or(|ends| needs_uneven(q, ends.lacks_spares())) || q.reduces_in_order()
}

/// Returns `true` if uneven blocks of regions compete with the routes over digits.
fn needs_uneven(q: &Question<'_>, lacks_spares: bool) -> bool {
    lacks_spares && q.from.mesh().size() <= COUNTED_UNEVEN
}

/// Fills in the bytes that the worst rank of each step sends, which no choice depends on.
fn with_sent(q: &Question<'_>, mut steps: Vec<Step>) -> Result<Vec<Step>, Error> {
    for step in &mut steps {
        if step.received_bytes > 0 && step.sent_bytes == 0 {
            step.sent_bytes = q.most_sent_of_regions(step)?;
        }
    }
    Ok(steps)
}

/// Returns `true` if a plan keeps to the requested limits of memory and groups.
fn admits(options: &PlanOptions, plan: &Plan) -> bool {
    options.admits_peak(plan.peak_bytes) && plan.groups().into_iter().all(|g| options.admits_group(g))
}

/// Returns `true` if something is added after an all-reduce, where replicas may round differently.
///
/// Where only some groups may be used, such a plan may be the only one, and the answer is `false`.
fn reduces_replicas(q: &Question<'_>, steps: &[Step]) -> bool {
    let mut after = steps.iter().skip_while(|step| step.op() != StepOp::AllReduce).skip(1);
    q.options.groups.is_none() && after.any(Step::adds)
}

/// Returns `true` if a plan is better than the known one.
///
/// On one level, without partial values and limits, no plan may receive more bytes than needed. That holds
/// even where it would save the time of a few messages, unless those times were measured.
fn beats(q: &Question<'_>, plan: &Plan, known: Option<&Plan>) -> bool {
    let bare = !q.from.is_partial() && !q.to.is_partial() && !q.options.is_limited();
    let thrifty = bare && q.network.model.is_one_formula() && q.options.objective == Objective::Time;
    known.is_none_or(|known| {
        let spends = thrifty && plan.received_bytes > known.received_bytes;
        !spends && key(q.options, plan) < key(q.options, known)
    })
}

/// Returns the totals of the steps of a plan.
fn totals(plan: &Plan) -> Totals {
    Totals::of(plan.steps.iter().map(|s| Cost::new(s.cost_us, s.received_bytes, s.peak_bytes)))
}

/// Returns the key by which plans are compared.
fn key(options: &PlanOptions, plan: &Plan) -> [u64; 3] {
    let mut totals = totals(plan);
    // Steps have different worst ranks, so the bytes and the peak of the whole plan are used.
    (totals.bytes, totals.peak) = (plan.received_bytes, plan.peak_bytes);
    totals.key(options.objective)
}
