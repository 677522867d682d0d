//! Prices: what a plan costs, only as exactly as a comparison needs it.
//!
//! Whoever compares many redistributions seldom needs the plan of one that loses. Where digits nest, the cost of a plan is
//! the least of some closed forms and of what a search finds; the forms are quick and bound the cost from above, and a
//! search that is told a limit gives up as soon as nothing within it is left.

use crate::redistribute::planner::{COUNTED_UNEVEN, Objective, Planner, Totals, Work, picoseconds};
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
        Planner::check(from, to, item_bytes)?;
        let work = Work::new(self, from, to, item_bytes as u64);
        if let Some(price) = work.price_of_digits(ask)? {
            return Ok(price);
        }
        let plan = self.plan(from, to, item_bytes)?;
        Ok(Price::Exactly(plan.steps().iter().map(|s| picoseconds(s.cost_us)).sum()))
    }
}

impl Work<'_> {
    /// The price where the digits nest and only their forms and a search compete.
    fn price_of_digits(&self, ask: Ask) -> Result<Option<Price>, Error> {
        let planner = self.planner;
        let in_order = planner.deterministic && self.from.is_partial();
        if planner.objective != Objective::Time || planner.max_peak_bytes.is_some() || in_order {
            return Ok(None);
        }
        let Some(ends) = self.ends().filter(|_| self.from != self.to && self.from.numel() > 0) else {
            return Ok(None);
        };
        if ends.lacks_spares() && self.from.mesh().size() <= COUNTED_UNEVEN {
            return Ok(None);
        }
        if !self.may_search(&ends)
            && let Some((_, measured)) = self.best_of_two(&ends)?
        {
            return Ok(Some(Price::Exactly(Totals::of(&measured).key(Objective::Time)[0])));
        }
        let mut best: Option<[u64; 3]> = None;
        for candidate in ends.candidates() {
            if let Some((key, _)) = self.digit_key(&candidate, &ends.weights)? {
                best = Some(best.map_or(key, |b| b.min(key)));
            }
        }
        match ask {
            Ask::Quick => Ok(best.map(|b| Price::AtMost(b[0]))),
            Ask::Within(limit) => {
                let below = [limit.saturating_add(1), 0, 0];
                if let Some(candidate) = self.searched(&ends, Some(best.map_or(below, |b| b.min(below))))
                    && let Some((key, _)) = self.digit_key(&candidate, &ends.weights)?
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
}
