//! Budgets: how much a planner looks at before the best found so far is its answer.
//!
//! Work is counted, and not timed, so that a plan stays a pure function of its inputs, on every rank and in every run. Every
//! search has a counter of its own, also where a part of a plan is a question of its own: what the answer to a question is does not
//! depend on who asked it.
//!
//! ```text
//! search of digit states     two units for every choice of what digits do, four of where they go, ten for every cost
//! ways over regions          a unit for every two entries of a table, receivers and sixteen messages
//! ```
//!
//! which is about ten nanoseconds each.

use core::fmt;
use std::str::FromStr;

use crate::Error;

/// How much one search looks at, in units of about ten nanoseconds; a million and a half by default.
///
/// Past it the best found so far is the answer, which says so ([`Plan::is_exhausted`](crate::Plan::is_exhausted)). It is never worse than the closed form or
/// the direct plan, and nothing is refused for want of a budget.
///
/// ```
/// use reshard_planner::Budget;
/// assert_eq!(Budget::default().to_string(), "1500000");
/// assert_eq!(["none", "250"].map(|text| text.parse::<Budget>()), [Ok(Budget::UNLIMITED), Ok(Budget::of(250))]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SearchBudget(u64);

impl SearchBudget {
    /// No limit: everything that might be better is looked at.
    pub const UNLIMITED: SearchBudget = SearchBudget(u64::MAX);

    /// So many units of work.
    pub fn new(work: u64) -> SearchBudget {
        SearchBudget(work)
    }

    /// The units of work; `u64::MAX` without a limit.
    pub fn work(self) -> u64 {
        self.0
    }
}

/// What an answer took.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// The units of work, those of its parts included.
    pub work: u64,
    /// Whether a budget ran out.
    pub exhausted: bool,
}

impl Effort {
    /// Both together.
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
