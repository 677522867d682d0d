//! Plans by overlapping regions: any two shardings of a tensor, uneven, not nesting, or on two meshes.
//!
//! Partial axes that go away are reduced first, in the source's own cuts, where one sharding always nests: onto all
//! ranks of the group, onto equal pieces of one dim, or straight onto the target where every rank's part of it lies
//! inside what the rank holds a term of; idle replicas may take a part first. Then one exchange moves whatever is still
//! missing, or, where that is cheaper on the network, each block goes into a domain once and is gathered there.

use reshard_layout::Few;
use reshard_layout::{At, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::candidates::Leg;
use crate::message::reduce_of;
use crate::model::network::Network;
use crate::question::COUNTED;
use crate::question::Question;
use crate::regions::intersection::Intersection;
use crate::step::{Reduction, Step};
use reshard_sharding::PartialAxis;
use reshard_sharding::SubAxis;
use reshard_sharding::internal::DimCut;
use reshard_sharding::internal::share_out;
use reshard_sharding::internal::{AxisCut, Cuts};
use reshard_sharding::internal::{dim_of, local_len};
use reshard_sharding::{Placement, Sharding};

/// The most ranks for which overlapping regions are planned.
const MAX_RANKS: usize = 1 << 17;

/// A way, leg by leg.
pub(crate) type Legs = Vec<Leg>;

fn step(step: Step) -> Leg {
    Leg::Step(Box::new(step))
}

/// Every way to reduce first and then move.
pub(crate) fn ways(q: &Question<'_>) -> Result<Vec<Legs>, Error> {
    let (from, to) = (q.from, q.to);
    q.few_ranks()?;
    let kept = |p: &PartialAxis| q.on_one_mesh() && to.partial().contains(p);
    let (stay, gone): (Vec<PartialAxis>, Vec<PartialAxis>) = from.partial().iter().partition(|p| kept(p));
    if gone.is_empty() {
        return q.onward(from);
    }
    let subs: Few<SubAxis, 4> = gone.iter().map(|p| p.sub).collect();
    let reduction = Reduction {
        modes: from.mesh().modes(&subs).to_vec(),
        reduce: reduce_of(gone.iter().map(|p| (p.op, p.sub.size))),
    };
    let pending = Pending { stay, subs, reduction };
    let mut ways = Vec::new();
    // Idle replicas share the work: each first keeps a part of a dim.
    let idle = from.replicated_axes();
    for dim in (0..from.shape().len()).filter(|_| !idle.is_empty()) {
        if let Some(parts) = pieces(from, &idle, dim)? {
            let slice = q.straight(from, &parts)?;
            q.reduce_and_go_on(slice.as_ref(), &parts, &pending, &mut ways)?;
        }
    }
    q.reduce_and_go_on(None, from, &pending, &mut ways)?;
    Ok(ways)
}

/// The reductions pending in the source.
struct Pending {
    /// Terms that stay.
    stay: Vec<PartialAxis>,
    /// Terms that go away.
    subs: Few<SubAxis, 4>,
    reduction: Reduction,
}

impl Question<'_> {
    /// Refuses so many ranks that looking at each takes too long.
    pub(crate) fn few_ranks(&self) -> Result<(), Error> {
        let (from, to) = (self.from, self.to);
        let ranks = from.mesh().size().max(to.mesh().size());
        if ranks <= MAX_RANKS {
            return Ok(());
        }
        Err(Error::Unsupported {
            reason: format!(
                "{from} -> {to} is uneven or on two meshes, so each of the {ranks} ranks is looked at, and the most is \
                 {MAX_RANKS}: let the shardings divide on one mesh, or plan for a part of it"
            ),
        })
    }

    /// After a slice perhaps, every way to reduce the terms where it leads, and every way to go on from there.
    fn reduce_and_go_on(
        &self,
        slice: Option<&Step>,
        from: &Sharding,
        pending: &Pending,
        ways: &mut Vec<Legs>,
    ) -> Result<(), Error> {
        let reduction = || pending.reduction.clone();
        // Onto everybody, then move.
        let whole = from.with_partial(pending.stay.iter().copied())?;
        let first = if self.options.deterministic {
            self.reduce_inside([from, &whole], reduction())?
        } else {
            self.all_reduce([from, &whole], reduction())?
        };
        self.go_on(slice, &first, &whole, ways)?;
        // Onto equal pieces of one dim, then move.
        for dim in 0..from.shape().len() {
            if let Some(pieces) = pieces(&whole, &pending.subs, dim)? {
                self.go_on(slice, &self.reduce_inside([from, &pieces], reduction())?, &pieces, ways)?;
            }
        }
        // Straight onto the target, where every rank's part lies inside what it holds a term of.
        let to = self.to;
        if from.mesh() == to.mesh() && to.partial().len() == pending.stay.len() && lies_inside(from, to)? {
            let last = self.reduce_inside([from, to], reduction())?;
            ways.push(slice.cloned().into_iter().chain([last]).map(step).collect());
        }
        Ok(())
    }

    /// First steps, and every way to go on from where they lead.
    fn go_on(
        &self,
        slice: Option<&Step>,
        first: &Step,
        from: &Sharding,
        ways: &mut Vec<Legs>,
    ) -> Result<(), Error> {
        for rest in self.onward(from)? {
            let begin = slice.into_iter().chain([first]).cloned().map(step);
            ways.push(begin.chain(rest).collect());
        }
        Ok(())
    }

    /// The ways from a sharding whose partial axes stay: one exchange of regions, what becomes partial at once and then the rest, and
    /// after combining in rank order by digits, where that is sure to reduce nothing.
    fn onward(&self, from: &Sharding) -> Result<Vec<Legs>, Error> {
        let to = self.to;
        let mut ways: Vec<Legs> = Vec::new();
        match self.straight(from, to)? {
            None => ways.push(Vec::new()),
            Some(straight) => {
                ways.extend(self.by_domain(from, &straight)?);
                ways.extend(self.through_shards(from)?);
                ways.extend(self.by_near_sources(from, &straight)?);
                ways.push(vec![step(straight)]);
            }
        }
        if self.reduces_in_order() && !from.is_partial() && from.mesh() == to.mesh() {
            ways.push(vec![Leg::Plan { to: to.clone() }]);
        }
        // Where that is the target itself, the first of these ways is the whole way.
        if let Some(filled) = self.filled(from)?.filter(|filled| filled != to) {
            ways.push(vec![Leg::Local { to: filled }, Leg::Plan { to: to.clone() }]);
        }
        Ok(ways)
    }

    /// The sharding in which the axes that become partial and shard now are partial already, which moves nothing.
    fn filled(&self, from: &Sharding) -> Result<Option<Sharding>, Error> {
        let to = self.to;
        let (Some(modes), true) = (from.modes(), from.mesh() == to.mesh()) else { return Ok(None) };
        let shards = |p: &PartialAxis| {
            let mut of_axis = from.cutting().filter(|s| s.axis == p.sub.axis).peekable();
            of_axis.peek().is_some() && of_axis.all(|s| contains(p.sub, s))
        };
        let fills: SmallVec<[PartialAxis; 2]> =
            to.partial().iter().copied().filter(|p| p.op.has_identity() && shards(p)).collect();
        let mixes = |p: &PartialAxis| fills.iter().all(|f| f.op.mixes_with(p.op));
        if fills.is_empty() || !from.partial().iter().all(mixes) {
            return Ok(None);
        }
        let local = modes.iter().map(|&m| match from.mesh().sub_axis(m) {
            Some(s) if fills.iter().any(|p| contains(p.sub, s)) => m.map(|_| At::local(1)),
            Some(_) | None => m,
        });
        let partial = from.partial().iter().copied().chain(fills.iter().copied());
        Ok(Some(from.with_modes(local).with_partial(partial)?))
    }

    /// One step from a sharding without partial axes that go away to another; none if they are the same.
    fn straight(&self, from: &Sharding, to: &Sharding) -> Result<Option<Step>, Error> {
        if from == to {
            return Ok(None);
        }
        self.region_step(self.intersection(from, to)).map(Some)
    }

    /// The intersection of two shardings, into the terms in which the target is partial and the source is not. Between two meshes sources are near.
    fn intersection(&self, from: &Sharding, to: &Sharding) -> Intersection {
        let mut intersection = Intersection::new(from, to);
        let one_mesh = intersection.one_mesh();
        if !one_mesh {
            intersection = intersection.on(self.network.model.levels());
        }
        for p in to.partial().iter().filter(|p| !(one_mesh && from.partial().contains(p))) {
            if p.op.has_identity() {
                intersection = intersection.into_terms(p.sub, p.op);
            }
        }
        intersection
    }

    /// Two steps into terms: each rank gets its part of a dim as if the axes that become partial sharded it, and what it
    /// then holds is its term.
    ///
    /// That is as good as a direct step where source and target nest, and better where the parts that the sources' own
    /// digits would make are uneven. One plan for every dim that can be cut.
    fn through_shards(&self, from: &Sharding) -> Result<Vec<Legs>, Error> {
        let to = self.to;
        let one_mesh = from.mesh() == to.mesh();
        let (stay, new): (Vec<PartialAxis>, Vec<PartialAxis>) = to
            .partial()
            .iter()
            .partition(|p| (one_mesh && from.partial().contains(p)) || !p.op.has_identity());
        let mut plans = Vec::new();
        if new.is_empty() {
            return Ok(plans);
        }
        let subs: Few<SubAxis, 4> = new.iter().map(|p| p.sub).collect();
        let bare = to.with_partial(stay)?;
        for dim in 0..to.shape().len() {
            if let Some(parts) = pieces(&bare, &subs, dim)? {
                let steps = [self.straight(from, &parts)?, self.straight(&parts, to)?];
                plans.push(steps.into_iter().flatten().map(step).collect());
            }
        }
        Ok(plans)
    }

    /// The direct step on one mesh whose groups straddle the network's domains: there another replica may be nearer than
    /// the one at the receiver's own coordinates, for which the group is the larger by the replicated axes.
    fn by_near_sources(&self, from: &Sharding, direct: &Step) -> Result<Option<Legs>, Error> {
        let replicated = from.replicated_axes();
        let intersection = self.intersection(from, self.to);
        let straddles =
            direct.axes.iter().chain(&replicated).any(|&s| !self.network.level(from.mesh().known_mode(s)).1);
        if !intersection.one_mesh() || !direct.op().communicates() || replicated.is_empty() || !straddles {
            return Ok(None);
        }
        Ok(Some(vec![step(self.region_step(intersection.on(self.network.model.levels()))?)]))
    }

    /// Two steps where the target is replicated inside domains of the network: every block comes into a domain once, to
    /// one of its ranks, and is gathered there.
    ///
    /// ```text
    /// target    [x 3] over the slow level, replicated over y = 8 inside a domain
    /// between   [x 3][y 8]: each rank of a domain gets one part in 8 of what the domain wants, from wherever it is
    /// then      all ranks of the domain gather their parts
    /// ```
    ///
    /// The parts are cut along the dim in which they are the most even. `None` where nothing comes from beyond a domain, or
    /// nothing is replicated inside one.
    fn by_domain(&self, from: &Sharding, direct: &Step) -> Result<Option<Legs>, Error> {
        let to = self.to;
        if self.network.levels() == 1 || direct.received_bytes == 0 || to.is_partial() {
            return Ok(None);
        }
        let network = Network::new(self.network.model, to.mesh());
        let inner = network.inner(&to.replicated_axes());
        if inner.is_empty() {
            return Ok(None);
        }
        let mut best: Option<Sharding> = None;
        for dim in 0..to.shape().len() {
            if let Some(parts) = pieces(to, &inner, dim)?
                && best.as_ref().is_none_or(|b| parts.max_local_numel() < b.max_local_numel())
            {
                best = Some(parts);
            }
        }
        let Some(parts) = best.filter(|parts| parts != from) else { return Ok(None) };
        let first = self.straight(from, &parts)?.into_iter().map(step);
        Ok(Some(first.chain([Leg::Plan { to: to.clone() }]).collect()))
    }
}

