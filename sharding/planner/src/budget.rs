//! Budgets: the amount of search after which the best plan found so far is the answer.
//!
//! Work is counted, not timed, so that a plan stays a pure function of its inputs, on every rank and in every
//! run. Every search has a separate counter, also where a part of a plan is a separate problem. So the answer
//! to a problem does not depend on its caller.
//!
//! ```text
//! search of digit states     two units per choice of transitions of digits, four per choice of positions, ten per cost
//! candidates over regions    four units per entry of a table, 32 per message that is looked up
//! ```
//!
//! Each unit takes about ten nanoseconds.

use core::fmt;
use std::str::FromStr;

use crate::Error;

/// The work limit of one search, in units of about ten nanoseconds; 1.5 million by default.
///
/// When it is exhausted, the best plan found so far is the answer, and
/// [`Plan::is_budget_exhausted`](crate::Plan::is_budget_exhausted) reports it. That plan is never worse than the closed
/// form or the direct plan. No problem is rejected for lack of budget.
///
/// ```
/// use reshard_planner::SearchBudget;
/// assert_eq!(SearchBudget::default().to_string(), "1500000");
/// assert_eq!(["none", "250"].map(|text| text.parse::<SearchBudget>()), [Ok(SearchBudget::UNLIMITED), Ok(SearchBudget::new(250))]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SearchBudget(u64);

impl SearchBudget {
    /// No limit: every candidate that might be better is explored.
    pub const UNLIMITED: SearchBudget = SearchBudget(u64::MAX);

    /// Returns a budget of `work` units.
    pub fn new(work: u64) -> SearchBudget {
        SearchBudget(work)
    }

    /// The units of work; `u64::MAX` without a limit.
    #[doc(hidden)]
    pub fn work(self) -> u64 {
        self.0
    }
}

/// The work that an answer took.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// The units of work, those of its parts included.
    pub work: u64,
    /// `true` if a budget ran out.
    pub exhausted: bool,
}

impl Effort {
    /// Returns the sum of both efforts.
    #[must_use]
    pub fn and(self, other: Effort) -> Effort {
        Effort { work: self.work.saturating_add(other.work), exhausted: self.exhausted || other.exhausted }
    }
}

impl Default for SearchBudget {
    fn default() -> SearchBudget {
        SearchBudget(1_500_000)
    }
}

impl fmt::Display for SearchBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == SearchBudget::UNLIMITED { f.write_str("none") } else { self.0.fmt(f) }
    }
}

impl FromStr for SearchBudget {
    type Err = Error;
    fn from_str(s: &str) -> Result<SearchBudget, Error> {
        if s == "none" {
            return Ok(SearchBudget::UNLIMITED);
        }
        s.parse()
            .map(SearchBudget)
            .map_err(|_| Error::unknown("budget", s, "a number of units of work, or none"))
    }
}
