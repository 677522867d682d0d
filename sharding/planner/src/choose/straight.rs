//! When the one step in which terms go straight to whoever wants them may be the best plan.
//!
//! Instead of a reduction and an exchange, where every rank receives all terms of little; and into terms, where the ranks whose
//! terms add up share what they receive, which no digit says.

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::candidates::regions::lies_inside;
use crate::choose::{admits, key};
use crate::objective::Objective;
use crate::plan::Plan;
use crate::question::Question;
use crate::states::ends::Ends;
use reshard_sharding::{PartialAxis, Sharding};

/// The most ranks of which each is looked at.
const RANKS: usize = 1 << 7;

/// How far above its bound a plan may be through rounding.
const ROUNDED: f64 = 1.0 + 1e-9;

/// What the step costs at least, in microseconds; infinite where it is not thought of.
///
/// Where digits nest, terms that only go away need one reduction, unless other digits leave their positions.
pub(super) fn least_us(q: &Question<'_>, ends: Option<&Ends>) -> f64 {
    let few = q.on_one_mesh() && q.from.mesh().size() <= RANKS;
    if !few || q.reduces_in_order() {
        return f64::INFINITY;
    }
    let apart = |a: &Sharding, b: &Sharding| -> u64 {
        let only = |p: &&PartialAxis| !b.partial().contains(p);
        a.partial().iter().filter(only).map(|p| p.sub.size as u64).product()
    };
    let (terms, sharing) = (apart(q.from, q.to), apart(q.to, q.from));
    match (terms, sharing) {
        (1, 1) => f64::INFINITY,
        (_, 1) if ends.is_some_and(|ends| !ends.moves()) => f64::INFINITY,
        // Of all terms but its own a rank receives all that it wants.
        (_, 1) => {
            let bytes = (terms - 1).saturating_mul(q.to.max_local_numel() as u64).saturating_mul(q.item);
            q.network.model.least_of_exchange_us(bytes, terms as usize - 1)
        }
        (_, _) => q.network.model.least_of_exchange_us(0, 1),
    }
}

/// Whether it may beat the best plan so far.
pub(super) fn may_help(q: &Question<'_>, ends: Option<&Ends>, best: Option<&Plan>) -> Result<bool, Error> {
    let least = least_us(q, ends);
    if least.is_infinite() {
        return Ok(false);
    }
    // Where all that a rank wants lies inside what it has terms of, a reduction is one step, too.
    let shares = q.to.partial().iter().any(|p| !q.from.partial().contains(p));
    if !shares && ends.is_none() && lies_inside(q.from, q.to)? {
        return Ok(false);
    }
    let Some(best) = best else { return Ok(true) };
    Ok(best.communicating_steps() > 0
        && match q.options.objective {
            Objective::Time => best.cost_us() > least && best.cost_us() > best.lower_bound_us * ROUNDED,
            Objective::Bytes => best.lower_bound_bytes.is_none_or(|b| best.received_bytes > b),
            Objective::Peak => true,
        })
}

/// The plan of this one step, without its bounds, if it beats `known`.
pub(super) fn best_plan(q: &Question<'_>, known: Option<&Plan>) -> Result<Option<Plan>, Error> {
    let Some(step) = q.straight()? else { return Ok(None) };
    let received = step.received_bytes;
    let plan = assemble_unbounded(q, vec![step], Some(received))?;
    let wins = known.is_none_or(|known| key(q.options, &plan) < key(q.options, known));
    Ok((wins && admits(q.options, &plan)).then_some(plan))
}
