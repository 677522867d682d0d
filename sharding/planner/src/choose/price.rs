//! Prices: what a plan costs, only as exactly as a comparison needs it.
//!
//! Whoever compares many redistributions seldom needs the plan of one that loses. Where digits nest, the cost of a plan is
//! the least of some closed forms and of what a search finds; the forms are quick and bound the cost from above, and a
//! search that is told a limit gives up as soon as nothing within it is left.

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
use crate::question::Question;
use crate::states::ends::Ends;
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
    if let Some(ends) = ends(q)
        && let Some(Priced { price, effort, .. }) = price_of_digits(q, &ends, ask)?
    {
        return Ok((price, effort));
    }
    let (picoseconds, effort) = choose::picoseconds(q)?;
    Ok((Price::Exactly(picoseconds), effort))
}

/// The price of a plan, in picoseconds, out of a memory of prices if it is that of digits and was asked of a question that is
/// [alike](Alike); fails where there is none. Exact, unless what is remembered [stands in](Prices::stands_in) for others.
pub(crate) fn price_once(
    q: &Question<'_>,
    known: &mut Prices,
    instead: impl Fn() -> Result<u64, Error>,
) -> Result<u64, Error> {
    let of_ranks = |known: &mut Prices| known.look(q, || choose::picoseconds(q), &instead);
    let Some(ends) = ends(q) else {
        return if q.is_trivial() { Ok(choose::picoseconds(q)?.0) } else { of_ranks(known) };
    };
    let alike = Alike::of(q, &ends);
    if let Some(&picoseconds) = known.known.get(&alike) {
        return Ok(picoseconds);
    }
    let priced = price_of_digits(q, &ends, Ask::Within(u64::MAX))?;
    let Some(Priced { price: Price::Exactly(picoseconds), by_digits, .. }) = priced else {
        return of_ranks(known);
    };
    // A search goes as far in all of them, for it sees digits alone; an exchange between the duals does not.
    if by_digits {
        known.known.insert(alike, picoseconds);
    }
    Ok(picoseconds)
}

/// A price, what knowing it took, and whether nothing but digits was asked.
struct Priced {
    price: Price,
    effort: Effort,
    by_digits: bool,
}

/// Both ends, where a price may be that of digits: nothing that looks at dims competes but one exchange between the duals.
fn ends(q: &Question<'_>) -> Option<Ends> {
    let options = q.options;
    if options.objective != Objective::Time || options.max_peak_bytes.is_some() || q.reduces_in_order() {
        return None;
    }
    let ends = q.ends().filter(|_| !q.is_trivial())?;
    (!needs_uneven(q, ends.lacks_spares()) && !axes::owes_uneven(q)).then_some(ends)
}

/// The price where the digits nest and only their forms and a search compete.
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
            // Then there are other ways, too.
            if matches!(searched, Searched::TooManyDigits) {
                return Ok(None);
            }
            if let Searched::Found(route) = searched
                && let Some((key, _)) =
                    routes::key(q, &route, &ends.weights, CandidateSource::Search, &mut None)?
            {
                best = Some(best.map_or(key, |b| b.min(key)));
            }
            // What the mirror is asked about costs what the plan costs.
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
                // Beyond the limit it is not known what the plan costs without it.
                if cost > limit && least.is_some_and(|least| least <= limit) {
                    return Ok(None);
                }
            }
            Ok(match best {
                Some([cost, ..]) if cost <= limit => {
                    let price = Price::Exactly(exchange.map_or(cost, |least| cost.min(least)));
                    Some(Priced { price, effort, by_digits })
                }
                // There may be none at all.
                None if limit == u64::MAX || effort.exhausted => None,
                Some(_) | None => Some(Priced { price: Price::MoreThan(limit), effort, by_digits }),
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
