//! Plans by overlapping regions: any two shardings of a tensor, uneven, not nesting, or on two meshes.
//!
//! Partial axes that go away are reduced first, in the source's own cuts, where one sharding always nests: onto all
//! ranks of the group, onto equal pieces of one dim, or straight onto the target where every rank's part of it lies
//! inside what the rank holds a term of. Then one exchange moves whatever is still missing.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::axis::{SubAxis, join};
use crate::digits::{Digit, Digits, Owner, Word};
use crate::extent::Cut;
use crate::redistribute::cost::{Traffic, all_reduce_bytes};
use crate::redistribute::messages::{Motion, Reduce, members, reduce_of};
use crate::redistribute::overlap::Overlap;
use crate::redistribute::planner::{COUNTED, Planner, Work};
use crate::redistribute::step::{Step, StepOp};
use crate::sharding::{AxisCut, Cuts, PartialAxis};
use crate::{Error, Group, Mesh, Placement, ReduceOp, Sharding};

/// The most ranks for which overlapping regions are planned.
const MAX_RANKS: usize = 1 << 20;
/// The most ranks for which every message of an exchange is counted.
const ENUMERATED: usize = 1 << 12;

/// What the worst rank receives, sends (bytes) and pays in a step.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    received: u64,
    sent: u64,
    cost_us: f64,
}

