//! Steps by overlapping regions: their axes and groups, and what their worst rank receives, sends and pays.

use reshard_layout::InlineVec;
use std::sync::Arc;

use reshard_layout::{AxisStride, Mode, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::model::Level;
use crate::model::load::{LevelTraffic, Span, StepTraffic, Traffic, Volume, all_terms};
use crate::model::totals::Cost;
use crate::op::StepOp;
use crate::problem::Question;
use crate::regions::intersection::Intersection;
use crate::regions::tally::{Tally, local_numels};
use crate::shared_exchange::SharedOut;
use crate::step::{Action, Moves, Reduction, Step};
use reshard_sharding::SubAxis;
use reshard_sharding::internal::set_digit;
use reshard_sharding::{GroupPattern, Mesh, Sharding};

/// Maximum number of messages that are counted individually.
const MESSAGES: usize = 1 << 24;

/// Cost of looking up the rank of a message, relative to adding it to a sum.
const LOOKED_UP: usize = 64;

/// A step in which regions overlap, before its messages are counted.
///
/// The received bytes are exact. The cost is exact on one level, and a lower bound otherwise.
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
    /// `true` if the lower bound is the cost.
    exact: bool,
}

impl Proposed {
    pub(crate) fn communicates(&self) -> bool {
        self.received > 0
    }

    /// Returns the work that proposing the step took.
    pub(crate) fn work(&self) -> u64 {
        let looked_at = |tally: &Tally| tally.size() as u64 * 4;
        self.tally.as_ref().map_or(self.regions.to.mesh().size() as u64 * 64, looked_at)
    }

