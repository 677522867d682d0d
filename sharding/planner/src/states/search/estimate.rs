//! A lower bound of the rest of a plan from a state: the heuristic that guides the search.
//!
//! It is the cost model's bound of the remaining need (`need`), which never exceeds the true cost.
//!
//! Many states, in which the sites of some digits are not chosen yet, share the estimate of one state that
//! may not exist. In it, these digits are at their targets if those are sites. Otherwise they are at
//! [`ANYWHERE`], where they take over nothing and nothing depends on them. Both parts of the need are then
//! minimal, since digits at their targets add to neither.

use super::problem::{MAX_DIGITS, Problem};
use smallvec::SmallVec;

use crate::bounds::need::{depends_on, need};
use crate::model::MinTraffic;
use crate::model::codes::{Code, NOWHERE, PARTIAL, PARTIAL_LATER, REPLICATED};
use crate::model::totals::picoseconds_below;
use crate::objective::Objective;

/// The code of a digit whose site is not chosen yet; no digit has it in a real state.
pub(super) const ANYWHERE: Code = NOWHERE - 1;

impl Problem<'_> {
    /// Returns a lower bound of the rest from a state, in picoseconds or bytes.
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

    /// Returns the remaining need over each level.
    fn needs(&self, state: &[u8]) -> SmallVec<[MinTraffic; 3]> {
        let mut needs = SmallVec::new();
        // No rank depends on a digit whose position another digit will take.
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

    /// Returns `true` if slices and zero-fills alone do not lead from a state to the target.
    ///
    /// A digit at another site, one to be gathered and one that is partial need communication.
    fn must_talk(&self, state: &[u8]) -> bool {
        state.iter().zip(&self.to).any(|(&c, &t)| digit_must_talk(c, t))
    }
}

/// Returns `true` if a digit does not get to its target by slices and zero-fills.
fn digit_must_talk(c: u8, t: u8) -> bool {
    c != t && (c == PARTIAL || (c < NOWHERE && t != PARTIAL && t != PARTIAL_LATER))
}
