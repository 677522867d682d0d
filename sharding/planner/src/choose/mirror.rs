//! The mirror: the best plan between the duals, turned round.
//!
//! `plan(B* -> A*)` turned round goes from `A` to `B` (see [`crate::mirror`]). Neither way to a plan finds all that the other
//! does: a reduction that shares the work of idle ranks is, turned round, a gather that does not bring what is a
//! term's anyway. The mirror is asked without a mirror of its own, under the same limits and with the same budget, and what it
//! says is priced as it would run.

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::budget::Effort;
use crate::choose::{admits, axes, beats, detours, greedy, plan_straight, with_sent};
use crate::mirror::transposed_steps;
use crate::objective::Objective;
use crate::plan::Plan;
use crate::question::Question;
use crate::states::ends::Ends;
use crate::step::Step;
use reshard_sharding::{ReduceOp, Sharding};

/// The most ranks whose messages are turned round.
const RANKS: usize = 1 << 7;

/// Where digits nest all that the mirror saves is a step, so that it is asked only about plans of so few steps' time.
const STEPS: f64 = 4.0;

/// How far above its bound a plan may be through rounding.
pub(super) const ROUNDED: f64 = 1.0 + 1e-9;

/// Whether the mirror may know a better plan.
pub(super) fn may_help(q: &Question<'_>, ends: Option<&Ends>, best: Option<&Plan>) -> bool {
    let bare = ends.is_some_and(|ends| !ends.has_terms());
    let nests_bare = bare && q.options.objective != Objective::Peak && q.options.groups.is_none();
    if nests_bare && best.is_some() || !is_dual(q) {
        return false;
    }
    let Some(best) = best else { return true };
    if best.communicating_steps() == 0 {
        return false;
    }
    match q.options.objective {
        Objective::Time => {
            best.cost_us() > best.lower_bound_us * ROUNDED && best.cost_us() <= asked_up_to_us(q, ends)
        }
        Objective::Bytes => {
            best.lower_bound_bytes.is_none_or(|b| best.received_bytes > b)
                && ends.is_none_or(|ends| is_uneven(q, ends) || stays_partial(q, ends))
        }
        Objective::Peak => true,
    }
}

/// Whether both ends have duals, plans between which can be turned round.
pub(super) fn is_dual(q: &Question<'_>) -> bool {
    let sums = |s: &Sharding| s.partial().iter().all(|p| p.op == ReduceOp::Sum);
    let ranks = q.from.mesh().size().max(q.to.mesh().size());
    !q.options.deterministic && ranks <= RANKS && sums(q.from) && sums(q.to)
}

/// Whether terms go away.
pub(super) fn reduces(q: &Question<'_>) -> bool {
    q.from.partial().iter().any(|p| !q.on_one_mesh() || !q.to.partial().contains(p))
}

/// Whether digits nest, and terms or replicas find no position where they would share the work.
fn is_uneven(q: &Question<'_>, ends: &Ends) -> bool {
    ends.has_terms() && (ends.lacks_spares() || ends.dual_lacks_spares() || axes::owes_uneven(q))
}

/// Whether terms become other terms: an exchange may leave them where they are to be, without reducing any first.
fn stays_partial(q: &Question<'_>, ends: &Ends) -> bool {
    ends.reduces() && q.to.is_partial()
}

/// The most microseconds of a plan for which the mirror is asked.
///
/// Where digits nest, the moves of the mirror are those of the search, turned round, but for one: an exchange that also adds. It
/// saves a step, and receives no byte less than reducing first and exchanging then, unless terms become other terms.
pub(super) fn asked_up_to_us(q: &Question<'_>, ends: Option<&Ends>) -> f64 {
    match ends {
        _ if !is_dual(q) => 0.0,
        _ if q.options.groups.is_some() => f64::INFINITY,
        Some(ends) if !is_uneven(q, ends) => {
            if ends.reduces() && ends.moves() {
                STEPS * q.time_needed(&[])
            } else {
                0.0
            }
        }
        Some(_) | None => f64::INFINITY,
    }
}

/// The ends of the mirror, if both are and their terms can be added.
pub(super) fn duals(q: &Question<'_>) -> Option<[Sharding; 2]> {
    let ends = [q.to.cotangent().ok()?, q.from.cotangent().ok()?];
    ends.iter().all(|s| q.options.arithmetic.check(s, q.dtype).is_ok()).then_some(ends)
}

/// What the mirror says, without its bounds, if it beats `known`; and what it took.
///
/// Where the budget runs out it says nothing, so that less of it never finds more; but for limits, within which anything may be the best that is known.
pub(super) fn best_plan(q: &Question<'_>, known: Option<&Plan>) -> Result<(Option<Plan>, Effort), Error> {
    let none = || Ok((None, Effort::default()));
    let Some([from, to]) = duals(q) else { return none() };
    // Where there is no plan between the duals, or none that can be turned round, the mirror says nothing.
    let dual = q.part(q.options, &from, &to);
    let Ok(straight) = plan_straight(&dual) else { return none() };
    let (greedy, more) = greedy::best_plan(&dual, Some(&straight))?;
    let effort = straight.effort.and(more);
    let finds = !effort.exhausted || q.options.is_limited();
    let mut best: Option<Plan> = None;
    for between in [Some(straight), greedy].into_iter().flatten().filter(|_| finds) {
        if let Some(plan) = turned_round(q, &dual, between)?
            && beats(q, &plan, best.as_ref().or(known))
        {
            best = Some(plan);
        }
    }
    Ok((best, effort))
}

/// The best detour between the duals, turned round, without its bounds, if it beats `known`; and what it took.
///
/// Out of terms there are detours of its own.
pub(super) fn best_detour(q: &Question<'_>, known: &Plan) -> Result<(Option<Plan>, Effort), Error> {
    let none = |effort| Ok((None, effort));
    if q.from.is_partial() || !is_dual(q) {
        return none(Effort::default());
    }
    let Some([from, to]) = duals(q).filter(|[from, _]| from.is_partial()) else {
        return none(Effort::default());
    };
    let dual = q.part(q.options, &from, &to);
    let (found, effort) = detours::best_plan(&dual, known.received_bytes)?;
    let Some(between) = found.filter(|_| !effort.exhausted) else { return none(effort) };
    let plan = turned_round(q, &dual, between)?;
    Ok((plan.filter(|plan| beats(q, plan, Some(known))), effort))
}

/// A plan between the duals turned round, if it can be, keeps to the limits, and adds nothing that nobody is to reduce.
fn turned_round(q: &Question<'_>, dual: &Question<'_>, between: Plan) -> Result<Option<Plan>, Error> {
    // Whoever turns round what is turned round gets what was.
    let Ok(steps) = transposed_steps(q, &with_sent(dual, between.steps)?) else { return Ok(None) };
    let plan = assemble_unbounded(q, steps, None)?;
    // What nobody is to reduce keeps its bits, which a sum with nothing does not promise for what is no number.
    let adds = !reduces(q) && plan.steps.iter().any(Step::adds);
    Ok((!adds && admits(q.options, &plan)).then_some(plan))
}
