//! Steps by overlapping regions: their axes and groups, and what their worst rank receives, sends and pays.

use reshard_layout::InlineVec;
use std::sync::Arc;

use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::model::exchange::{Direction, Messages, Worst};
use crate::model::load::{LevelTraffic, Span, StepTraffic, Traffic, Volume, all_terms};
use crate::model::totals::Cost;
use crate::model::{Level, MinTraffic};
use crate::op::StepOp;
use crate::problem::Question;
use crate::regions::grid::Grid;
use crate::regions::intersection::Intersection;
use crate::regions::senders::Senders;
use crate::regions::tally::{Tally, local_numels};
use crate::shared_exchange::SharedOut;
use crate::step::{Action, Moves, Reduction, Step};
use reshard_sharding::SubAxis;
use reshard_sharding::internal::set_digit;
use reshard_sharding::{GroupPattern, Mesh, Sharding};

/// Maximum number of messages between two meshes that are counted individually.
const MESSAGES: usize = 1 << 24;

/// Cost of looking up the rank of a message, relative to adding it to a sum.
const LOOKED_UP: usize = 32;

/// A step in which regions overlap, before its messages are counted.
///
/// The received bytes are exact. The cost is exact on one level of one mesh, and a lower bound otherwise.
#[derive(Debug)]
pub(crate) struct Proposed {
    pub(crate) regions: Arc<Intersection>,
    /// `None` if every rank has to be examined individually.
    tally: Option<Tally>,
    pub(crate) axes: InlineVec<SubAxis, 4>,
    group: GroupPattern,
    before: Arc<Sharding>,
    after: Arc<Sharding>,
    /// Bytes that the worst rank receives.
    pub(crate) received: u64,
    pub(crate) peak: u64,
    /// Lower bound of the cost in microseconds.
    pub(crate) least_us: f64,
    /// Bytes that the worst rank sends, if the lower bound is the cost.
    exactly_sent: Option<u64>,
    /// The same, with requests shared by the nearest owners; between two meshes.
    shared: Option<Box<Proposed>>,
}

impl Proposed {
    pub(crate) fn communicates(&self) -> bool {
        self.received > 0
    }

    /// Returns `false` if no rank surely sends more than the worst rank receives.
    pub(crate) fn may_send_more(&self) -> bool {
        self.exactly_sent.is_none_or(|sent| sent > self.received)
    }

    /// Returns the work that proposing the step took.
    pub(crate) fn work(&self) -> u64 {
        let looked_at = |tally: &Tally| tally.size() as u64 * 4;
        self.tally.as_ref().map_or(self.regions.to.mesh().size() as u64 * 64, looked_at)
    }

    /// Returns the work of counting what every rank receives and sends.
    pub(crate) fn work_to_count(&self, levels: &[Level]) -> u64 {
        let Some(tally) = self.tally.as_ref().filter(|_| self.exactly_sent.is_none()) else { return 0 };
        let ranks = self.regions.to.mesh().size();
        if self.regions.picks_replicas() || !self.regions.one_mesh() || !tally.is_linear() {
            return (tally.message_count() * LOOKED_UP) as u64;
        }
        let domain = levels.iter().filter_map(|l| l.ranks).max().unwrap_or(0);
        (ranks * (domain + 8)) as u64
    }
}

