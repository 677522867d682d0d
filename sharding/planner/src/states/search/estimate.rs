//! What is left from a state at least: the estimate that the search is guided by.
//!
//! It is what the cost model says of the need that is left (`need`), which never exceeds the truth.

use super::problem::Problem;
use smallvec::SmallVec;

use crate::bounds::need::{depends_on, need};
use crate::model::Need;
use crate::model::codes::{NOWHERE, PARTIAL, PARTIAL_LATER};
use crate::model::totals::picoseconds_below;
use crate::objective::Objective;

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
    fn needs(&self, state: &[u8]) -> SmallVec<[Need; 3]> {
        let mut needs = SmallVec::new();
        for l in 0..self.network.levels() {
            let bytes = need(&self.bounding, state, &self.to, self.whole, l) * self.limits.item as f64;
            let domains = depends_on(&self.bounding, state, &self.to, l);
            needs.push(Need { bytes, domains, domain_size: self.domain_sizes[l] });
        }
        needs
    }

    /// Whether slices and zero-fills alone do not lead from a state to the target: what stands somewhere else, or must be
    /// gathered, or is partial, needs others.
    pub(super) fn must_talk(&self, state: &[u8]) -> bool {
        state.iter().zip(&self.to).any(|(&c, &t)| digit_must_talk(c, t))
    }
}

/// Whether a digit does not get from a place to its target by slices and zero-fills.
pub(super) fn digit_must_talk(c: u8, t: u8) -> bool {
    c != t && (c == PARTIAL || (c < NOWHERE && t != PARTIAL && t != PARTIAL_LATER))
}
