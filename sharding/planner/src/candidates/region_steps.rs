//! Steps by overlapping regions: their axes and groups, and what their worst rank receives, sends and pays.

use reshard_layout::Few;
use std::sync::Arc;

use reshard_layout::{At, Mode, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::model::load::{LevelTraffic, Load, Span, Traffic, Volume, all_terms};
use crate::model::totals::Cost;
use crate::op::StepOp;
use crate::question::COUNTED;
use crate::question::Question;
use crate::regions::intersection::{Intersection, Meetings};
use crate::step::{Action, Moves, Reduction, Step};
use reshard_sharding::SubAxis;
use reshard_sharding::internal::members_along;
use reshard_sharding::{GroupPattern, Mesh, Sharding};

/// The most messages that are counted one by one.
const MESSAGES: usize = 1 << 24;

/// What the worst rank receives, sends (bytes) and pays in a step.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    received: u64,
    sent: u64,
    cost_us: f64,
}

impl Question<'_> {
    /// The step in which the regions of two shardings overlap.
    pub(crate) fn region_step(&self, regions: Intersection) -> Result<Step, Error> {
        let (from, to) = (&regions.from, &regions.to);
        let (axes, group) = if regions.one_mesh() {
            let axes = moving_axes(from, to, regions.picks_replicas());
            let group = from.mesh().group(&axes)?;
            (axes, group)
        } else {
            (all_axes(from.mesh()), span_of(from.mesh(), to.mesh())?)
        };
        let mut counted = self.count(&regions, &group)?;
        let (before, after) = (Arc::new(from.clone()), Arc::new(to.clone()));
        let becomes_terms = regions.fill.is_some();
        let moves = Moves::Regions(Box::new(regions));
        let action = match (counted.received, becomes_terms) {
            (0, false) => Action::Slice(moves),
            (0, true) => Action::ZeroFill(moves),
            (_, _) => Action::Exchange(moves),
        };
        if counted.received == 0 {
            counted.cost_us = 0.0;
        }
        Ok(Step {
            axes,
            group,
            received_bytes: counted.received,
            sent_bytes: counted.sent,
            peak_bytes: self.volume(StepOp::Exchange, [&before, &after], 1).peak,
            cost_us: counted.cost_us,
            before,
            after,
            action: Arc::new(action),
        })
    }

    fn volume(&self, op: StepOp, [from, to]: [&Sharding; 2], g: u64) -> Volume {
        Volume::new(op, [from, to].map(|s| s.max_local_numel() as u64), g, self.item)
    }

    /// What the worst rank receives, sends and pays in an exchange of overlapping regions.
    fn count(&self, intersection: &Intersection, group: &GroupPattern) -> Result<Counted, Error> {
        let model = self.network.model;
        let peak = self.volume(StepOp::Exchange, [&intersection.from, &intersection.to], 1).peak;
        let meetings = intersection.meetings()?;
        if intersection.message_count(&meetings) > MESSAGES {
            return self.estimate(intersection, &meetings, group);
        }
        // By rank from the lowest on, where ranks are not far apart, else by position in the mesh.
        let sources = intersection.from.mesh();
        let (low, span) = (sources.lowest(), sources.world() - sources.lowest());
        let dense = span / 2 <= sources.size();
        let place = |rank: usize| if dense { Some(rank - low) } else { sources.index_of(rank) };
        let mut sent = vec![0u64; if dense { span } else { sources.size() }];
        let mut worst = Counted::default();
        for rank in intersection.to.mesh().ranks() {
            let mut traffic: Traffic = SmallVec::from_elem(LevelTraffic::default(), model.levels().len());
            let mut received = 0u64;
            intersection.pulls(rank, &meetings, &mut |peer, numel| {
                if peer != rank {
                    let bytes = numel as u64 * self.item;
                    received += bytes;
                    let at = &mut traffic[model.level_of(rank, peer)];
                    *at = LevelTraffic { bytes: at.bytes + bytes as f64, peers: at.peers + 1 };
                    if let Some(at) = place(peer) {
                        sent[at] += bytes;
                    }
                }
            });
            worst.received = worst.received.max(received);
            let load = Load::exchange(&traffic, peak, Span::Group(group));
            worst.cost_us = worst.cost_us.max(model.cost_us(&load));
        }
        worst.sent = sent.into_iter().max().unwrap_or(0);
        Ok(worst)
    }

    /// The same of very many messages, without listing who sends what to whom.
    ///
    /// What is sent is counted as if the replicas of a source shared its wanters evenly, and all comes from the outermost
    /// level.
    fn estimate(
        &self,
        intersection: &Intersection,
        meetings: &Meetings,
        group: &GroupPattern,
    ) -> Result<Counted, Error> {
        let model = self.network.model;
        let peak = self.volume(StepOp::Exchange, [&intersection.from, &intersection.to], 1).peak;
        let mut worst = Counted::default();
        let mut total = 0u128;
        for rank in intersection.to.mesh().ranks() {
            let (wanted, held) = intersection.wanted_and_held(rank)?;
            let received = (wanted - held) as u64 * self.item;
            let peers = intersection.sources(rank, meetings).saturating_sub(usize::from(held > 0));
            let mut traffic: Traffic = SmallVec::from_elem(LevelTraffic::default(), model.levels().len());
            traffic[model.levels().len() - 1] = LevelTraffic { bytes: received as f64, peers };
            total += u128::from(received);
            worst.received = worst.received.max(received);
            let load = Load::exchange(&traffic, peak, Span::Group(group));
            worst.cost_us = worst.cost_us.max(model.cost_us(&load));
        }
        let senders = intersection.from.mesh().size() as u128;
        worst.sent = u64::try_from(total.div_ceil(senders)).unwrap_or(u64::MAX).max(worst.received);
        Ok(worst)
    }

    /// Reduces the terms along some modes of axes onto all their ranks.
    pub(crate) fn all_reduce(&self, [from, to]: [&Sharding; 2], reduction: Reduction) -> Result<Step, Error> {
        let modes = coalesced(from.mesh(), &reduction);
        let sizes = self.network.domain_sizes(&modes)?;
        let volume = self.volume(StepOp::AllReduce, [from, to], size_of(&reduction));
        let cost = self.network.cost_of_collective(StepOp::AllReduce, &volume, &sizes, &modes);
        reduction_step([from, to], &modes, Action::AllReduce(reduction), cost, cost.received)
    }

    /// Reduces the terms along some modes of axes onto shards that lie inside each rank's own: one reduce-scatter, or, in
    /// rank order, one exchange of all terms that everyone combines as listed.
    pub(crate) fn reduce_inside(
        &self,
        [from, to]: [&Sharding; 2],
        reduction: Reduction,
    ) -> Result<Step, Error> {
        let mesh = from.mesh();
        let modes = coalesced(mesh, &reduction);
        let sizes = self.network.domain_sizes(&modes)?;
        let volume = self.volume(StepOp::ReduceScatter, [from, to], size_of(&reduction));
        let moves = Moves::Regions(Box::new(Intersection::new(from, to)));
        let (action, cost) = if self.options.deterministic {
            let block = to.max_local_numel() as u64 * self.item;
            let span = Span::Axes { mesh, modes: &modes };
            let mut us = 0.0f64;
            for near in &sizes {
                let traffic = all_terms(block, near);
                us = us.max(self.network.model.cost_us(&Load::exchange(&traffic, volume.peak, span)));
            }
            (Action::OrderedReduce(moves, reduction), Cost::new(us, volume.received, volume.peak))
        } else {
            let cost = self.network.cost_of_collective(StepOp::ReduceScatter, &volume, &sizes, &modes);
            (Action::ReduceScatter(moves, reduction), cost)
        };
        let mut sent = volume.received;
        if mesh.size() <= COUNTED {
            sent = 0;
            for rank in mesh.ranks() {
                let mut mine = 0u64;
                for peer in members_along(mesh, &modes, rank)?.into_iter().filter(|&peer| peer != rank) {
                    mine += to.local_shape(peer)?.iter().product::<usize>() as u64;
                }
                sent = sent.max(mine * self.item);
            }
        }
        reduction_step([from, to], &modes, action, cost, sent)
    }
}

