//! Both ends of a problem as states of one digit system.

use std::sync::Arc;

use reshard_layout::{AxisStride, Mode};
use smallvec::SmallVec;

use crate::bounds::need::{depends_on, need};
use crate::model::MinTraffic;
use crate::model::codes::{Codes, Weight, Weights, inside_one_domain};
use crate::problem::Question;
use crate::states::system::{Place, Stands, State, System, refine};

/// A digit system, and both ends as states of it.
pub(crate) struct Ends {
    pub(crate) system: Arc<System>,
    pub(crate) from: State,
    pub(crate) to: State,
    /// The weights of the digits for traffic; `bounding` has those for lower bounds.
    pub(crate) weights: Weights,
    pub(crate) bounding: Weights,
}

impl Ends {
    pub(crate) fn has_terms(&self) -> bool {
        self.from.iter().chain(&self.to).any(|p| p.is_partial())
    }

    /// Returns `true` if partial values are reduced, and some digit finds no position to split the work.
    pub(crate) fn lacks_spares(&self) -> bool {
        self.reduces() && self.lacks_positions()
    }

    /// Returns the same between the cotangent shardings, where partial and replicated swap roles.
    pub(crate) fn dual_lacks_spares(&self) -> bool {
        let is_replicated = |p: &Place| matches!(p.stands(), Stands::Replicated);
        self.from.iter().zip(&self.to).any(|(a, b)| is_replicated(b) && !is_replicated(a))
            && self.lacks_positions()
    }

    /// Returns `true` if partial digits go away.
    pub(crate) fn reduces(&self) -> bool {
        self.from.iter().zip(&self.to).any(|(a, b)| a.is_partial() && a != b)
    }

    /// Returns `true` if a digit leaves its position.
    pub(crate) fn moves(&self) -> bool {
        self.from.iter().zip(&self.to).any(|(a, b)| a != b && a.position().is_some())
    }

    /// Returns `true` if a digit without a position in both ends finds no unused position that it divides.
    fn lacks_positions(&self) -> bool {
        let Ends { system, from, to, .. } = self;
        let (standing_from, standing_to) = (system.standing(from), system.standing(to));
        let free = |p: &usize| standing_from[*p].is_none() && standing_to[*p].is_none();
        let finds =
            |extent: i64| (0..system.zip.len()).filter(free).any(|p| system.zip[p].extent % extent == 0);
        let shares = |(_, place): &(usize, &Place)| place.position().is_none();
        let lacks = |(d, _): (usize, &Place)| to[d].position().is_none() && !finds(system.digits[d].extent);
        from.iter().enumerate().filter(shares).any(lacks)
    }
}

impl Question<'_> {
    /// Returns the digit system of both ends, and both as states of it.
    ///
    /// It is split at the network's domains if that nests.
    pub(crate) fn states(&self) -> Option<(Arc<System>, State, State)> {
        if !self.on_one_mesh() {
            return None;
        }
        let seeds = self.network.cuts();
        let seeded = refine(self.from, self.to, &seeds);
        if seeded.is_some() || seeds.is_empty() { seeded } else { refine(self.from, self.to, &[]) }
    }

    /// Returns the same with the weights of the digits.
    pub(crate) fn ends(&self) -> Option<Ends> {
        Some(self.ends_of(self.states()?))
    }

    pub(crate) fn ends_of(&self, (system, from, to): (Arc<System>, State, State)) -> Ends {
        let (weights, nest) = self.weigh(system.digits.iter().copied());
        let bounding = if nest { Weights::from_slice(&weights) } else { inside_one_domain(&weights) };
        Ends { system, from, to, weights, bounding }
    }

    /// Returns the weights of some digits, and `true` if all nest with the network's domains.
    pub(crate) fn weigh(&self, digits: impl IntoIterator<Item = Mode<AxisStride>>) -> (Weights, bool) {
        let (mut weights, mut nest) = (Weights::new(), true);
        for d in digits {
            let (level, nests) = self.network.level(d);
            weights.push(Weight { radix: d.extent as u64, level });
            nest &= nests;
        }
        (weights, nest)
    }

    /// Returns the traffic that every plan needs from beyond each level, for digits between codes.
    pub(crate) fn needs_between(
        &self,
        bounding: &[Weight],
        [from, to]: [&Codes; 2],
    ) -> SmallVec<[MinTraffic; 3]> {
        let whole = self.from.numel() as u64;
        let mut needs = SmallVec::new();
        let mut domain_size = 1;
        for level in 0..self.network.levels() {
            let bytes = need(bounding, from, to, whole, level) * self.item as f64;
            let domains = depends_on(bounding, from, to, level).max(1 + u64::from(bytes > 0.0));
            needs.push(MinTraffic { bytes, domains, domain_size });
            domain_size *= bounding.iter().filter(|w| w.level == level).map(|w| w.radix).product::<u64>();
        }
        needs
    }
}
