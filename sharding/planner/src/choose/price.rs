//! Prices: what a plan costs, only as exactly as a comparison needs it.
//!
//! Whoever compares many redistributions seldom needs the plan of one that loses. Where digits nest, the cost of a plan is
//! the least of some closed forms and of what a search finds; the forms are quick and bound the cost from above, and a
//! search that is told a limit gives up as soon as nothing within it is left.

use crate::Error;
use crate::budget::Effort;
use crate::candidates::Origin;
use crate::candidates::states::{Searched, may_search, routes, searched};
use crate::choose;
use crate::choose::axes;
use crate::choose::{mirror, needs_uneven, one_exchange, routes};
use crate::model::totals::{Cost, Totals, picoseconds_below};
use crate::objective::Objective;
use crate::question::Question;
use crate::states::refine::Refined;
use crate::states::system::is_local;

/// How exactly a price is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Without any search.
    Quick,
    /// Exactly, if it is at most so many picoseconds.
    Within(u64),
}

/// What is known of the cost of a plan, in picoseconds, each step rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// The cost.
    Exactly(u64),
    /// No plan costs more than this; asked quickly.
    AtMost(u64),
    /// Every plan costs more than this.
    MoreThan(u64),
}

/// The price of a plan, and what knowing it took; fails where there is none.
pub(crate) fn price(q: &Question<'_>, ask: Ask) -> Result<(Price, Effort), Error> {
    if let Some(price) = price_of_digits(q, ask)? {
        return Ok(price);
    }
    let (picoseconds, effort) = choose::picoseconds(q)?;
    Ok((Price::Exactly(picoseconds), effort))
}

/// The price where the digits nest and only their forms and a search compete.
fn price_of_digits(q: &Question<'_>, ask: Ask) -> Result<Option<(Price, Effort)>, Error> {
    let options = q.options;
    if options.objective != Objective::Time || options.max_peak_bytes.is_some() || q.reduces_in_order() {
        return Ok(None);
    }
    let Some(ends) = q.ends().filter(|_| !q.is_trivial()) else { return Ok(None) };
    if needs_uneven(q, ends.lacks_spares()) || axes::owes_uneven(q) {
        return Ok(None);
    }
    if !may_search(q, &ends)
        && let Some((_, measured)) = routes::best_of_two(q, &ends, &mut None)?
    {
        let totals = Totals::of(measured.iter().map(|x| &x.cost));
        return Ok(Some((Price::Exactly(totals.picoseconds), Effort::default())));
    }
    let mut best: Option<[u64; 3]> = None;
    for (origin, route) in routes(&ends) {
        if let Some((key, _)) = routes::key(q, &route, &ends.weights, origin, &mut None)? {
            best = Some(best.map_or(key, |b| b.min(key)));
        }
    }
    match ask {
        Ask::Quick => Ok(best.map(|b| (Price::AtMost(b[0]), Effort::default()))),
        Ask::Within(limit) => {
            let below = [limit.saturating_add(1), 0, 0];
            let (searched, effort) = searched(q, &ends, Some(best.map_or(below, |b| b.min(below))));
            // Then there are other ways, too.
            if matches!(searched, Searched::TooManyDigits) {
                return Ok(None);
            }
            if let Searched::Found(route) = searched
                && let Some((key, _)) = routes::key(q, &route, &ends.weights, Origin::Search, &mut None)?
            {
                best = Some(best.map_or(key, |b| b.min(key)));
            }
            // What the mirror is asked about costs what the plan costs.
            let asked = picoseconds_below(mirror::asked_up_to_us(q, Some(&ends)));
            let [cost, bytes, _] = best.unwrap_or([u64::MAX; 3]);
            if cost > 0 && (cost <= asked || limit < asked) {
                return Ok(None);
            }
            let totals = Totals::of([Cost { picoseconds: cost, received: bytes, ..Cost::default() }]);
            let (mut exchange, mut effort) = (None, effort);
            if one_exchange::may_help(q, &totals, limit.saturating_add(1) as f64 / 1e6)? {
                let (least, more) = one_exchange::least_picoseconds(q)?;
                (exchange, effort) = (least, effort.and(more));
                // Beyond the limit it is not known what the plan costs without it.
                if cost > limit && least.is_some_and(|least| least <= limit) {
                    return Ok(None);
                }
            }
            Ok(match best {
                Some([cost, ..]) if cost <= limit => {
                    Some((Price::Exactly(exchange.map_or(cost, |least| cost.min(least))), effort))
                }
                // There may be none at all.
                None if limit == u64::MAX || effort.exhausted => None,
                Some(_) | None => Some((Price::MoreThan(limit), effort)),
            })
        }
    }
}

/// The cost of the plan where it is known without its steps.
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
    if !nests || terms || options.groups.is_some() || q.network.levels() > 1 {
        return Ok(None);
    }
    let best = routes::best_of_two(q, &q.ends_of(refined.system(q.from)), &mut None)?;
    // As a plan adds its steps up.
    Ok(best.map(|(_, measured)| measured.iter().fold(0.0, |total, x| total + x.cost.us)))
}
