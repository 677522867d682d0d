//! The transposed plan: plans the problem between the cotangent shardings and transposes the answer.
//!
//! `plan(B* -> A*)` transposed goes from `A` to `B` (see [`crate::mirror`]). Neither direction finds all that
//! the other finds. A reduction that splits its work among idle ranks is, transposed, a gather that skips
//! data that becomes partial anyway. The transposed problem is planned without another transposition, under
//! the same limits and with the same budget. Its answer is priced as it would run.

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::budget::Effort;
use crate::choose::{admits, axes, beats, detours, greedy, plan_straight, with_sent};
use crate::objective::Objective;
use crate::plan::Plan;
use crate::problem::Question;
use crate::states::ends::Ends;
use crate::step::Step;
use crate::transpose::transposed_steps;
use reshard_sharding::{ReduceOp, Sharding};

/// Maximum number of ranks whose messages are transposed.
const RANKS: usize = 1 << 7;

/// Limit, in multiples of the least step time, of the plans for which transposing can help.
///
/// Where digits nest, transposing saves one step only.
const STEPS: f64 = 4.0;

/// Ratio of a plan to its bound that rounding alone may cause.
pub(super) const ROUNDED: f64 = 1.0 + 1e-9;

/// Returns `true` if a transposed plan may be better.
pub(super) fn may_help(q: &Question<'_>, ends: Option<&Ends>, best: Option<&Plan>) -> bool {
    let bare = ends.is_some_and(|ends| !ends.has_terms());
    let nests_bare = bare && q.options.objective != Objective::Peak && q.options.groups.is_none();
    if nests_bare && best.is_some() || !is_dual(q) {
        return false;
    }
    let Some(best) = best else { return true };
    // Between two meshes without partial values, a transposed plan differs in that owners do not share their
    // work. It may transfer fewer bytes or keep to limits, but such an exchange takes no less time.
    let bare_meshes = !q.on_one_mesh() && !q.from.is_partial() && !q.to.is_partial();
    if bare_meshes && q.options.objective == Objective::Time && !q.options.is_limited() {
        return false;
    }
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

/// Returns `true` if both ends have cotangent shardings, between which plans can be transposed.
pub(super) fn is_dual(q: &Question<'_>) -> bool {
    let sums = |s: &Sharding| s.partial().iter().all(|p| p.op == ReduceOp::Sum);
    let ranks = q.from.mesh().size().max(q.to.mesh().size());
    !q.options.deterministic && ranks <= RANKS && sums(q.from) && sums(q.to)
}

/// Returns `true` if partial axes go away.
pub(super) fn reduces(q: &Question<'_>) -> bool {
    q.from.partial().iter().any(|p| !q.on_one_mesh() || !q.to.partial().contains(p))
}

/// Returns `true` if digits nest, and partial or replicated digits find no position to split the work.
fn is_uneven(q: &Question<'_>, ends: &Ends) -> bool {
    ends.has_terms() && (ends.lacks_spares() || ends.dual_lacks_spares() || axes::owes_uneven(q))
}

/// Returns `true` if partial values of some axes become partial along others.
///
/// An exchange may then send them to their final ranks without reducing any first.
fn stays_partial(q: &Question<'_>, ends: &Ends) -> bool {
    ends.reduces() && q.to.is_partial()
}

/// Returns the most microseconds of a plan for which a transposed plan may be better.
///
/// Where digits nest, the transposed search has the same transitions as the search itself but for one: an
/// exchange that also adds. It saves a step. It receives no fewer bytes than a reduction and then an
/// exchange, unless partial values become partial along other axes.
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

/// Returns the ends of the transposed problem, if both exist and their partial values can be added.
pub(super) fn duals(q: &Question<'_>) -> Option<[Sharding; 2]> {
    let ends = [q.to.cotangent().ok()?, q.from.cotangent().ok()?];
    ends.iter().all(|s| q.options.arithmetic.check(s, q.dtype).is_ok()).then_some(ends)
}

/// Returns the best transposed plan, without its bounds, if it beats `known`, and the effort.
///
/// When the budget is exhausted it returns none, so that a smaller budget never finds more. Under limits it
/// still does, since any plan within them may be the best that is known.
pub(super) fn best_plan(q: &Question<'_>, known: Option<&Plan>) -> Result<(Option<Plan>, Effort), Error> {
    let none = || Ok((None, Effort::default()));
    let Some([from, to]) = duals(q) else { return none() };
    // No plan between the cotangent shardings, or none that can be transposed, means no candidate.
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

/// Returns the best two-stage plan between the cotangent shardings, transposed, if it beats `known`.
///
/// Its bounds are not filled in; the effort is returned as well. A partial source has two-stage plans without
/// transposition.
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

/// Returns a transposed plan if it exists, keeps to the limits, and adds only where a reduction is due.
fn turned_round(q: &Question<'_>, dual: &Question<'_>, between: Plan) -> Result<Option<Plan>, Error> {
    // Transposition is an involution: it is undone here instead of nested.
    let Ok(steps) = transposed_steps(q, &with_sent(dual, between.steps)?) else { return Ok(None) };
    let plan = assemble_unbounded(q, steps, None)?;
    // Without a reduction every element keeps its bits. A sum with zeros does not promise that: `x + 0` may
    // change a NaN.
    let adds = !reduces(q) && plan.steps.iter().any(Step::adds);
    Ok((!adds && admits(q.options, &plan)).then_some(plan))
}