/// The sharding in which the ranks of `subs` share what each of them held of `dim`.
fn pieces(whole: &Sharding, subs: &[SubAxis], dim: usize) -> Result<Option<Sharding>, Error> {
    let (mesh, shape) = (whole.mesh(), whole.shape());
    if let Some(layout) = whole.layout() {
        let mut of_dim = Modes::from_slice(dim_of(layout, shape.len(), dim));
        let mut shared = |&s: &SubAxis| {
            let local = local_len(&of_dim);
            share_out(&mut of_dim, local, 1, mesh.known_mode(s)).is_some()
        };
        if subs.iter().all(&mut shared) {
            let faster = layout.flat_modes().take(shape.len() - 1 - dim).flatten();
            let slower = layout.flat_modes().skip(shape.len() - dim).flatten();
            return Ok(Some(whole.with_modes(faster.chain(&of_dim).chain(slower).copied())));
        }
    }
    if subs.iter().any(|&s| !mesh.is_whole(s)) {
        return Ok(None);
    }
    let mut cuts: Cuts = match (whole.cuts(), whole.placements()) {
        (Some(cuts), _) => cuts.iter().cloned().collect(),
        (None, Err(_)) => return Ok(None),
        (None, Ok(placements)) => {
            let cut = |(axis, p): (usize, &Placement)| {
                let (dim, cut) = p.cut(mesh.axes()[axis].size())?;
                Some(AxisCut { dim, sub: mesh.known_whole(axis), cut })
            };
            placements.iter().enumerate().filter_map(cut).collect()
        }
    };
    cuts.extend(subs.iter().map(|&s| AxisCut { dim, sub: s, cut: DimCut::chunks(1, s.size) }));
    let partial = whole.partial().iter().copied().collect();
    let pieces = Sharding::from_cuts(mesh, shape, cuts, partial)?;
    Ok(pieces.has_notation().then_some(pieces))
}

/// Whether what each rank wants lies inside what it holds.
fn lies_inside(from: &Sharding, to: &Sharding) -> Result<bool, Error> {
    if from.mesh().size() > COUNTED {
        return Ok(false);
    }
    let intersection = Intersection::new(from, to);
    for rank in from.mesh().ranks() {
        let (wanted, held) = intersection.wanted_and_held(rank)?;
        if wanted != held {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains(outer: SubAxis, inner: SubAxis) -> bool {
    outer.axis == inner.axis && outer.pre <= inner.pre && inner.pre * inner.size <= outer.pre * outer.size
}