/// The step of a reduction over the group of some modes.
fn reduction_step(
    [from, to]: [&Sharding; 2],
    modes: &[Mode<At>],
    action: Action,
    cost: Cost,
    sent_bytes: u64,
) -> Result<Step, Error> {
    let mesh = from.mesh();
    Ok(Step {
        axes: mesh.sub_axes_of(modes.iter().copied()),
        group: mesh.group_of_modes(modes)?,
        before: Arc::new(from.clone()),
        after: Arc::new(to.clone()),
        received_bytes: cost.received,
        sent_bytes,
        peak_bytes: cost.peak,
        cost_us: cost.us,
        action: Arc::new(action),
    })
}

/// The modes of a reduction as its group has them.
fn coalesced(mesh: &Mesh, reduction: &Reduction) -> Modes<At> {
    mesh.modes(&mesh.sub_axes_of(reduction.modes.iter().copied()))
}

fn size_of(reduction: &Reduction) -> u64 {
    reduction.modes.iter().map(|m| m.extent as u64).product()
}

/// The sub-axes over which an overlap on one mesh moves anything: those of every dim that is sharded differently, and
/// where any replica may be the source, all that are replicated.
fn moving_axes(from: &Sharding, to: &Sharding, replicas: bool) -> Few<SubAxis, 4> {
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
    let mut axes: Few<SubAxis, 4> = Few::new();
    for axis in 0..mesh.axes().len() {
        let mut mine: SmallVec<[SubAxis; 8]> = subs.iter().copied().filter(|s| s.axis == axis).collect();
        mine.sort();
        mine.dedup();
        if mine.windows(2).any(|w| !w[0].nests_beside(w[1])) {
            axes.push(mesh.known_whole(axis));
        } else {
            axes.extend(mine);
        }
    }
    mesh.sub_axes_of(mesh.modes(&axes).iter().copied())
}

/// The ranks of two meshes as one group: from the lowest to the highest of both.
fn span_of(a: &Mesh, b: &Mesh) -> Result<GroupPattern, Error> {
    let low = a.lowest().min(b.lowest());
    let high = a.world().max(b.world());
    Ok(GroupPattern::new(&reshard_layout::Layout::from_modes(&[((high - low) as i64, 1)])?)?)
}

fn all_axes(mesh: &Mesh) -> Few<SubAxis, 4> {
    mesh.sub_axes_of(mesh.whole_axes().map(|a| mesh.known_mode(a)))
}
