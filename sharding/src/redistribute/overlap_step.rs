//! Steps by overlapping regions: their axes and groups, and what their worst rank receives, sends and pays.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::redistribute::cost::{Traffic, all_reduce_bytes};
use crate::redistribute::messages::{Motion, Reduce, members};
use crate::redistribute::overlap::{Meetings, Overlap};
use crate::redistribute::planner::{COUNTED, Work};
use crate::redistribute::step::{Step, StepOp};
use crate::{Error, Group, Mesh, Sharding};

/// The most messages that are counted one by one.
const MESSAGES: usize = 1 << 24;

/// What the worst rank receives, sends (bytes) and pays in a step.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    received: u64,
    sent: u64,
    cost_us: f64,
}

impl Work<'_> {
    /// The step in which the regions of two shardings overlap.
    pub(super) fn overlap_step(&self, overlap: Overlap) -> Result<Step, Error> {
        let (from, to) = (&overlap.from, &overlap.to);
        let (axes, group) = if overlap.one_mesh() {
            let axes = moving_axes(from, to, overlap.picks_replicas());
            let group = from.mesh().group(&axes)?;
            (axes, group)
        } else {
            (all_axes(from.mesh()), span_of(from.mesh(), to.mesh())?)
        };
        let counted = self.count(&overlap)?;
        let op = match (counted.received, overlap.fill) {
            (0, None) => StepOp::Slice,
            (0, Some(_)) => StepOp::ZeroFill,
            (_, _) => StepOp::Exchange,
        };
        Ok(Step {
            op,
            axes,
            group,
            before: Arc::new(from.clone()),
            after: Arc::new(to.clone()),
            received_bytes: counted.received,
            sent_bytes: counted.sent,
            cost_us: if op.communicates() { counted.cost_us } else { 0.0 },
            motion: Arc::new(Motion::Overlap(Box::new(overlap))),
        })
    }

    /// What the worst rank receives, sends and pays in an exchange of overlapping regions.
    fn count(&self, overlap: &Overlap) -> Result<Counted, Error> {
        let topology = self.network.topology;
        let meetings = overlap.meetings()?;
        if overlap.message_count(&meetings) > MESSAGES {
            return self.estimate(overlap, &meetings);
        }
        // Ranks of both meshes from the lowest on.
        let low = overlap.from.mesh().lowest();
        let mut sent = vec![0u64; overlap.from.mesh().world() - low];
        let mut worst = Counted::default();
        for rank in overlap.to.mesh().ranks() {
            let mut traffic: Traffic = SmallVec::from_elem((0.0, 0), topology.levels().len());
            let mut received = 0u64;
            overlap.pulls(rank, &meetings, &mut |peer, numel| {
                if peer != rank {
                    let bytes = numel as u64 * self.item;
                    received += bytes;
                    let at = &mut traffic[topology.level_of(rank, peer)];
                    *at = (at.0 + bytes as f64, at.1 + 1);
                    sent[peer - low] += bytes;
                }
            });
            worst.received = worst.received.max(received);
            worst.cost_us = worst.cost_us.max(topology.exchange_us(&traffic));
        }
        worst.sent = sent.into_iter().max().unwrap_or(0);
        Ok(worst)
    }

    /// The same of very many messages, without listing who sends what to whom.
    ///
    /// What is sent is counted as if the replicas of a source shared its wanters evenly, and all comes from the outermost
    /// level.
    fn estimate(&self, overlap: &Overlap, meetings: &Meetings) -> Result<Counted, Error> {
        let topology = self.network.topology;
        let mut worst = Counted::default();
        let mut total = 0u128;
        for rank in overlap.to.mesh().ranks() {
            let (wanted, held) = overlap.wanted_and_held(rank)?;
            let received = (wanted - held) as u64 * self.item;
            let peers = overlap.sources(rank, meetings).saturating_sub(usize::from(held > 0));
            let mut traffic: Traffic = SmallVec::from_elem((0.0, 0), topology.levels().len());
            traffic[topology.levels().len() - 1] = (received as f64, peers);
            total += u128::from(received);
            worst.received = worst.received.max(received);
            worst.cost_us = worst.cost_us.max(topology.exchange_us(&traffic));
        }
        let senders = overlap.from.mesh().size() as u128;
        worst.sent = u64::try_from(total.div_ceil(senders)).unwrap_or(u64::MAX).max(worst.received);
        Ok(worst)
    }

    /// Reduces the terms of `subs` onto all their ranks.
    pub(super) fn all_reduce(
        &self,
        from: &Sharding,
        to: &Sharding,
        subs: &[SubAxis],
        reduce: Reduce,
    ) -> Result<Step, Error> {
        let g: usize = subs.iter().map(|s| s.size).product();
        let (bytes, modelled) = all_reduce_bytes(from.max_local_numel() as u64, g as u64, self.item);
        let motion = Motion::AllReduce { modes: from.mesh().modes(subs).to_vec(), reduce };
        self.reduction(StepOp::AllReduce, [from, to], subs, motion, [bytes, bytes, modelled])
    }

    /// Reduces the terms of `subs` onto shards that lie inside each rank's own.
    pub(super) fn reduce_scatter(
        &self,
        from: &Sharding,
        to: &Sharding,
        subs: &[SubAxis],
        reduce: Reduce,
    ) -> Result<Step, Error> {
        let g: usize = subs.iter().map(|s| s.size).product();
        let most = to.max_local_numel() as u64 * self.item;
        let received = most * (g as u64 - 1);
        let (mesh, mut sent) = (from.mesh(), 0u64);
        let modes = mesh.modes(subs);
        if mesh.size() <= COUNTED {
            for rank in mesh.ranks() {
                let mut mine = 0u64;
                for peer in members(mesh, &modes, rank)?.into_iter().filter(|&peer| peer != rank) {
                    mine += to.local_shape(peer)?.iter().product::<usize>() as u64;
                }
                sent = sent.max(mine * self.item);
            }
        } else {
            sent = received;
        }
        let overlap = Overlap::new(from, to);
        let motion = Motion::ReduceOverlap { overlap: Box::new(overlap), modes: modes.to_vec(), reduce };
        self.reduction(StepOp::ReduceScatter, [from, to], subs, motion, [received, sent, most * g as u64])
    }

    /// A reduction over the group of `subs`, with the bytes that are received, sent, and that the model charges for.
    fn reduction(
        &self,
        op: StepOp,
        [before, after]: [&Sharding; 2],
        subs: &[SubAxis],
        motion: Motion,
        [received_bytes, sent_bytes, modelled]: [u64; 3],
    ) -> Result<Step, Error> {
        let mesh = before.mesh();
        let axes = mesh.sub_axes_of(mesh.modes(subs).iter().copied());
        let halves = if op == StepOp::AllReduce { 2.0 } else { 1.0 };
        let spread = self.network.spread(&mesh.modes(&axes))?;
        Ok(Step {
            op,
            group: mesh.group(&axes)?,
            axes,
            before: Arc::new(before.clone()),
            after: Arc::new(after.clone()),
            received_bytes,
            sent_bytes,
            cost_us: self.network.collective_us(modelled as f64, &spread, halves),
            motion: Arc::new(motion),
        })
    }
}