impl Question<'_> {
    /// Returns the step in which the regions of two shardings overlap, before it is counted.
    pub(crate) fn propose(&self, regions: Intersection) -> Result<Proposed, Error> {
        let regions = Arc::new(regions);
        let tally = Tally::new(&regions)?;
        let (from, to) = (&regions.from, &regions.to);
        let (axes, group) = if regions.one_mesh() {
            let mut axes = moving_axes(from, to, regions.picks_replicas());
            let mut group = from.mesh().group(&axes)?;
            // If that group may not be used, take only the axes along which ranks really receive.
            if !self.options.admits_group(&group)
                && let Some(moved) = tally.as_ref().and_then(Tally::moved)
            {
                axes = beside_each_other(from.mesh(), &moved);
                group = from.mesh().group(&axes)?;
            }
            // If that group may not be used either, take a larger one in which the other ranks are silent.
            if let Some(larger) = self.larger_group(from.mesh(), &axes, &group)
                && tally.as_ref().is_none_or(Tally::is_heard)
            {
                (axes, group) = larger;
            }
            (axes, group)
        } else {
            (all_axes(from.mesh()), span_of(from.mesh(), to.mesh())?)
        };
        let (before, after) = (Arc::new(from.clone()), Arc::new(to.clone()));
        let peak = self.volume(StepOp::Exchange, [&before, &after], 1).peak;
        let mut proposed = Proposed {
            regions: Arc::clone(&regions),
            tally,
            axes,
            group,
            before,
            after,
            received: 0,
            peak,
            least_us: 0.0,
            exactly_sent: None,
            shared: None,
        };
        let model = self.network.model;
        let one_level = model.levels().len() == 1;
        // Between meshes that share no domain, all data crosses the outermost level.
        let is_outer = !one_level && !model.is_custom() && regions.is_apart();
        let cost_us = |bytes: u64, peers: usize| {
            let mut traffic: Traffic = SmallVec::from_elem(LevelTraffic::default(), model.levels().len() - 1);
            traffic.push(LevelTraffic { bytes: bytes as f64, peers });
            model.cost_us(&StepTraffic::exchange(&traffic, peak, Span::Group(&proposed.group)))
        };
        match &proposed.tally {
            None => {
                let (cost, sent) = self.count(&proposed)?;
                (proposed.received, proposed.least_us) = (cost.received, cost.us);
                proposed.exactly_sent = Some(sent);
            }
            Some(tally) => {
                let (mut received, mut us, mut sent) = (0u64, 0.0f64, None);
                tally.each(&mut |seen| {
                    let (bytes, peers) = (seen.received() as u64 * self.item, seen.peers());
                    received = received.max(bytes);
                    us = us.max(if one_level || is_outer {
                        cost_us(bytes, peers)
                    } else {
                        model.least_of_exchange_us(bytes, peers)
                    });
                });
                if received == 0 {
                    sent = Some(0);
                } else if one_level && let Some(senders) = Senders::new(tally) {
                    let mut most = 0;
                    senders.each(false, &mut |_, numel, peers| {
                        let bytes = numel as u64 * self.item;
                        most = most.max(bytes);
                        us = us.max(cost_us(bytes, peers));
                    });
                    sent = Some(most);
                }
                (proposed.received, proposed.least_us, proposed.exactly_sent) = (received, us, sent);
            }
        }
        if proposed.received == 0 {
            proposed.least_us = 0.0;
        }
        Ok(proposed)
    }

    /// Returns the exchange of the regions of one mesh that are split among replicas.
    pub(crate) fn shared_out(&self, regions: Intersection) -> Result<SharedOut, Error> {
        let axes = moving_axes(&regions.from, &regions.to, true);
        let group = regions.from.mesh().group(&axes)?;
        let peak = self.volume(StepOp::Exchange, [&regions.from, &regions.to], 1).peak;
        SharedOut::new(self, regions, (axes, group), peak)
    }

    /// Returns the least admitted group that contains `group`, with its axes; `None` if `group` is admitted.
    fn larger_group(
        &self,
        mesh: &Mesh,
        axes: &[SubAxis],
        group: &GroupPattern,
    ) -> Option<(InlineVec<SubAxis, 4>, GroupPattern)> {
        let given = self.options.groups().filter(|_| !self.options.admits_group(group))?;
        let holds = |all: &InlineVec<SubAxis, 4>| lie_in(axes, all);
        let larger = given.iter().filter(|g| g.size() > group.size());
        let larger = larger.filter_map(|g| Some((mesh.axes_of_group(g).filter(holds)?, g.clone())));
        larger.min_by_key(|(_, g)| g.size())
    }

    /// Returns the exchange between two meshes from near sources, before it is counted.
    pub(crate) fn propose_between(&self, from: &Sharding, to: &Sharding) -> Result<Proposed, Error> {
        let mut proposed = self.propose(self.intersection(from, to))?;
        if !proposed.regions.one_mesh() && proposed.communicates() {
            let shared = self.intersection(from, to).shared(self.network.model.levels())?;
            proposed.shared = shared.map(|regions| self.propose(regions).map(Box::new)).transpose()?;
        }
        Ok(proposed)
    }

    /// Returns the step that was proposed.
    ///
    /// Between two meshes, owners serve whole requests where that is cheaper. They share instead where one
    /// of them would otherwise send longer by more than a round of the slowest level, or a launch: in this
    /// step that may cost nothing, but whatever else the rank sends has to wait.
    pub(crate) fn counted(&self, proposed: &Proposed) -> Result<Step, Error> {
        let (Some(shared), Some(slowest)) = (&proposed.shared, self.network.model.levels().last()) else {
            return self.counted_alone(proposed);
        };
        let shared = self.counted_alone(shared)?;
        // Whole requests cannot be cheaper than their bound.
        if shared.cost_us <= proposed.least_us {
            return Ok(shared);
        }
        let step = self.counted_alone(proposed)?;
        let excess_us =
            step.sent_bytes.saturating_sub(shared.sent_bytes) as f64 / (slowest.gbytes_per_s * 1e3);
        let spare_us = slowest.latency_us.max(self.network.model.least_us(&MinTraffic::STEP));
        Ok(if excess_us > spare_us || shared.cost_us < step.cost_us { shared } else { step })
    }

    fn counted_alone(&self, proposed: &Proposed) -> Result<Step, Error> {
        let Proposed { regions, axes, group, before, after, peak, .. } = proposed;
        let (cost, sent_bytes) = match proposed.exactly_sent {
            Some(sent) => (Cost::new(proposed.least_us, proposed.received, *peak), sent),
            None => self.count(proposed)?,
        };
        let becomes_terms = regions.fill.is_some();
        let moves = Moves::Regions(Box::new(Intersection::clone(regions)));
        let action = match (cost.received, becomes_terms) {
            (0, false) => Action::Slice(moves),
            (0, true) => Action::ZeroFill(moves),
            (_, _) => Action::Exchange(moves),
        };
        Ok(Step {
            axes: axes.clone(),
            group: group.clone(),
            received_bytes: cost.received,
            sent_bytes,
            peak_bytes: *peak,
            cost_us: cost.us,
            before: Arc::clone(before),
            after: Arc::clone(after),
            action: Arc::new(action),
        })
    }

    fn volume(&self, op: StepOp, [from, to]: [&Sharding; 2], g: u64) -> Volume {
        Volume::new(op, [from, to].map(|s| s.max_local_numel() as u64), g, self.item)
    }

    /// Returns the cost of an exchange of overlapping regions, and the bytes that the worst rank sends.
    fn count(&self, proposed: &Proposed) -> Result<(Cost, u64), Error> {
        let Proposed { regions, tally, group, peak, .. } = proposed;
        let mut worst = Worst::new(self.network.model, self.item, group, *peak);
        if let Some(senders) = tally.as_ref().and_then(Senders::new)
            && senders
                .by_level(self.network.model.levels(), &mut |side, loads| worst.see(side, loads))
                .is_some()
        {
            return Ok(worst.cost());
        }
        if let Some(tally) =
            tally.as_ref().filter(|tally| !regions.one_mesh() && tally.message_count() > MESSAGES)
        {
            return self.at_most(tally, worst);
        }
        let mut counted = Messages::new(self.network.model, [&regions.from, &regions.to]);
        if let Some(lines) = regions.lines()? {
            let target = Grid::new(&regions.to);
            for rank in regions.to.mesh().ranks() {
                let Some(receiver) = lines.receiver(regions, &target, rank) else { continue };
                receiver.each_request(&mut |of, lens| {
                    for x in receiver.served(of, lens) {
                        counted.add([x.peer, rank], x.numel);
                    }
                });
            }
        } else if let Some(tally) = tally {
            tally.messages(&mut |rank, heard| {
                for &(peer, numel) in heard {
                    counted.add([peer, rank], numel);
                }
            });
        } else {
            let (grids, meetings) = (regions.grids(), regions.meetings()?);
            for rank in regions.to.mesh().ranks() {
                regions.pulls(&grids, rank, &meetings, &mut |peer, numel| counted.add([peer, rank], numel));
            }
        }
        Ok(counted.cost(self.item, group, *peak))
    }

    /// Returns the most that an exchange between two meshes can cost, without examining its messages.
    ///
    /// All data crosses the outermost level. Every owner of a region serves all requests, or its share; then
    /// each request and each range may be split further.
    fn at_most(&self, tally: &Tally, mut worst: Worst<'_>) -> Result<(Cost, u64), Error> {
        let regions = tally.of();
        let (from, to) = (&regions.from, &regions.to);
        let sharers: usize = match regions.lines()? {
            Some(_) => from.replicated_axes().iter().map(|s| s.size).product(),
            None => 1,
        };
        let cuts = 1 + usize::from(sharers > 1);
        let mut loads: SmallVec<[(usize, usize); 3]> = SmallVec::from_elem((0, 0), self.network.levels());
        let outermost = loads.len() - 1;
        tally.each(&mut |seen| {
            loads[outermost] = (seen.received(), seen.peers() * cuts);
            worst.see(Direction::In, &loads);
        });
        let replicas = to.mesh().size() / to.cutting().map(|s| s.size).product::<usize>();
        let requests = replicas * tally.most_receivers();
        let numel = (replicas * from.max_local_numel()).div_ceil(sharers);
        loads[outermost] = (numel, requests.div_ceil(sharers) + cuts - 1);
        worst.see(Direction::Out, &loads);
        Ok(worst.cost())
    }

    /// Returns the bytes that the worst rank sends in a reduction of regions; other steps know them.
    pub(crate) fn most_sent_of_regions(&self, step: &Step) -> Result<u64, Error> {
        match &*step.action {
            Action::ReduceScatter(Moves::Regions(regions), reduction)
            | Action::OrderedReduce(Moves::Regions(regions), reduction) => {
                self.most_sent_to_group(regions, &coalesced(regions.from.mesh(), reduction))
            }
            Action::Slice(_)
            | Action::ZeroFill(_)
            | Action::AllGather(_)
            | Action::AllToAll(_)
            | Action::Exchange(_)
            | Action::ReduceScatter(Moves::Modes { .. }, _)
            | Action::OrderedReduce(Moves::Modes { .. }, _)
            | Action::AllReduce(_)
            | Action::Transposed(_) => Ok(step.sent_bytes),
        }
    }

    /// Returns the bytes of partial values that the worst rank sends to the others of its group.
    ///
    /// These are the elements that the whole group keeps, without those that the rank itself keeps.
    fn most_sent_to_group(&self, regions: &Intersection, modes: &[Mode<AxisStride>]) -> Result<u64, Error> {
        let mesh = regions.from.mesh();
        let own = local_numels(&regions.to)?;
        let mut of_group = vec![0u64; own.len()];
        let group = |i: usize| {
            let mut c = mesh.coordinate_at(i).unwrap_or_default();
            for &m in modes {
                set_digit(&mut c, m, 0);
            }
            mesh.axes().iter().zip(&c).fold(0, |i, (a, &x)| i * a.size() + x)
        };
        for (i, numel) in own.iter().enumerate() {
            of_group[group(i)] += numel;
        }
        let sent = own.iter().enumerate().map(|(i, numel)| of_group[group(i)] - numel);
        Ok(sent.max().unwrap_or(0) * self.item)
    }

    /// Reduces the partial values along some modes of axes onto all their ranks.
    pub(crate) fn all_reduce(&self, [from, to]: [&Sharding; 2], reduction: Reduction) -> Result<Step, Error> {
        let modes = coalesced(from.mesh(), &reduction);
        let sizes = self.network.domain_sizes(&modes)?;
        let volume = self.volume(StepOp::AllReduce, [from, to], size_of(&reduction));
        let cost = self.network.cost_of_collective(StepOp::AllReduce, &volume, &sizes, &modes);
        reduction_step([from, to], &modes, Action::AllReduce(reduction), cost, cost.received)
    }

    /// Reduces the partial values along some modes of axes onto shards inside each rank's own.
    ///
    /// It is one reduce-scatter, or, in rank order, one exchange of all partial values that every rank
    /// combines as listed.
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
                let traffic = all_terms(block as f64, near);
                us = us.max(self.network.model.cost_us(&StepTraffic::exchange(&traffic, volume.peak, span)));
            }
            (Action::OrderedReduce(moves, reduction), Cost::new(us, volume.received, volume.peak))
        } else {
            let cost = self.network.cost_of_collective(StepOp::ReduceScatter, &volume, &sizes, &modes);
            (Action::ReduceScatter(moves, reduction), cost)
        };
        // The sent bytes are left at 0.
        reduction_step([from, to], &modes, action, cost, 0)
    }
}