impl Work<'_> {
    /// Every way to reduce first and then move.
    pub(super) fn overlap_candidates(&self) -> Result<Vec<Vec<Step>>, Error> {
        let (from, to) = (self.from, self.to);
        let ranks = from.mesh().size().max(to.mesh().size());
        if ranks > MAX_RANKS {
            return Err(Error::Unsupported {
                reason: format!(
                    "{from} -> {to} is uneven or on two meshes, so each of the {ranks} ranks is looked at, and the most \
                     is {MAX_RANKS}: let the shardings divide on one mesh, or plan for a part of it"
                ),
            });
        }
        let one_mesh = from.mesh() == to.mesh();
        let kept = |p: &PartialAxis| one_mesh && to.partial().contains(p);
        let (stay, gone): (Vec<PartialAxis>, Vec<PartialAxis>) = from.partial().iter().partition(|p| kept(p));
        if gone.is_empty() {
            return self.onward(from);
        }
        let subs: SmallVec<[SubAxis; 4]> = gone.iter().map(|p| p.sub).collect();
        let reduce = reduce_of(gone.iter().map(|p| (p.op, p.sub.size)));
        let mut plans = Vec::new();
        // Reduce onto everybody, then move.
        let whole = from.with_partial(stay.iter().copied())?;
        let first = if self.planner.deterministic {
            self.combine(from, &whole, &subs, reduce)?
        } else {
            self.all_reduce(from, &whole, &subs, reduce)?
        };
        self.go_on(&first, &whole, &mut plans)?;
        // Reduce onto equal pieces of one dim, then move.
        for dim in 0..from.shape().len() {
            if let Some(pieces) = pieces(&whole, &subs, dim)? {
                self.go_on(&self.combine(from, &pieces, &subs, reduce)?, &pieces, &mut plans)?;
            }
        }
        // Reduce straight onto the target, where every rank's part lies inside what it holds a term of.
        if one_mesh && to.partial().len() == stay.len() && lies_inside(from, to)? {
            plans.push(vec![self.combine(from, to, &subs, reduce)?]);
        }
        Ok(plans)
    }

    /// A first step, and every way to go on from where it leads.
    fn go_on(&self, first: &Step, from: &Sharding, plans: &mut Vec<Vec<Step>>) -> Result<(), Error> {
        for rest in self.onward(from)? {
            plans.push([first.clone()].into_iter().chain(rest).collect());
        }
        Ok(())
    }

    /// The ways from a sharding whose partial axes stay: one overlap, what becomes partial at once and then the rest, and
    /// after combining in rank order by digits, where that is sure to reduce nothing.
    fn onward(&self, from: &Sharding) -> Result<Vec<Vec<Step>>, Error> {
        let to = self.to;
        let mut plans = vec![self.direct(from)?.into_iter().collect()];
        let item = self.item as usize;
        let free = Planner { max_peak_bytes: None, groups: None, ..self.planner.clone() };
        if self.planner.deterministic
            && self.from.is_partial()
            && !from.is_partial()
            && from.mesh() == to.mesh()
        {
            plans.push(free.plan(from, to, item)?.steps);
        }
        // Where that is the target itself, the first of these ways is the whole way.
        if let Some(filled) = self.filled(from)?.filter(|filled| filled != to) {
            let first = free.plan(from, &filled, item)?;
            if first.received_bytes == 0 {
                let mut steps = first.steps;
                steps.extend(free.plan(&filled, to, item)?.steps);
                plans.push(steps);
            }
        }
        Ok(plans)
    }

    /// The sharding in which the axes that become partial and shard now are partial already, which moves nothing.
    fn filled(&self, from: &Sharding) -> Result<Option<Sharding>, Error> {
        let to = self.to;
        let (Some(digits), true) = (from.digits(), from.mesh() == to.mesh()) else { return Ok(None) };
        let shards = |p: &PartialAxis| {
            let inside = |d: &Digit| d.sub_axis().is_some_and(|s| contains(p.sub, s));
            let touches = |d: &Digit| d.sub_axis().is_some_and(|s| s.axis == p.sub.axis);
            digits.iter().any(inside) && digits.iter().all(|d| inside(d) || !touches(d))
        };
        let fills: SmallVec<[PartialAxis; 2]> =
            to.partial().iter().copied().filter(|p| p.op != ReduceOp::Avg && shards(p)).collect();
        let mixes = |p: &PartialAxis| fills.iter().all(|f| f.op.mixes_with(p.op));
        if fills.is_empty() || !from.partial().iter().all(mixes) {
            return Ok(None);
        }
        let local = digits.iter().map(|&d| match d.sub_axis() {
            Some(s) if fills.iter().any(|p| contains(p.sub, s)) => Digit { owner: Owner::Local, ..d },
            Some(_) | None => d,
        });
        let partial = from.partial().iter().copied().chain(fills.iter().copied());
        Sharding::from_digits(from.mesh(), from.shape(), local, partial).map(Some)
    }

    /// Reduces the terms of `subs` onto shards inside each rank's own: one reduce-scatter, or, in rank order, one exchange
    /// of all terms that everyone combines as listed.
    fn combine(
        &self,
        from: &Sharding,
        to: &Sharding,
        subs: &[SubAxis],
        reduce: Reduce,
    ) -> Result<Step, Error> {
        let step = self.reduce_scatter(from, to, subs, reduce)?;
        if !self.planner.deterministic {
            return Ok(step);
        }
        let bytes = (to.max_local_numel() as u64 * self.item) as f64;
        let mut cost_us = 0.0f64;
        for near in self.network.spread(&step.axes)? {
            let mut traffic = Traffic::new();
            let mut below = 1;
            for n in near {
                traffic.push((bytes * (n - below) as f64, n - below));
                below = n;
            }
            cost_us = cost_us.max(self.network.topology.exchange_us(&traffic));
        }
        Ok(Step { op: StepOp::Exchange, cost_us, ..step })
    }

    /// One step from a sharding without partial axes that go away to the target; none if they are the same.
    fn direct(&self, from: &Sharding) -> Result<Option<Step>, Error> {
        let to = self.to;
        if from == to {
            return Ok(None);
        }
        let mut overlap = Overlap::new(from, to);
        let one_mesh = overlap.one_mesh();
        for p in to.partial().iter().filter(|p| !(one_mesh && from.partial().contains(p))) {
            if p.op != ReduceOp::Avg {
                overlap.embeds.push(p.sub);
                overlap.fill = Some(p.op);
            }
        }
        let axes: SmallVec<[SubAxis; 4]> =
            if one_mesh { moving_axes(from, to) } else { all_axes(from.mesh()) };
        if overlap.fill.is_some() && one_mesh && is_embedding(from, to) {
            // Everyone keeps what it holds: only what was replicated over an axis is kept once.
            overlap.local = true;
            let replicated = from.replicated_axes();
            overlap.embeds.retain(|s| replicated.iter().any(|r| contains(*r, *s)));
            return Ok(Some(step(StepOp::ZeroFill, axes, overlap, Counted::default())?));
        }
        let counted = self.count(&overlap)?;
        let op = match (counted.received, overlap.fill) {
            (0, None) => StepOp::Slice,
            (0, Some(_)) => StepOp::ZeroFill,
            (_, _) => StepOp::Exchange,
        };
        Ok(Some(step(op, axes, overlap, counted)?))
    }

    /// What the worst rank receives, sends and pays in an exchange of overlapping regions.
    fn count(&self, overlap: &Overlap) -> Result<Counted, Error> {
        let topology = self.network.topology;
        if overlap.to.mesh().size() > ENUMERATED && topology.levels().len() == 1 {
            return self.count_large(overlap);
        }
        let ranks = overlap.ranks();
        let mut sent = vec![0u64; ranks.len()];
        let mut worst = Counted::default();
        for &rank in &ranks {
            let mut traffic: Traffic = SmallVec::from_elem((0.0, 0), topology.levels().len());
            let mut received = 0u64;
            for m in overlap.received(rank)?.iter().filter(|m| m.peer != rank) {
                let bytes = m.numel() as u64 * self.item;
                received += bytes;
                let at = &mut traffic[topology.level_of(rank, m.peer)];
                *at = (at.0 + bytes as f64, at.1 + 1);
                sent[ranks.binary_search(&m.peer).expect("a source holds something")] += bytes;
            }
            worst.received = worst.received.max(received);
            worst.cost_us = worst.cost_us.max(topology.exchange_us(&traffic));
        }
        worst.sent = sent.into_iter().max().unwrap_or(0);
        Ok(worst)
    }

    /// The same on very many ranks of one level, without listing who sends what to whom.
    ///
    /// What is sent is counted as if the replicas of a source shared its wanters evenly.
    fn count_large(&self, overlap: &Overlap) -> Result<Counted, Error> {
        let meetings = overlap.meetings()?;
        let mut worst = Counted::default();
        let mut total = 0u128;
        for rank in overlap.to.mesh().ranks() {
            let (wanted, held) = overlap.wanted_and_held(rank)?;
            let received = (wanted - held) as u64 * self.item;
            let peers = overlap.sources(rank, &meetings) - usize::from(held > 0);
            let traffic: Traffic = SmallVec::from_iter([(received as f64, peers)]);
            total += u128::from(received);
            worst.received = worst.received.max(received);
            worst.cost_us = worst.cost_us.max(self.network.topology.exchange_us(&traffic));
        }
        let senders = overlap.from.mesh().size() as u128;
        worst.sent = u64::try_from(total.div_ceil(senders)).unwrap_or(u64::MAX).max(worst.received);
        Ok(worst)
    }

    fn all_reduce(
        &self,
        from: &Sharding,
        to: &Sharding,
        subs: &[SubAxis],
        reduce: Reduce,
    ) -> Result<Step, Error> {
        let g: usize = subs.iter().map(|s| s.size).product();
        let (bytes, modelled) = all_reduce_bytes(from.max_local_numel() as u64, g as u64, self.item);
        let axes: SmallVec<[SubAxis; 4]> = join(subs.iter().copied());
        Ok(Step {
            op: StepOp::AllReduce,
            group: from.mesh().group(&axes)?,
            axes: axes.clone(),
            before: from.clone(),
            after: to.clone(),
            received_bytes: bytes,
            sent_bytes: bytes,
            cost_us: self.network.collective_us(modelled as f64, &self.network.spread(&axes)?, 2.0),
            motion: Arc::new(Motion::AllReduce { subs: SmallVec::from_slice(subs), reduce }),
        })
    }

    fn reduce_scatter(
        &self,
        from: &Sharding,
        to: &Sharding,
        subs: &[SubAxis],
        reduce: Reduce,
    ) -> Result<Step, Error> {
        let g: usize = subs.iter().map(|s| s.size).product();
        let axes: SmallVec<[SubAxis; 4]> = join(subs.iter().copied());
        let received = to.max_local_numel() as u64 * (g as u64 - 1) * self.item;
        let mut sent = 0u64;
        let mesh = from.mesh();
        if mesh.size() <= COUNTED {
            for rank in mesh.ranks() {
                let mut mine = 0u64;
                for peer in members(mesh, subs, rank)? {
                    if peer != rank {
                        mine += to.local_shape(peer)?.iter().product::<usize>() as u64;
                    }
                }
                sent = sent.max(mine * self.item);
            }
        } else {
            sent = received;
        }
        Ok(Step {
            op: StepOp::ReduceScatter,
            group: mesh.group(&axes)?,
            axes: axes.clone(),
            before: from.clone(),
            after: to.clone(),
            received_bytes: received,
            sent_bytes: sent,
            cost_us: self.network.collective_us(
                (to.max_local_numel() * g) as f64 * self.item as f64,
                &self.network.spread(&axes)?,
                1.0,
            ),
            motion: Arc::new(Motion::ReduceOverlap {
                overlap: Overlap::new(from, to),
                subs: SmallVec::from_slice(subs),
                reduce,
            }),
        })
    }
}

