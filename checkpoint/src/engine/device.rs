//! Executes plans on one device, for all ranks at once.

use reshard_collectives::Error;
use reshard_device::{Backend, Fused};
use reshard_planner::Plan;

/// A device and its last prepared plan, because consecutive tensors of a checkpoint often share a plan.
pub(crate) struct OnDevice<B: Backend> {
    device: B,
    last: Option<(Plan, Fused<B>)>,
}

impl<B: Backend> OnDevice<B> {
    pub(crate) fn new(device: B) -> Self {
        Self { device, last: None }
    }

    /// Returns the target's shards in mesh order, and the largest number of bytes that a rank received.
    pub(crate) fn redistribute(
        &mut self,
        plan: &Plan,
        sources: &[&[u8]],
    ) -> Result<(Vec<Vec<u8>>, u64), Error> {
        let same = |(known, _): &(Plan, Fused<B>)| {
            (known.from(), known.to(), known.dtype()) == (plan.from(), plan.to(), plan.dtype())
        };
        if !self.last.as_ref().is_some_and(same) {
            // Free the memory of the previous plan first.
            self.last = None;
            let fused = Fused::new(&self.device, plan)?;
            self.last = Some((plan.clone(), fused));
        }
        let Some((_, fused)) = &mut self.last else { return Err(Error::NotInPlan { rank: 0 }) };
        let ranks = || plan.from().mesh().ranks();
        for (rank, source) in ranks().zip(sources) {
            fused.write(rank, source)?;
        }
        fused.run()?;
        let shards = plan.to().mesh().ranks().map(|rank| fused.read(rank)).collect::<Result<_, Error>>()?;
        Ok((shards, fused.received_bytes()))
    }
}
