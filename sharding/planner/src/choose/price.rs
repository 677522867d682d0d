//! Prices: the cost of a plan, only as exactly as a comparison needs it.
//!
//! A caller that compares many redistributions seldom needs a plan that loses. Where digits nest, the cost of
//! a plan is the minimum of some closed forms and of a search. The forms are quick and bound the cost from
//! above. A search with a limit stops as soon as nothing within the limit is left.

use crate::Error;
use crate::budget::Effort;
use crate::candidates::CandidateSource;
use crate::candidates::states::{Searched, may_search, routes, searched};
use crate::choose;
use crate::choose::alike::{Alike, Prices};
use crate::choose::axes;
use crate::choose::{mirror, needs_uneven, one_exchange, routes};
use crate::model::totals::{Cost, Totals, picoseconds_below};
use crate::objective::Objective;
use crate::problem::Question;
use crate::states::ends::Ends;
use crate::states::refine::Refined;
use crate::states::system::is_local;

/// The precision of a requested price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Without any search.
    Quick,
    /// Exactly, if it is at most this number of picoseconds.
    Within(u64),
}

/// A cost of a plan, or a bound of it, in picoseconds, each step rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// The cost.
    Exactly(u64),
    /// No plan costs more than this; the answer to [`Ask::Quick`].
    AtMost(u64),
    /// Every plan costs more than this.
    MoreThan(u64),
}

/// Returns the price of a plan, and the effort; fails if there is no plan.
pub(crate) fn price(q: &Question<'_>, ask: Ask) -> Result<(Price, Effort), Error> {
    if let Some(ends) = ends(q)
        && let Some(Priced { price, effort, .. }) = price_of_digits(q, &ends, ask)?
    {
        return Ok((price, effort));
    }
    let (picoseconds, effort) = choose::picoseconds(q)?;
    Ok((Price::Exactly(picoseconds), effort))
}

/// Returns the price of a plan in picoseconds, from the cache if an [equivalent](Alike) problem was priced.
///
/// Only prices of digits are cached. It fails if there is no plan. The price is exact, unless
/// [`Prices::stands_in`] is `true`.
pub(crate) fn price_once(
    q: &Question<'_>,
    known: &mut Prices,
    instead: impl Fn() -> Result<u64, Error>,
) -> Result<u64, Error> {
    known.begins();
    let of_ranks = |known: &mut Prices| known.look(q, || choose::picoseconds(q), &instead);
    let Some(ends) = ends(q) else {
        return if q.is_trivial() { Ok(choose::picoseconds(q)?.0) } else { of_ranks(known) };
    };
    let alike = Alike::of(q, &ends);
    if let Some(picoseconds) = known.cached(&alike) {
        return Ok(picoseconds);
    }
    let ask = if known.is_spent() { Ask::Quick } else { Ask::Within(u64::MAX) };
    let Some(Priced { price, effort, by_digits }) = price_of_digits(q, &ends, ask)? else {
        return of_ranks(known);
    };
    let picoseconds = match price {
        Price::Exactly(picoseconds) => picoseconds,
        Price::AtMost(picoseconds) => known.stands_in_with(picoseconds),
        Price::MoreThan(_) => return of_ranks(known),
    };
    known.worked(effort);
    // A search on digits alone goes equally far in all equivalent problems; the exchange between cotangent
    // shardings does not.
    if by_digits {
        let is_estimate = known.is_estimate();
        known.known.insert(alike, (picoseconds, is_estimate));
    }
    Ok(picoseconds)
}

/// A price, its effort, and `by_digits`: `true` if it depends on digits alone.
struct Priced {
    price: Price,
    effort: Effort,
    by_digits: bool,
}

/// Returns both ends if a price may be that of digits.
///
/// Then the only competing candidate that examines dims is one exchange between the cotangent shardings.
fn ends(q: &Question<'_>) -> Option<Ends> {
    let options = q.options;
    if options.objective != Objective::Time || options.max_peak_bytes.is_some() || q.reduces_in_order() {
        return None;
    }
    let ends = q.ends().filter(|_| !q.is_trivial())?;
    (!needs_uneven(q, ends.lacks_spares()) && !axes::owes_uneven(q)).then_some(ends)
}

