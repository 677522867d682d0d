//! The step in which a [`Spread`](crate::regions::spread::Spread) splits the data of receivers, straight and
//! transposed.
//!
//! Receivers of the one are senders of the other, so both cost the same, by one count of the messages.

use std::sync::Arc;

use reshard_layout::InlineVec;

use crate::Error;
use crate::model::exchange::Messages;
use crate::model::totals::Cost;
use crate::problem::Question;
use crate::regions::intersection::Intersection;
use crate::step::{Action, Moves, Step, Transposed};
use reshard_sharding::{GroupPattern, Sharding, SubAxis};

/// An exchange of regions that are spread, and its cost, which transposed is the same.
pub(crate) struct SharedOut {
    regions: Intersection,
    axes: InlineVec<SubAxis, 4>,
    group: GroupPattern,
    straight: Cost,
    /// The cost of the transposed exchange, which receives what the straight one sends.
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
        let mut messages = Messages::new(q.network.model, [&regions.from, &regions.to]);
        regions.shared_out(&mut |rank, peer, numel| messages.add([peer, rank], numel))?;
        let (straight, sent) = messages.cost(q.item, &group, peak);
        let turned = Cost { received: sent, ..straight };
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
