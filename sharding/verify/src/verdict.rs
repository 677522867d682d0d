//! The results of the validator: of declared strategies, of missing ones, and of an op without a rule.

use core::fmt;

use super::search::Truths;
use reshard_ops::Error;
use reshard_ops::rules::{Rule, Strategy};

/// The extent of a validation, and its findings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The number of compared runs of declared strategies: strategies, times shapes, ranks and kinds.
    pub checks: usize,
    /// True strategies that follow from no declared one.
    pub missing: Vec<Found>,
    /// The number of input combinations that were searched, and their total number.
    pub searched: (usize, usize),
    /// All that the search found, by calls with the same strategies.
    pub(super) truths: Vec<Truths>,
}

/// A strategy that holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The strategy.
    pub strategy: Strategy,
    /// `true` if it holds only where every rank holds equally much.
    pub even: bool,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.strategy, if self.even { " (even)" } else { "" })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tried, of) = self.searched;
        write!(f, "{} checks; {tried} of {of} combinations of inputs searched", self.checks)?;
        for found in &self.missing {
            write!(f, "; missing {found}")?;
        }
        Ok(())
    }
}

/// A rule discovered from an op alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Discovery {
    /// The strategies that follow from no other.
    pub found: Vec<Found>,
    /// The number of input combinations that were searched, and their total number.
    pub searched: (usize, usize),
}

impl Discovery {
    /// Returns the findings as a rule; those that hold only for even sizes are left out.
    pub fn rule(&self) -> Result<Rule, Error> {
        Rule::from_strategies(self.found.iter().filter(|f| !f.even).map(|f| f.strategy.clone()).collect())
    }
}

impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, found) in self.found.iter().enumerate() {
            write!(f, "{}{found}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
