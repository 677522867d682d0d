//! The step in which a [`Spread`](crate::regions::spread::Spread) splits the data of receivers, straight and
//! transposed.
//!
//! Receivers of the one are senders of the other. So both follow from one count of the messages.

use std::sync::Arc;

use reshard_layout::InlineVec;
use smallvec::SmallVec;

use crate::Error;
use crate::hash::WordMap;
use crate::model::load::{LevelTraffic, Span, StepTraffic, Traffic};
use crate::model::totals::Cost;
use crate::problem::Question;
use crate::regions::intersection::Intersection;
use crate::step::{Action, Moves, Step, Transposed};
use reshard_sharding::{GroupPattern, Sharding, SubAxis};

/// The traffic that each rank receives over each level, added message by message.
#[derive(Default)]
pub(crate) struct Taken(WordMap<usize, Traffic>);

impl Taken {
    pub(crate) fn add(&mut self, q: &Question<'_>, rank: usize, peer: usize, numel: usize) {
        let levels = q.network.levels();
        let of_rank =
            self.0.entry(rank).or_insert_with(|| SmallVec::from_elem(LevelTraffic::default(), levels));
        let at = &mut of_rank[q.network.model.level_of(rank, peer)];
        *at = LevelTraffic { bytes: at.bytes + (numel as u64 * q.item) as f64, peers: at.peers + 1 };
    }

    /// Returns the cost of an exchange with this traffic.
    pub(crate) fn cost(&self, q: &Question<'_>, group: &GroupPattern, peak_bytes: u64) -> Cost {
        let (mut us, mut received) = (0.0f64, 0);
        for traffic in self.0.values() {
            let load = StepTraffic::exchange(traffic, peak_bytes, Span::Group(group));
            us = us.max(q.network.model.cost_us(&load));
            received = received.max(load.received_bytes());
        }
        Cost::new(us, received, peak_bytes)
    }
}

/// An exchange of regions that are spread, and its cost in both directions.
pub(crate) struct SharedOut {
    regions: Intersection,
    axes: InlineVec<SubAxis, 4>,
    group: GroupPattern,
    straight: Cost,
    pub(crate) turned: Cost,
}

impl SharedOut {
    /// Requires regions of one mesh that are spread, and the axes and the group in which they are exchanged.
    pub(crate) fn new(
        q: &Question<'_>,
        regions: Intersection,
        (axes, group): (InlineVec<SubAxis, 4>, GroupPattern),
        peak: u64,
    ) -> Result<SharedOut, Error> {
        let (mut straight, mut turned) = (Taken::default(), Taken::default());
        regions.shared_out(&mut |rank, peer, numel| {
            straight.add(q, rank, peer, numel);
            turned.add(q, peer, rank, numel);
        })?;
        let [straight, turned] = [straight, turned].map(|taken| taken.cost(q, &group, peak));
        Ok(SharedOut { regions, axes, group, straight, turned })
    }

    /// Returns the exchange out of replicas.
    fn straight(self) -> Step {
        let [before, after] = [&self.regions.from, &self.regions.to].map(|s| Arc::new(s.clone()));
        Step {
            axes: self.axes,
            group: self.group,
            before,
            after,
            received_bytes: self.straight.received,
            sent_bytes: self.turned.received,
            peak_bytes: self.straight.peak,
            cost_us: self.straight.us,
            action: Arc::new(Action::Exchange(Moves::Regions(Box::new(self.regions)))),
        }
    }

    /// Returns the transposed exchange.
    ///
    /// Elements that no rank took are filled. Those that several ranks took, where they become replicas, are
    /// added.
    pub(crate) fn turned_round(self, [before, after]: [Arc<Sharding>; 2]) -> Step {
        let turned = self.turned;
        let of = self.straight();
        let known = of.before.replicated_axes();
        let adds = of.after.replicated_axes().iter().any(|sub| !known.contains(sub));
        Step {
            axes: of.axes.clone(),
            group: of.group.clone(),
            before,
            after,
            received_bytes: turned.received,
            sent_bytes: of.received_bytes,
            peak_bytes: of.peak_bytes,
            cost_us: turned.us,
            action: Arc::new(Action::Transposed(Box::new(Transposed { of, adds, fills: true }))),
        }
    }
}
