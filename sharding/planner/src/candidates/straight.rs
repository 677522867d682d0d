//! The one step in which terms go straight to whoever wants them, and ranks whose terms add up share what they receive.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Error;
use crate::model::load::{LevelTraffic, Load, Span, Traffic, Volume};
use crate::op::StepOp;
use crate::question::Question;
use crate::regions::readers::Readers;
use crate::step::{Action, Step};
use reshard_layout::Few;
use reshard_sharding::SubAxis;

impl Question<'_> {
    /// This step, if there is one. Looks at every rank, of which there are few.
    pub(crate) fn straight(&self) -> Result<Option<Step>, Error> {
        let [before, after] = self.shared();
        let Some(readers) = Readers::new(self.shared()) else { return Ok(None) };
        let mesh = before.mesh();
        let model = self.network.model;
        let mut sent = vec![0u64; mesh.size()];
        let mut crossed = vec![false; mesh.axes().len()];
        let mut loads: Vec<Traffic> = Vec::with_capacity(mesh.size());
        readers.each(&mut |rank, heard| {
            let mut traffic: Traffic = SmallVec::from_elem(LevelTraffic::default(), self.network.levels());
            let mine = mesh.coordinate(rank);
            for &(peer, numel) in heard.iter().filter(|h| h.0 != rank) {
                let at = &mut traffic[model.level_of(rank, peer)];
                let bytes = numel as u64 * self.item;
                *at = LevelTraffic { bytes: at.bytes + bytes as f64, peers: at.peers + 1 };
                if let Some(i) = mesh.index_of(peer) {
                    sent[i] += bytes;
                }
                if let (Some(mine), Some(its)) = (&mine, mesh.coordinate(peer)) {
                    crossed.iter_mut().zip(mine.iter().zip(&its)).for_each(|(x, (a, b))| *x |= a != b);
                }
            }
            loads.push(traffic);
        })?;
        let axes: Few<SubAxis, 4> =
            (0..crossed.len()).filter(|&axis| crossed[axis]).map(|axis| mesh.known_whole(axis)).collect();
        let group = mesh.group(&axes)?;
        let ends = [before, after].map(|s| s.max_local_numel() as u64);
        // Terms that are to be added stand beside the target.
        let most = |traffic: &Traffic| traffic.iter().map(|t| t.bytes).sum::<f64>() as u64;
        let staged = if readers.reduce.is_some() { loads.iter().map(most).max().unwrap_or(0) } else { 0 };
        let peak = Volume::new(StepOp::Exchange, ends, 1, self.item).peak.saturating_add(staged);
        let (mut cost_us, mut received_bytes) = (0.0f64, 0);
        for traffic in &loads {
            let load = Load::exchange(traffic, peak, Span::Group(&group));
            cost_us = cost_us.max(model.cost_us(&load));
            received_bytes = received_bytes.max(load.received_bytes());
        }
        Ok((received_bytes > 0).then(|| Step {
            axes,
            group,
            before: Arc::clone(before),
            after: Arc::clone(after),
            received_bytes,
            sent_bytes: sent.into_iter().max().unwrap_or(0),
            peak_bytes: peak,
            cost_us,
            action: Arc::new(Action::Straight(Box::new(readers))),
        }))
    }
}
