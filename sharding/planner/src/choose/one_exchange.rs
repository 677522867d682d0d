//! One exchange between the cotangent shardings, transposed. It may beat several steps, or a step that sends
//! too much to one rank.
//!
//! ```text
//! from partials    every rank receives all partial values of its target and adds them: one step less than reducing first, more bytes
//! into partials    a reader is several ranks, and any of them may receive the data that none of them holds
//! ```
//!
//! With digits, only one rank of a reader receives: the one that shares the digits of the owner. Here each
//! rank receives a part. The worst of them receives the need of a reader, divided by its ranks, which is the
//! bound. Between the cotangent shardings it is an exchange out of replicas, each of which sends a part
//! ([`Spread`]). Its messages are counted without making them, and only a plan that is better is made.
//!
//! It never adds where no reduction is due: into partial values, each element has one source.

use std::sync::Arc;

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::budget::Effort;
use crate::choose::{admits, beats, mirror};
use crate::model::MinTraffic;
use crate::model::totals::Totals;
use crate::objective::Objective;
use crate::plan::Plan;
use crate::problem::Question;
use crate::regions::spread::Spread;
use crate::shared_exchange::SharedOut;
use reshard_sharding::SubAxis;
use smallvec::SmallVec;

/// Ratio of a plan to its bound above which this exchange is tried.
const FAR: f64 = 1.05;

/// Work of examining a rank.
const OF_RANK: u64 = 1 << 8;

/// Returns `true` if this exchange may be better than a plan with these totals.
///
/// The plan must be far from its bound, and the exchange may take at most `most_us` microseconds.
pub(super) fn may_help(q: &Question<'_>, plan: &Totals, most_us: f64) -> Result<bool, Error> {
    if !(q.from.is_partial() || q.to.is_partial())
        || !q.on_one_mesh()
        || plan.bytes == 0
        || !mirror::is_dual(q)
    {
        return Ok(false);
    }
    let (may_share, may_add) = (!idle(q).is_empty(), may_add(q, plan, most_us));
    if !may_share && !may_add {
        return Ok(false);
    }
    let (least, least_us) = q.least_bytes_and_us()?;
    let (bytes, us) = (plan.bytes as f64, microseconds(plan));
    Ok(match q.options.objective {
        Objective::Time => {
            // The excess of received bytes takes time.
            let everywhere: SmallVec<[MinTraffic; 3]> =
                SmallVec::from_elem(MinTraffic::bytes(bytes), q.network.levels());
            let too_much =
                || bytes > FAR * least as f64 && q.time_needed(&everywhere) - least_us > (FAR - 1.0) * us;
            may_share && least_us <= most_us && too_much() || may_add && us > FAR * least_us
        }
        Objective::Bytes => may_share && plan.bytes > least,
        Objective::Peak => false,
    })
}

fn microseconds(plan: &Totals) -> f64 {
    plan.picoseconds as f64 / 1e6
}

/// Returns `true` if one exchange that adds all partial values on their target ranks may take less time.
fn may_add(q: &Question<'_>, plan: &Totals, most_us: f64) -> bool {
    let terms: usize =
        q.from.partial().iter().filter(|p| !q.to.partial().contains(p)).map(|p| p.sub.size).product();
    if terms < 2 || q.options.objective != Objective::Time {
        return false;
    }
    // A rank may hold one of the partial values; each of the others comes from another rank.
    let others = (terms as u64 - 1).saturating_mul(q.to.max_local_numel() as u64 * q.item);
    let least = q.network.model.least_of_exchange_us(others, terms - 1);
    least < microseconds(plan) && least <= most_us
}

/// Returns the axes along which the target is partial and the source is not.
fn idle(q: &Question<'_>) -> SmallVec<[SubAxis; 4]> {
    q.to.partial().iter().filter(|p| !q.from.partial().contains(p)).map(|p| p.sub).collect()
}

/// Returns the exchanges between the cotangent shardings.
///
/// Each splits the data among all replicas that become partial, among those along one axis, or not at all.
fn exchanges(q: &Question<'_>) -> Result<SmallVec<[SharedOut; 2]>, Error> {
    let mut found = SmallVec::new();
    let Some([from, to]) = mirror::duals(q) else { return Ok(found) };
    let dual = q.part(q.options, &from, &to);
    // A reduction between the cotangent shardings cannot be one exchange.
    if mirror::reduces(&dual) {
        return Ok(found);
    }
    // Split along the dim with the largest local extent in both.
    let rank = to.mesh().min_rank();
    let [here, there] = [from.local_shape(rank)?, to.local_shape(rank)?];
    let Some(dim) = (0..there.len()).max_by_key(|&dim| here[dim].min(there[dim])) else { return Ok(found) };
    let idle = idle(q);
    let alone = idle.iter().filter(|_| idle.len() > 1).map(core::slice::from_ref);
    let not = (mirror::reduces(q) && !idle.is_empty()).then_some(&[][..]);
    for subs in core::iter::once(&*idle).chain(alone).chain(not) {
        let spread = Spread::new(from.mesh(), dim, subs);
        let regions = dual.intersection(&from, &to).spread(spread);
        // An exchange with too many blocks to count is skipped; other candidates stay valid.
        found.extend(dual.shared_out(regions));
    }
    Ok(found)
}

/// Returns the work of all exchanges.
fn effort(q: &Question<'_>) -> Effort {
    let exchanges = 1 + idle(q).len() as u64;
    Effort { work: OF_RANK * q.from.mesh().size() as u64 * exchanges, ..Effort::default() }
}

/// Returns the least time of such an exchange in picoseconds, and the effort.
pub(super) fn least_picoseconds(q: &Question<'_>) -> Result<(Option<u64>, Effort), Error> {
    let least = exchanges(q)?.iter().map(|x| x.turned.picoseconds).min();
    Ok((least, effort(q)))
}

/// Returns the best of these plans if it beats `known`, without its bounds, and the effort.
pub(super) fn best_plan(q: &Question<'_>, known: &Plan) -> Result<(Option<Plan>, Effort), Error> {
    let mut best: Option<Plan> = None;
    for exchange in exchanges(q)? {
        let known = best.as_ref().unwrap_or(known);
        let may_beat = match q.options.objective {
            Objective::Time => exchange.turned.us < known.cost_us(),
            Objective::Bytes => exchange.turned.received <= known.received_bytes,
            Objective::Peak => false,
        };
        if may_beat {
            let [from, to] = q.shared();
            let step = exchange.turned_round([Arc::clone(from), Arc::clone(to)]);
            let plan = assemble_unbounded(q, vec![step], None)?;
            if admits(q.options, &plan) && beats(q, &plan, Some(known)) {
                best = Some(plan);
            }
        }
    }
    Ok((best, effort(q)))
}