    /// Returns the work of counting the bytes per level of a network.
    pub(crate) fn work_to_count(&self, levels: &[Level]) -> u64 {
        let domain = levels.iter().filter_map(|l| l.ranks).max().unwrap_or(0);
        let Some(tally) = self.tally.as_ref().filter(|_| !self.exact) else { return 0 };
        let each = if tally.is_linear() {
            domain + 8
        } else {
            LOOKED_UP * tally.message_count() / self.regions.to.mesh().size()
        };
        (self.regions.to.mesh().size() * each) as u64
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
            exact: true,
        };
        let model = self.network.model;
        match &proposed.tally {
            None => (proposed.received, proposed.least_us) = self.count(&proposed)?,
            Some(tally) => {
                let one_level = model.levels().len() == 1;
                let (mut received, mut us) = (0u64, 0.0f64);
                tally.each(&mut |seen| {
                    let bytes = seen.received() as u64 * self.item;
                    let peers = seen.peers();
                    received = received.max(bytes);
                    us = us.max(if one_level {
                        let traffic = [LevelTraffic { bytes: bytes as f64, peers }];
                        model.cost_us(&StepTraffic::exchange(&traffic, peak, Span::Group(&proposed.group)))
                    } else {
                        model.least_of_exchange_us(bytes, peers)
                    });
                });
                proposed.received = received;
                proposed.least_us = us;
                proposed.exact = one_level || received == 0;
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

    /// Returns the step that was proposed, with `sent_bytes` left at 0.
    pub(crate) fn counted(&self, proposed: &Proposed) -> Result<Step, Error> {
        let Proposed { regions, axes, group, before, after, received, peak, .. } = proposed;
        let cost_us = if proposed.exact { proposed.least_us } else { self.count(proposed)?.1 };
        let becomes_terms = regions.fill.is_some();
        let moves = Moves::Regions(Box::new(Intersection::clone(regions)));
        let action = match (received, becomes_terms) {
            (0, false) => Action::Slice(moves),
            (0, true) => Action::ZeroFill(moves),
            (_, _) => Action::Exchange(moves),
        };
        Ok(Step {
            axes: axes.clone(),
            group: group.clone(),
            received_bytes: *received,
            sent_bytes: 0,
            peak_bytes: *peak,
            cost_us,
            before: Arc::clone(before),
            after: Arc::clone(after),
            action: Arc::new(action),
        })
    }

    fn volume(&self, op: StepOp, [from, to]: [&Sharding; 2], g: u64) -> Volume {
        Volume::new(op, [from, to].map(|s| s.max_local_numel() as u64), g, self.item)
    }

    /// Returns the bytes that the worst rank receives in an exchange of overlapping regions, and the cost.
    fn count(&self, proposed: &Proposed) -> Result<(u64, f64), Error> {
        let Proposed { regions, peak, group, .. } = proposed;
        let model = self.network.model;
        let levels = model.levels();
        let (mut most, mut us) = (0u64, 0.0f64);
        let mut traffic: Traffic = SmallVec::from_elem(LevelTraffic::default(), levels.len());
        let mut add = |heard: &[(usize, usize)]| {
            let mut received = 0;
            for (at, &(numel, peers)) in traffic.iter_mut().zip(heard) {
                let bytes = numel as u64 * self.item;
                received += bytes;
                *at = LevelTraffic { bytes: bytes as f64, peers };
            }
            most = most.max(received);
            us = us.max(model.cost_us(&StepTraffic::exchange(&traffic, *peak, Span::Group(group))));
        };
        let found = proposed.tally.as_ref().and_then(|tally| tally.by_level(levels, &mut add));
        if found.is_none() {
            let (grids, meetings) = (regions.grids(), regions.meetings()?);
            let mut heard = vec![(0, 0); levels.len()];
            for rank in regions.to.mesh().ranks() {
                heard.fill((0, 0));
                regions.pulls(&grids, rank, &meetings, &mut |peer, numel| {
                    if peer != rank {
                        let at = &mut heard[model.level_of(rank, peer)];
                        *at = (at.0 + numel, at.1 + 1);
                    }
                });
                add(&heard);
            }
        }
        Ok((most, us))
    }

    /// Returns the bytes that the worst rank sends in a step in which regions overlap.
    ///
    /// Above [`MESSAGES`] it is an estimate, as if all replicas of a source shared its receivers evenly.
    pub(crate) fn most_sent_of_regions(&self, step: &Step) -> Result<u64, Error> {
        match &*step.action {
            Action::Slice(Moves::Regions(regions))
            | Action::ZeroFill(Moves::Regions(regions))
            | Action::AllGather(Moves::Regions(regions))
            | Action::AllToAll(Moves::Regions(regions))
            | Action::Exchange(Moves::Regions(regions)) => self.most_sent_by(regions),
            Action::ReduceScatter(Moves::Regions(regions), reduction)
            | Action::OrderedReduce(Moves::Regions(regions), reduction) => {
                self.most_sent_to_group(regions, &coalesced(regions.from.mesh(), reduction))
            }
            Action::Slice(Moves::Modes { .. })
            | Action::ZeroFill(Moves::Modes { .. })
            | Action::AllGather(Moves::Modes { .. })
            | Action::AllToAll(Moves::Modes { .. })
            | Action::Exchange(Moves::Modes { .. })
            | Action::ReduceScatter(Moves::Modes { .. }, _)
            | Action::OrderedReduce(Moves::Modes { .. }, _)
            | Action::AllReduce(_)
            | Action::Transposed(_) => Ok(step.sent_bytes),
        }
    }

    fn most_sent_by(&self, regions: &Intersection) -> Result<u64, Error> {
        // Indexed by rank from the lowest on if ranks are dense, else by position in the mesh.
        let sources = regions.from.mesh();
        let (low, span) = (sources.min_rank(), sources.world_size() - sources.min_rank());
        let dense = span / 2 <= sources.size();
        let mut sent = vec![0u64; if dense { span } else { sources.size() }];
        let mut add = |rank: usize, peer: usize, numel: usize| {
            let place = if dense { Some(peer - low) } else { sources.position(peer) };
            if let (true, Some(at)) = (peer != rank, place) {
                sent[at] += numel as u64 * self.item;
            }
        };
        match Tally::new(&Arc::new(regions.clone()))? {
            None => {
                let (grids, meetings) = (regions.grids(), regions.meetings()?);
                for rank in regions.to.mesh().ranks() {
                    regions.pulls(&grids, rank, &meetings, &mut |peer, numel| add(rank, peer, numel));
                }
            }
            Some(tally) if tally.message_count() <= MESSAGES => {
                tally.messages(&mut |rank, heard| heard.iter().for_each(|&(peer, n)| add(rank, peer, n)));
            }
            Some(tally) => {
                let (mut total, mut worst) = (0u128, 0u64);
                tally.each_rank(&mut |_, seen| {
                    let received = seen.received() as u64 * self.item;
                    total += u128::from(received);
                    worst = worst.max(received);
                });
                let mean = total.div_ceil(sources.size() as u128);
                return Ok(u64::try_from(mean).unwrap_or(u64::MAX).max(worst));
            }
        }
        Ok(sent.into_iter().max().unwrap_or(0))
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
                let traffic = all_terms(block, near);
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
