//! Prices: what a plan costs, only as exactly as a comparison needs it.
//!
//! Whoever compares many redistributions seldom needs the plan of one that loses. Where digits nest, the cost of a plan is
//! the least of some closed forms and of what a search finds; the forms are quick and bound the cost from above, and a
//! search that is told a limit gives up as soon as nothing within it is left.

use crate::redistribute::candidates::Origin;
use crate::redistribute::candidates::states::{may_search, routes, searched};
use crate::redistribute::choose;
use crate::redistribute::choose::{needs_uneven, routes};
use crate::redistribute::model::totals::{Cost, Totals};
use crate::redistribute::objective::Objective;
use crate::redistribute::planner::Planner;
use crate::redistribute::question::Question;
use crate::redistribute::states::refine::Refined;
use crate::redistribute::states::system::is_local;
use crate::{Error, Sharding};

/// How exactly a price is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Without any search.
    Quick,
    /// Exactly, if it is at most so many picoseconds.
    Within(u64),
}

/// What is known of the cost of a plan, in picoseconds, each step rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Price {
    /// The cost.
    Exactly(u64),
    /// No plan costs more than this; asked quickly.
    AtMost(u64),
    /// Every plan costs more than this.
    MoreThan(u64),
}

impl Planner {
    /// The price of a plan; fails where there is none.
    pub(crate) fn price(
        &self,
        from: &Sharding,
        to: &Sharding,
        item_bytes: usize,
        ask: Ask,
    ) -> Result<Price, Error> {
        let q = Question::checked(self.options(), from, to, item_bytes)?;
        if let Some(price) = price_of_digits(&q, ask)? {
            return Ok(price);
        }
        let plan = choose::plan(&q, u64::MAX, None)?;
        let totals = Totals::of(plan.steps.iter().map(|s| Cost::new(s.cost_us, 0, 0)));
        Ok(Price::Exactly(totals.picoseconds))
    }
}

/// The price where the digits nest and only their forms and a search compete.
fn price_of_digits(q: &Question<'_>, ask: Ask) -> Result<Option<Price>, Error> {
    let options = q.options;
    if options.objective != Objective::Time || options.max_peak_bytes.is_some() || q.reduces_in_order() {
        return Ok(None);
    }
    let Some(ends) = q.ends().filter(|_| !q.is_trivial()) else { return Ok(None) };
    if needs_uneven(q, ends.lacks_spares()) {
        return Ok(None);
    }
    if !may_search(q, &ends)
        && let Some((_, measured)) = routes::best_of_two(q, &ends, &mut None)?
    {
        let totals = Totals::of(measured.iter().map(|x| &x.cost));
        return Ok(Some(Price::Exactly(totals.picoseconds)));
    }
    let mut best: Option<[u64; 3]> = None;
    for (origin, route) in routes(&ends) {
        if let Some((key, _)) = routes::key(q, &route, &ends.weights, origin, &mut None)? {
            best = Some(best.map_or(key, |b| b.min(key)));
        }
    }
    match ask {
        Ask::Quick => Ok(best.map(|b| Price::AtMost(b[0]))),
        Ask::Within(limit) => {
            let below = [limit.saturating_add(1), 0, 0];
            if let Some(route) = searched(q, &ends, Some(best.map_or(below, |b| b.min(below))))
                && let Some((key, _)) = routes::key(q, &route, &ends.weights, Origin::Search, &mut None)?
            {
                best = Some(best.map_or(key, |b| b.min(key)));
            }
            Ok(match best {
                Some([cost, ..]) if cost <= limit => Some(Price::Exactly(cost)),
                // There may be none at all.
                None if limit == u64::MAX => None,
                Some(_) | None => Some(Price::MoreThan(limit)),
            })
        }
    }
}

impl Planner {
    /// Microseconds that the plan takes under the model: `plan(from, to, item_bytes)?.cost_us()`, to the bit.
    ///
    /// Where the plan only slices or fills, and where it needs no search (one level, no terms, no limits), this costs a
    /// part of making it, since it makes no steps; elsewhere as much.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, redistribute::Planner};
    /// let mesh: Mesh = "x=2,y=2".parse()?;
    /// let of = |text: &str| Sharding::parse(&mesh, &[1024, 1024], text);
    /// let (planner, from, to) = (Planner::new(), of("S(0),S(1)")?, of("S(1),R")?);
    /// assert_eq!(planner.cost_us(&from, &to, 4)?, planner.plan(&from, &to, 4)?.cost_us());
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails where [`Planner::plan`] does, with the same error.
    pub fn cost_us(&self, from: &Sharding, to: &Sharding, item_bytes: usize) -> Result<f64, Error> {
        let q = Question::checked(self.options(), from, to, item_bytes)?;
        match cost_without_steps(&q)? {
            Some(cost) => Ok(cost),
            None => Ok(choose::plan(&q, u64::MAX, None)?.cost_us()),
        }
    }
}

/// The cost of the plan where it is known without its steps.
fn cost_without_steps(q: &Question<'_>) -> Result<Option<f64>, Error> {
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