/// The sharding in which the ranks of `subs` share what each of them held of `dim`.
fn pieces(whole: &Sharding, subs: &[SubAxis], dim: usize) -> Result<Option<Sharding>, Error> {
    let (mesh, shape) = (whole.mesh(), whole.shape());
    if let Some(digits) = whole.digits() {
        let mut word = Word::from_digits(digits.iter().copied().filter(|d| d.dim == dim), dim);
        if subs.iter().all(|&s| word.give(1, s)) {
            let mut all: Digits = digits.iter().copied().filter(|d| d.dim < dim).collect();
            all.extend(word.digits().iter().copied());
            all.extend(digits.iter().copied().filter(|d| d.dim > dim));
            return Sharding::from_digits(mesh, shape, all, whole.partial().iter().copied()).map(Some);
        }
    }
    if subs.iter().any(|&s| s != mesh.whole(s.axis)) {
        return Ok(None);
    }
    let mut cuts: Cuts = match (whole.cuts(), whole.placements()) {
        (Some(cuts), _) => cuts.iter().cloned().collect(),
        (None, Err(_)) => return Ok(None),
        (None, Ok(placements)) => {
            let cut = |(axis, p): (usize, &Placement)| {
                let (dim, cut) = p.cut(mesh.axes()[axis].size())?;
                Some(AxisCut { dim, sub: mesh.whole(axis), cut })
            };
            placements.iter().enumerate().filter_map(cut).collect()
        }
    };
    cuts.extend(subs.iter().map(|&s| AxisCut { dim, sub: s, cut: Cut::chunks(1, s.size) }));
    let partial = whole.partial().iter().copied().collect();
    let pieces = Sharding::from_cuts(mesh, shape, cuts, partial)?;
    Ok(pieces.has_notation().then_some(pieces))
}