/// Returns the price where digits nest and only the closed forms and a search compete.
fn price_of_digits(q: &Question<'_>, ends: &Ends, ask: Ask) -> Result<Option<Priced>, Error> {
    if !may_search(q, ends)
        && let Some((_, measured)) = routes::best_of_two(q, ends, &mut None)?
    {
        let totals = Totals::of(measured.iter().map(|x| &x.cost));
        let price = Price::Exactly(totals.picoseconds);
        return Ok(Some(Priced { price, effort: Effort::default(), by_digits: true }));
    }
    let mut best: Option<[u64; 3]> = None;
    for (origin, route) in routes(ends) {
        if let Some((key, _)) = routes::key(q, &route, &ends.weights, origin, &mut None)? {
            best = Some(best.map_or(key, |b| b.min(key)));
        }
    }
    match ask {
        Ask::Quick => Ok(best.map(|b| {
            let price = Price::AtMost(b[0]);
            Priced { price, effort: Effort::default(), by_digits: true }
        })),
        Ask::Within(limit) => {
            let below = [limit.saturating_add(1), 0, 0];
            let (searched, effort) = searched(q, ends, Some(best.map_or(below, |b| b.min(below))));
            // Then there are other candidates, too.
            if matches!(searched, Searched::TooManyDigits) {
                return Ok(None);
            }
            if let Searched::Found(route) = searched
                && let Some((key, _)) =
                    routes::key(q, &route, &ends.weights, CandidateSource::Search, &mut None)?
            {
                best = Some(best.map_or(key, |b| b.min(key)));
            }
            // Where a transposed plan may be better, only the whole choice gives the price.
            let asked = picoseconds_below(mirror::asked_up_to_us(q, Some(ends)));
            let [cost, bytes, _] = best.unwrap_or([u64::MAX; 3]);
            if cost > 0 && (cost <= asked || limit < asked) {
                return Ok(None);
            }
            let totals = Totals::of([Cost { picoseconds: cost, received: bytes, ..Cost::default() }]);
            let (mut exchange, mut effort, mut by_digits) = (None, effort, true);
            if one_exchange::may_help(q, &totals, limit.saturating_add(1) as f64 / 1e6)? {
                let (least, more) = one_exchange::least_picoseconds(q)?;
                (exchange, effort, by_digits) = (least, effort.and(more), false);
                // Beyond the limit, the cost of the plan without this exchange is unknown.
                if cost > limit && least.is_some_and(|least| least <= limit) {
                    return Ok(None);
                }
            }
            Ok(match best {
                Some([cost, ..]) if cost <= limit => {
                    let price = Price::Exactly(exchange.map_or(cost, |least| cost.min(least)));
                    Some(Priced { price, effort, by_digits })
                }
                // Possibly no plan exists.
                None if limit == u64::MAX || effort.exhausted => None,
                Some(_) | None => Some(Priced { price: Price::MoreThan(limit), effort, by_digits }),
            })
        }
    }
}

/// Returns the cost of the plan if it is known without its steps.
pub(crate) fn cost_without_steps(q: &Question<'_>) -> Result<Option<f64>, Error> {
    let options = q.options;
    if options.max_peak_bytes.is_some() || options.objective == Objective::Peak || !q.on_one_mesh() {
        return Ok(None);
    }
    if q.is_trivial() {
        return Ok(Some(0.0));
    }
    let mut refined = Refined::new();
    let nests = refined.fill(q.from, q.to, &q.network.cuts());
    if nests && refined.digits.iter().all(|d| is_local(d.places)) {
        return Ok(Some(0.0));
    }
    let terms = q.from.is_partial() || q.to.is_partial();
    if !nests || terms || options.groups.is_some() || !q.network.model.is_one_formula() {
        return Ok(None);
    }
    let best = routes::best_of_two(q, &q.ends_of(refined.system(q.from)), &mut None)?;
    // Summed in the same order as the steps of a plan.
    Ok(best.map(|(_, measured)| measured.iter().fold(0.0, |total, x| total + x.cost.us)))
}
