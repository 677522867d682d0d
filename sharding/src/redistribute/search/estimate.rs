//! What is left from a state at least: the estimate that the search is guided by.
//!
//! ```text
//! time >= latencies + wire
//! wire      = max over l of need_l / (the rates of level l and up)                                  (see `bounds`)
//! latencies = max over l of min over k of   k launch + latency_l R_l(k) + latency_0 (rounds(D_0) - R_l(k))
//! R_l(1)    = rounds(D_l),       R_l(k) = max(1, rounds(D_l / U_l^k)) for k > 1
//! rounds(n) = ceil(log2 n)
//! ```
//!
//! with `D_l` the number of units of level `l` that a rank's target depends on, and `U_l` the ranks of a unit. In one step
//! a rank hears from each of them itself. In several, what it hears was gathered by others: a step in which every rank of
//! a unit has `p` peers beyond the unit multiplies the units that the unit knows of by at most `1 + U_l p`, and takes
//! `ceil(log2(1 + p))` rounds; and whatever the levels, rounds at most double what a rank knows of.

use super::problem::Problem;
use crate::redistribute::bounds::{NOWHERE, OWED, OWED_LATER, depends_on, need};
use crate::redistribute::planner::Objective;

/// `ceil(log2 n)`, from 1.
fn rounds(n: u64) -> u32 {
    u64::BITS - n.saturating_sub(1).leading_zeros()
}

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
                let least = (self.time_bound_us(state) * 1e6 * (1.0 - 1e-9)).floor() as u64;
                if least == 0 && self.must_talk(state) { self.launch() } else { least }
            }
        }
    }

    fn time_bound_us(&self, state: &[u8]) -> f64 {
        let topology = self.network.topology;
        let (mut rate, mut wire, mut wait) = (0.0, 0.0f64, 0.0f64);
        let all = depends_on(&self.bounding, state, &self.to, 0);
        for (l, level) in topology.levels().iter().enumerate().rev() {
            let bytes = need(&self.bounding, state, &self.to, self.whole, l) * self.limits.item as f64;
            rate += level.gbytes_per_s * 1e3;
            wire = wire.max(bytes / rate);
            let units = if l == 0 { all } else { depends_on(&self.bounding, state, &self.to, l) };
            // Whoever needs bytes hears from somebody.
            let units = units.max(1 + u64::from(bytes > 0.0));
            if units > 1 {
                wait = wait.max(self.wait_us(l, units, all));
            }
        }
        wait + wire
    }

    /// The least latencies of steps after which a rank may have heard from `units` units of level `l` and `all` ranks.
    fn wait_us(&self, l: usize, units: u64, all: u64) -> f64 {
        let topology = self.network.topology;
        let (launch, levels) = (topology.launch_us(), topology.levels());
        let cost = |steps: u32, outer: u32| {
            f64::from(steps) * launch
                + levels[l].latency_us * f64::from(outer)
                + levels[0].latency_us * f64::from(rounds(all).saturating_sub(outer))
        };
        let mut outer = rounds(units);
        let mut least = cost(1, outer);
        let unit: u64 = self.bounding.iter().filter(|w| w.level < l).map(|w| w.radix).product();
        let mut left = units.div_ceil(unit.max(1));
        for steps in 2..=u64::BITS {
            if l == 0 || unit == 1 || outer <= 1 {
                break;
            }
            left = left.div_ceil(unit);
            outer = rounds(left).max(1);
            least = least.min(cost(steps, outer));
        }
        least
    }

    /// Whether slices and zero-fills alone do not lead from a state to the target: what stands somewhere else, or must be
    /// gathered, or is owed, needs others.
    pub(super) fn must_talk(&self, state: &[u8]) -> bool {
        state.iter().zip(&self.to).any(|(&c, &t)| digit_must_talk(c, t))
    }

    /// What a communicating step takes at least, in picoseconds.
    pub(super) fn launch(&self) -> u64 {
        (self.network.topology.launch_us() * 1e6) as u64
    }
}

/// Whether a digit does not get from a place to its target by slices and zero-fills.
pub(super) fn digit_must_talk(c: u8, t: u8) -> bool {
    c != t && (c == OWED || (c < NOWHERE && t != OWED && t != OWED_LATER))
}