/// The sub-axes over which an overlap on one mesh moves anything: those of every dim that is sharded differently, and
/// where any replica may be the source, all that are replicated.
fn moving_axes(from: &Sharding, to: &Sharding, replicas: bool) -> SmallVec<[SubAxis; 4]> {
    let same_form = from.layout().is_some() == to.layout().is_some();
    let mut subs: SmallVec<[SubAxis; 8]> = SmallVec::new();
    for dim in 0..from.shape().len() {
        let (a, b) = (from.dim_cuts(dim), to.dim_cuts(dim));
        if !same_form || a != b {
            subs.extend(a.iter().chain(&b).map(|x| x.sub));
        }
    }
    for p in to.partial().iter().filter(|p| !from.partial().contains(p)) {
        subs.push(p.sub);
    }
    if replicas {
        subs.extend(from.replicated_axes());
    }
    // Sub-axes of one axis that are not digits of one number count as the whole of it.
    let mesh = from.mesh();
    let mut axes: SmallVec<[SubAxis; 4]> = SmallVec::new();
    for axis in 0..mesh.axes().len() {
        let mut mine: SmallVec<[SubAxis; 8]> = subs.iter().copied().filter(|s| s.axis == axis).collect();
        mine.sort();
        mine.dedup();
        if mine.windows(2).any(|w| !w[0].nests_beside(w[1])) {
            axes.push(mesh.whole(axis));
        } else {
            axes.extend(mine);
        }
    }
    mesh.sub_axes_of(mesh.modes(&axes).iter().copied())
}

/// The ranks of two meshes as one group: from the lowest to the highest of both.
fn span_of(a: &Mesh, b: &Mesh) -> Result<Group, Error> {
    let low = a.lowest().min(b.lowest());
    let high = a.world().max(b.world());
    Group::new(&reshard_layout::Layout::from_modes(&[((high - low) as i64, 1)])?)
}

fn all_axes(mesh: &Mesh) -> SmallVec<[SubAxis; 4]> {
    mesh.sub_axes_of((0..mesh.axes().len()).map(|a| mesh.mode(mesh.whole(a))))
}
