//! The choice: every candidate is compared here, and nowhere else.
//!
//! On one mesh with nesting digits the routes within the digit system are compared (`routes`). Otherwise, and where terms meet
//! extents that no digit divides or must be combined in order, the ways over regions are, too. The least by objective wins
//! (`model::totals` says how ties are ordered), of equal ones the earlier, so a plan is a pure function of its inputs.
//!
//! Legs that are questions of their own are resolved here, by asking again, without limits: those are kept to by the whole
//! plan.

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
use crate::model::totals::{Cost, Totals};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::options::PlanOptions;
use crate::plan::Plan;
use crate::question::Question;
use crate::states::ends::Ends;
use crate::step::Step;

/// The most ranks for which a reduction within a digit system is also tried in uneven pieces: those look at every rank.
const COUNTED_UNEVEN: usize = 1 << 10;

/// The best plan, found sooner if it is known to cost at most `limit` picoseconds; `watch` is told of every candidate.
pub(crate) fn plan(q: &Question<'_>, limit: u64, mut watch: Option<&mut Watch>) -> Result<Plan, Error> {
    if q.is_trivial() {
        let plan = assemble(q, Vec::new(), None, None)?;
        return if admits(q.options, &plan) { Ok(plan) } else { Err(refusal::of_peak(q, plan.peak_bytes)) };
    }
    let ends = q.ends();
    best_plan(q, ends.as_ref(), limit, &mut watch)?.bounded(q, ends.as_ref())
}

/// What the plan takes, in picoseconds, each step rounded, and what knowing it took: without what nobody compares.
pub(crate) fn picoseconds(q: &Question<'_>) -> Result<(u64, Effort), Error> {
    if q.is_trivial() {
        return plan(q, u64::MAX, None).map(|plan| (0, plan.effort));
    }
    let Best { plan, effort, .. } = best_plan(q, q.ends().as_ref(), u64::MAX, &mut None)?;
    let plan = if let Some(plan) = plan { plan } else { refusal::otherwise(q, effort)? };
    Ok((totals(&plan).picoseconds, effort))
}

/// The same without what the mirror says: what a part of a plan is, and what a mirror is asked.
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
    /// Whether the plan's bounds are filled in.
    is_bounded: bool,
    /// Whether it may not be the best: regions met, or digits were too many.
    has_others: bool,
}

impl Best {
    /// What an origin found that is better, without its bounds, and what that took.
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

    /// The best of it, of one step per axis and of what the mirror says.
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

    /// The best of it and of one exchange between the duals.
    fn exchange(&mut self, q: &Question<'_>, watch: &mut Option<&mut Watch>) -> Result<(), Error> {
        if let Some(plan) = &self.plan
            && one_exchange::may_help(q, &totals(plan), f64::INFINITY)?
        {
            self.take(CandidateSource::OneExchange, one_exchange::best_plan(q, plan)?, watch);
        }
        Ok(())
    }

    /// The bytes that it receives, if less may do: without terms none does.
    fn may_be_loose(&self, q: &Question<'_>) -> Option<u64> {
        if !q.from.is_partial() && !q.to.is_partial() {
            return None;
        }
        let plan = self.plan.as_ref().filter(|_| !self.effort.exhausted)?;
        let is_least = self.is_bounded && plan.lower_bound_bytes == Some(plan.received_bytes);
        (plan.received_bytes > 0 && !is_least).then_some(plan.received_bytes)
    }

    /// The plan with its bounds, or why there is none.
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

/// The best plan of all.
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

/// The best plan without detours, what the mirror says among them unless the bytes are known to be as few as `least`: what a part of
/// a detour is.
fn turned(q: &Question<'_>, least: u64) -> Result<Best, Error> {
    let ends = q.ends();
    let mut best = straight(q, ends.as_ref(), u64::MAX, &mut None)?;
    if best.plan.as_ref().is_none_or(|plan| plan.received_bytes > least) {
        best.turn(q, ends.as_ref(), &mut None)?;
    }
    Ok(best)
}

/// The best plan of the digits' routes, of regions and of placements.
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
    let by_regions = goes_by_regions(q, ends);
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
    // What a search that ran out says proves nothing.
    best.is_bounded &= !best.effort.exhausted;
    Ok(best)
}

/// Whether there are ways over regions.
fn goes_by_regions(q: &Question<'_>, ends: Option<&Ends>) -> bool {
    ends.is_none_or(|ends| needs_uneven(q, ends.lacks_spares())) || q.reduces_in_order()
}

/// Whether uneven pieces of regions compete with the digits' routes.
fn needs_uneven(q: &Question<'_>, lacks_spares: bool) -> bool {
    lacks_spares && q.from.mesh().size() <= COUNTED_UNEVEN
}

/// The steps, each with what its worst rank sends, which no choice depends on.
fn with_sent(q: &Question<'_>, mut steps: Vec<Step>) -> Result<Vec<Step>, Error> {
    for step in &mut steps {
        if step.received_bytes > 0 && step.sent_bytes == 0 {
            step.sent_bytes = q.most_sent_of_regions(step)?;
        }
    }
    Ok(steps)
}

/// Whether a plan keeps to the memory and the groups that were asked for.
fn admits(options: &PlanOptions, plan: &Plan) -> bool {
    options.admits_peak(plan.peak_bytes) && plan.groups().into_iter().all(|g| options.admits_group(g))
}

/// Whether something is added after an all-reduce, which replicas may round otherwise; where only some groups may be used that may be the
/// only way.
fn reduces_replicas(q: &Question<'_>, steps: &[Step]) -> bool {
    let mut after = steps.iter().skip_while(|step| step.op() != StepOp::AllReduce).skip(1);
    q.options.groups.is_none() && after.any(Step::adds)
}

/// Whether a plan is better than what is known.
///
/// On one level, without terms and limits no plan receives a byte too many, even where it would save the time of a few messages.
fn beats(q: &Question<'_>, plan: &Plan, known: Option<&Plan>) -> bool {
    let bare = !q.from.is_partial() && !q.to.is_partial() && !q.options.is_limited();
    let thrifty = bare && q.network.levels() == 1 && q.options.objective == Objective::Time;
    known.is_none_or(|known| {
        let spends = thrifty && plan.received_bytes > known.received_bytes;
        !spends && key(q.options, plan) < key(q.options, known)
    })
}

/// What the steps of a plan add up to.
fn totals(plan: &Plan) -> Totals {
    Totals::of(plan.steps.iter().map(|s| Cost::new(s.cost_us, s.received_bytes, s.peak_bytes)))
}

/// What plans are compared by.
fn key(options: &PlanOptions, plan: &Plan) -> [u64; 3] {
    let mut totals = totals(plan);
    // Steps have their worst ranks, which need not be one rank.
    (totals.bytes, totals.peak) = (plan.received_bytes, plan.peak_bytes);
    totals.key(options.objective)
}
