//! What is left from a state at least: the estimate that the search is guided by.
//!
//! It is what the cost model says of the need that is left (`need`), which never exceeds the truth.
//!
//! Of many states at once, in which some digits stand at places not chosen yet, as little is left as from one that may not exist: these
//! digits at their targets where those are places, else [`ANYWHERE`], where they take over nothing and nothing depends on them.
//! Both terms of the need are then least, since digits at their targets add to neither.

use super::problem::{MAX_DIGITS, Problem};
use smallvec::SmallVec;

use crate::bounds::need::{depends_on, need};
use crate::model::MinTraffic;
use crate::model::codes::{Code, NOWHERE, PARTIAL, PARTIAL_LATER, REPLICATED};
use crate::model::totals::picoseconds_below;
use crate::objective::Objective;

/// A place that nobody has, of a digit of which the place is not chosen yet.
pub(super) const ANYWHERE: Code = NOWHERE - 1;

impl Problem<'_> {
    /// Never more than what is left from a state, in picoseconds or bytes.
    pub(crate) fn bound(&self, state: &[u8]) -> u64 {
        match self.limits.objective {
            Objective::Peak => 0,
            Objective::Bytes => {
                let elements = need(&self.bounding, state, &self.to, self.whole, 0);
                (elements - 1e-6).max(0.0).floor() as u64 * self.limits.item
            }
            Objective::Time => {
                let least = picoseconds_below(self.network.model.least_us(&self.needs(state)));
                if least == 0 && self.must_talk(state) { self.least_step } else { least }
            }
        }
    }

    /// What is left to bring over each level.
    fn needs(&self, state: &[u8]) -> SmallVec<[MinTraffic; 3]> {
        let mut needs = SmallVec::new();
        // Nobody depends on a digit that stands where another will.
        let taken = self.to.iter().copied().find(|&t| t < NOWHERE).unwrap_or(ANYWHERE);
        let mut depending = [REPLICATED; MAX_DIGITS];
        let depending = &mut depending[..state.len()];
        for (depending, &c) in depending.iter_mut().zip(state) {
            *depending = if c == ANYWHERE { taken } else { c };
        }
        for l in 0..self.network.levels() {
            let bytes = need(&self.bounding, state, &self.to, self.whole, l) * self.limits.item as f64;
            let domains = depends_on(&self.bounding, depending, &self.to, l);
            needs.push(MinTraffic { bytes, domains, domain_size: self.domain_sizes[l] });
        }
        needs
    }

    /// Whether slices and zero-fills alone do not lead from a state to the target: what stands somewhere else, or must be
    /// gathered, or is partial, needs others.
    fn must_talk(&self, state: &[u8]) -> bool {
        state.iter().zip(&self.to).any(|(&c, &t)| digit_must_talk(c, t))
    }
}

/// Whether a digit does not get from a place to its target by slices and zero-fills.
fn digit_must_talk(c: u8, t: u8) -> bool {
    c != t && (c == PARTIAL || (c < NOWHERE && t != PARTIAL && t != PARTIAL_LATER))
}