/// Returns the step of a reduction over the group of some modes.
fn reduction_step(
    [from, to]: [&Sharding; 2],
    modes: &[Mode<AxisStride>],
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

/// Returns the modes of a reduction in the form that its group has.
fn coalesced(mesh: &Mesh, reduction: &Reduction) -> Modes<AxisStride> {
    mesh.modes(&mesh.sub_axes_of(reduction.modes.iter().copied()))
}

fn size_of(reduction: &Reduction) -> u64 {
    reduction.modes.iter().map(|m| m.extent as u64).product()
}

/// Returns the sub-axes along which an overlap on one mesh transfers anything.
///
/// These are the axes of every dim that is sharded differently and those that become partial. Where any
/// replica may be the source, all replicated axes are among them.
fn moving_axes(from: &Sharding, to: &Sharding, replicas: bool) -> InlineVec<SubAxis, 4> {
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
    beside_each_other(from.mesh(), &subs)
}

/// Replaces sub-axes of one axis that are not digits of one number by the whole axis.
fn beside_each_other(mesh: &Mesh, subs: &[SubAxis]) -> InlineVec<SubAxis, 4> {
    let mut axes: InlineVec<SubAxis, 4> = InlineVec::new();
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

/// Returns `true` if `outer` has all the digits of `inner`.
pub(crate) fn contains(outer: SubAxis, inner: SubAxis) -> bool {
    outer.axis == inner.axis
        && outer.pre_size <= inner.pre_size
        && inner.pre_size * inner.size <= outer.pre_size * outer.size
}

/// Returns `true` if the groups of some axes are contained in those of others.
pub(crate) fn lie_in(axes: &[SubAxis], others: &[SubAxis]) -> bool {
    axes.iter().all(|&s| others.iter().any(|&other| contains(other, s)))
}

/// Returns the ranks of two meshes as one group: from the lowest to the highest of both.
fn span_of(a: &Mesh, b: &Mesh) -> Result<GroupPattern, Error> {
    let low = a.min_rank().min(b.min_rank());
    let high = a.world_size().max(b.world_size());
    Ok(GroupPattern::new(&reshard_layout::Layout::from_modes(&[((high - low) as i64, 1)])?)?)
}

fn all_axes(mesh: &Mesh) -> InlineVec<SubAxis, 4> {
    mesh.sub_axes_of(mesh.whole_axes().map(|a| mesh.known_mode(a)))
}