/// Whether what each rank wants lies inside what it holds.
fn lies_inside(from: &Sharding, to: &Sharding) -> Result<bool, Error> {
    if from.mesh().size() > COUNTED {
        return Ok(false);
    }
    let overlap = Overlap::new(from, to);
    for rank in from.mesh().ranks() {
        let (wanted, held) = overlap.wanted_and_held(rank)?;
        if wanted != held {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains(outer: SubAxis, inner: SubAxis) -> bool {
    outer.axis == inner.axis && outer.pre <= inner.pre && inner.pre * inner.size <= outer.pre * outer.size
}

fn all_axes(mesh: &Mesh) -> SmallVec<[SubAxis; 4]> {
    join((0..mesh.axes().len()).map(|a| mesh.whole(a)))
}

/// The sub-axes of what shards a dim, as a list to compare.
fn shards_of(s: &Sharding, dim: usize) -> SmallVec<[(SubAxis, Cut); 4]> {
    if let Some(digits) = s.digits() {
        let mut skipped = 1;
        let mut list = SmallVec::new();
        for d in digits.iter().filter(|d| d.dim == dim) {
            match d.sub_axis() {
                Some(sub) => list.push((sub, Cut::chunks(skipped, sub.size))),
                None => skipped *= d.radix,
            }
        }
        return list;
    }
    let cuts = s.cuts().unwrap_or_default().iter().filter(|c| c.dim == dim);
    cuts.map(|c| (c.sub, c.cut.clone())).collect()
}

/// The sub-axes over which an overlap on one mesh moves anything: those of every dim that is sharded differently.
fn moving_axes(from: &Sharding, to: &Sharding) -> SmallVec<[SubAxis; 4]> {
    let same_form = from.digits().is_some() == to.digits().is_some();
    let mut subs: SmallVec<[SubAxis; 8]> = SmallVec::new();
    for dim in 0..from.shape().len() {
        let (a, b) = (shards_of(from, dim), shards_of(to, dim));
        if !same_form || a != b {
            subs.extend(a.iter().chain(&b).map(|x| x.0));
        }
    }
    for p in to.partial().iter().filter(|p| !from.partial().contains(p)) {
        subs.push(p.sub);
    }
    // Overlapping sub-axes of one axis count as the whole of it.
    let mesh = from.mesh();
    let mut axes: SmallVec<[SubAxis; 4]> = SmallVec::new();
    for axis in 0..mesh.axes().len() {
        let mut mine: SmallVec<[SubAxis; 8]> = subs.iter().copied().filter(|s| s.axis == axis).collect();
        mine.sort();
        mine.dedup();
        if mine.windows(2).any(|w| w[0].pre * w[0].size > w[1].pre) {
            axes.push(mesh.whole(axis));
        } else {
            axes.extend(mine);
        }
    }
    join(axes)
}

/// Whether the target is the source with some of its last cuts, or idle axes, become partial.
fn is_embedding(from: &Sharding, to: &Sharding) -> bool {
    let embedded = |s: SubAxis| to.partial().iter().any(|p| contains(p.sub, s));
    (0..from.shape().len()).all(|dim| {
        let (a, b) = (shards_of(from, dim), shards_of(to, dim));
        a.len() >= b.len() && a[..b.len()] == b[..] && a[b.len()..].iter().all(|x| embedded(x.0))
    }) && from.digits().is_some() == to.digits().is_some()
}

/// The ranks of two meshes as one group: from the lowest to the highest of both.
fn span_of(a: &Mesh, b: &Mesh) -> Result<Group, Error> {
    let low = a.lowest().min(b.lowest());
    let high = a.world().max(b.world());
    Group::new(&reshard_layout::Layout::from_modes(&[((high - low) as i64, 1)])?)
}

/// A step of overlapping regions.
fn step(op: StepOp, axes: SmallVec<[SubAxis; 4]>, overlap: Overlap, counted: Counted) -> Result<Step, Error> {
    let group = if overlap.one_mesh() {
        overlap.from.mesh().group(&axes)?
    } else {
        span_of(overlap.from.mesh(), overlap.to.mesh())?
    };
    let cost_us = if op.communicates() { counted.cost_us } else { 0.0 };
    Ok(Step {
        op,
        axes,
        group,
        before: overlap.from.clone(),
        after: overlap.to.clone(),
        received_bytes: counted.received,
        sent_bytes: counted.sent,
        cost_us,
        motion: Arc::new(Motion::Overlap(overlap)),
    })
}
