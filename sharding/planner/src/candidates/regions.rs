//! Plans by overlapping regions: any two shardings of a tensor, uneven, not nesting, or on two meshes.
//!
//! Partial axes that go away are reduced first, in the source's own cuts, where one sharding always nests: onto all
//! ranks of the group, onto equal pieces of one dim, or straight onto the target where every rank's part of it lies
//! inside what the rank holds a term of; idle replicas may take a part first. Then one exchange moves whatever is still
//! missing, or, where that is cheaper on the network, each block goes into a domain once and is gathered there.

use std::rc::Rc;

use reshard_layout::InlineVec;
use reshard_layout::{AxisStride, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::candidates::region_steps::{Proposed, contains};
use crate::candidates::{Leg, greedy};
use crate::message::reduce_of;
use crate::model::network::Network;
use crate::model::totals::{Cost, Totals};
use crate::question::COUNTED;
use crate::question::Question;
use crate::regions::intersection::Intersection;
use crate::regions::tally::most_missing;
use crate::step::{Reduction, Step};
use crate::stop;
use reshard_sharding::PartialAxis;
use reshard_sharding::SubAxis;
use reshard_sharding::internal::DimCut;
use reshard_sharding::internal::share_out;
use reshard_sharding::internal::{AxisCut, Cuts};
use reshard_sharding::internal::{dim_of, local_len};
use reshard_sharding::{Placement, Sharding};

/// The most ranks for which overlapping regions are planned.
const MAX_RANKS: usize = 1 << 17;

/// The work of a step of digits.
const OF_DIGITS: u64 = 1 << 9;

/// A way, leg by leg.
pub(crate) type Legs = Vec<Leg>;

fn step(step: Step) -> Leg {
    Leg::Step(Box::new(step))
}

/// Ways as they are found.
pub(crate) struct Ways<'q, 'a> {
    q: &'q Question<'a>,
    pub(crate) all: Vec<Legs>,
    /// Which of them goes straight, without any detour for the network or for idle replicas.
    pub(crate) direct: usize,
    last_direct: usize,
    /// Moves that were proposed, each once.
    proposed: Vec<Rc<Proposed>>,
    /// What was looked at so far, and what may be.
    pub(crate) work: u64,
    most: u64,
    /// Whether the budget ran out before all were found.
    pub(crate) exhausted: bool,
}

/// Every way to reduce first and then move, as far as the budget goes; the direct one always.
pub(crate) fn ways<'q, 'a>(q: &'q Question<'a>) -> Result<Ways<'q, 'a>, Error> {
    let (from, to) = (q.from, q.to);
    q.few_ranks()?;
    let most = q.options.budget.work();
    let mut ways = Ways {
        q,
        all: Vec::new(),
        direct: 0,
        last_direct: 0,
        proposed: Vec::new(),
        work: 0,
        most,
        exhausted: false,
    };
    let kept = |p: &PartialAxis| q.on_one_mesh() && to.partial().contains(p);
    let (stay, gone): (Vec<PartialAxis>, Vec<PartialAxis>) = from.partial().iter().partition(|p| kept(p));
    if gone.is_empty() {
        (ways.all, ways.direct) = ways.onward(from)?;
        return Ok(ways);
    }
    let subs: InlineVec<SubAxis, 4> = gone.iter().map(|p| p.sub).collect();
    let reduction = Reduction {
        modes: from.mesh().modes(&subs).to_vec(),
        reduce: reduce_of(gone.iter().map(|p| (p.op, p.sub.size))),
    };
    let pending = Pending { stay, subs, reduction };
    // Without idle replicas first: the direct way is among these. They stand last.
    ways.reduce_and_go_on(None, from, &pending)?;
    let plain = core::mem::take(&mut ways.all);
    // Idle replicas share the work: each first keeps a part of a dim.
    let idle = from.replicated_axes();
    for dim in (0..from.shape().len()).filter(|_| !idle.is_empty()) {
        if let Some(parts) = pieces(from, &idle, dim)?
            && ways.goes_on()
        {
            let slice = ways.straight(from, &parts)?;
            ways.reduce_and_go_on(slice.as_ref(), &parts, &pending)?;
        }
    }
    ways.direct += ways.all.len();
    ways.all.extend(plain);
    Ok(ways)
}

/// The one step from one sharding of the mesh to another, and the work of it: of digits where these nest and do one thing;
/// elsewhere terms that go away are reduced where they lie, with nothing else, and all else is one move. `None` where one step does not do that, or the mesh has no group for it.
pub(crate) fn one_step(
    q: &Question<'_>,
    from: &Sharding,
    to: &Sharding,
) -> Result<Option<(Step, u64)>, Error> {
    // Digits know nothing of the order in which terms are combined.
    if !q.reduces_in_order()
        && let Ok(Some(step)) = greedy::step_of_digits(q, from, to)
        && (!step.op().communicates() || q.options.admits_group(&step.group))
    {
        return Ok(Some((step, OF_DIGITS)));
    }
    match step_between(q, from, to) {
        Err(Error::Sharding(_)) => Ok(None),
        made => made,
    }
}

fn step_between(q: &Question<'_>, from: &Sharding, to: &Sharding) -> Result<Option<(Step, u64)>, Error> {
    if from == to {
        return Ok(None);
    }
    let (stay, gone): (Vec<PartialAxis>, Vec<PartialAxis>) =
        from.partial().iter().partition(|p| to.partial().contains(p));
    if gone.is_empty() {
        let proposed = q.propose(q.intersection(from, to))?;
        let work = proposed.work().saturating_add(proposed.work_to_count(q.options.model.levels()));
        return Ok(Some((q.counted(&proposed)?, work)));
    }
    // In order, what is to go in the end goes at once.
    let ends = |p: &PartialAxis| q.to.partial().contains(p);
    if to.partial().len() != stay.len() || (q.options.deterministic && stay.iter().any(|p| !ends(p))) {
        return Ok(None);
    }
    let subs: InlineVec<SubAxis, 4> = gone.iter().map(|p| p.sub).collect();
    let reduce = reduce_of(gone.iter().map(|p| (p.op, p.sub.size)));
    let reduction = Reduction { modes: from.mesh().modes(&subs).to_vec(), reduce };
    let onto_all = from.with_partial(stay.iter().copied())? == *to;
    let mut made: SmallVec<[Step; 2]> = SmallVec::new();
    if onto_all && !q.options.deterministic {
        made.push(q.all_reduce([from, to], reduction.clone())?);
    }
    // Of few ranks all terms to all of them may take less.
    if onto_all || lies_inside(from, to)? {
        made.push(q.reduce_inside([from, to], reduction)?);
    }
    let key = |step: &Step| {
        Totals::of([Cost::new(step.cost_us, step.received_bytes, step.peak_bytes)]).key(q.options.objective)
    };
    let Some(step) = made.into_iter().min_by_key(key) else { return Ok(None) };
    Ok(Some((step, from.mesh().size() as u64 * 4)))
}

/// The reductions pending in the source.
struct Pending {
    /// Terms that stay.
    stay: Vec<PartialAxis>,
    /// Terms that go away.
    subs: InlineVec<SubAxis, 4>,
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
}

impl Ways<'_, '_> {
    /// Whether the budget allows to look for more.
    fn goes_on(&mut self) -> bool {
        self.exhausted |= self.work > self.most || stop::is_stopped();
        !self.exhausted
    }

    /// After a slice perhaps, every way to reduce the terms where it leads, and every way to go on from there.
    fn reduce_and_go_on(
        &mut self,
        slice: Option<&Leg>,
        from: &Sharding,
        pending: &Pending,
    ) -> Result<(), Error> {
        let q = self.q;
        let reduction = || pending.reduction.clone();
        // Onto everybody, then move.
        let whole = from.with_partial(pending.stay.iter().copied())?;
        let first = if q.options.deterministic {
            q.reduce_inside([from, &whole], reduction())?
        } else {
            q.all_reduce([from, &whole], reduction())?
        };
        self.go_on(slice, &first, &whole)?;
        if slice.is_none() {
            self.direct = self.last_direct;
        }
        // Onto equal pieces of one dim, then move.
        for dim in 0..from.shape().len() {
            if let Some(pieces) = pieces(&whole, &pending.subs, dim)?
                && self.goes_on()
            {
                self.go_on(slice, &q.reduce_inside([from, &pieces], reduction())?, &pieces)?;
            }
        }
        // Straight onto the target, where every rank's part lies inside what it holds a term of.
        let to = q.to;
        if from.mesh() == to.mesh() && to.partial().len() == pending.stay.len() && lies_inside(from, to)? {
            let last = q.reduce_inside([from, to], reduction())?;
            self.all.push(slice.cloned().into_iter().chain([step(last)]).collect());
        }
        Ok(())
    }

    /// First steps, and every way to go on from where they lead.
    fn go_on(&mut self, slice: Option<&Leg>, first: &Step, from: &Sharding) -> Result<(), Error> {
        let (onward, direct) = self.onward(from)?;
        self.last_direct = self.all.len() + direct;
        for rest in onward {
            let begin = slice.cloned().into_iter().chain([step(first.clone())]);
            self.all.push(begin.chain(rest).collect());
        }
        Ok(())
    }

    /// The ways from a sharding whose partial axes stay: after combining in rank order by digits, where that is sure to
    /// reduce nothing, what becomes partial at once and then the rest, and one exchange of regions, whose place is told.
    fn onward(&mut self, from: &Sharding) -> Result<(Vec<Legs>, usize), Error> {
        let to = self.q.to;
        let mut ways: Vec<Legs> = Vec::new();
        let straight = self.propose(from, to)?;
        if let Some(straight) = &straight
            && self.goes_on()
        {
            ways.extend(self.by_domain(from, straight)?);
            ways.extend(self.through_shards(from)?);
            ways.extend(self.by_near_sources(from, straight)?);
        }
        let direct: Legs = straight.into_iter().map(Leg::Move).collect();
        ways.push(direct);
        let direct = ways.len() - 1;
        if self.q.reduces_in_order() && !from.is_partial() && from.mesh() == to.mesh() {
            ways.push(vec![Leg::Plan { to: to.clone() }]);
        }
        // Where that is the target itself, the first of these ways is the whole way.
        if let Some(filled) = self.q.filled(from)?.filter(|filled| filled != to) {
            ways.push(vec![Leg::Local { to: filled }, Leg::Plan { to: to.clone() }]);
        }
        Ok((ways, direct))
    }
}

impl Question<'_> {
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
            Some(s) if fills.iter().any(|p| contains(p.sub, s)) => m.map(|_| AxisStride::local(1)),
            Some(_) | None => m,
        });
        let partial = from.partial().iter().copied().chain(fills.iter().copied());
        Ok(Some(from.with_modes(local).with_partial(partial)?))
    }

    /// The intersection of two shardings, into the terms in which the target is partial and the source is not. Between two meshes sources are near.
    pub(crate) fn intersection(&self, from: &Sharding, to: &Sharding) -> Intersection {
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
}

impl Ways<'_, '_> {
    /// One step from a sharding without partial axes that go away to another, proposed once; none if they are the same.
    fn propose(&mut self, from: &Sharding, to: &Sharding) -> Result<Option<Rc<Proposed>>, Error> {
        if from == to {
            return Ok(None);
        }
        let is = |p: &&Rc<Proposed>| p.regions.from == *from && p.regions.to == *to;
        if let Some(known) = self.proposed.iter().find(is) {
            return Ok(Some(Rc::clone(known)));
        }
        let made = Rc::new(self.q.propose(self.q.intersection(from, to))?);
        self.work = self.work.saturating_add(made.work());
        self.proposed.push(Rc::clone(&made));
        Ok(Some(made))
    }

    fn straight(&mut self, from: &Sharding, to: &Sharding) -> Result<Option<Leg>, Error> {
        Ok(self.propose(from, to)?.map(Leg::Move))
    }

    /// Two steps into terms: each rank gets its part of a dim as if the axes that become partial sharded it, and what it
    /// then holds is its term.
    ///
    /// That is as good as a direct step where source and target nest, and better where the parts that the sources' own
    /// digits would make are uneven. One plan for every dim that can be cut.
    fn through_shards(&mut self, from: &Sharding) -> Result<Vec<Legs>, Error> {
        let to = self.q.to;
        let one_mesh = from.mesh() == to.mesh();
        let (stay, new): (Vec<PartialAxis>, Vec<PartialAxis>) = to
            .partial()
            .iter()
            .partition(|p| (one_mesh && from.partial().contains(p)) || !p.op.has_identity());
        let mut plans = Vec::new();
        if new.is_empty() {
            return Ok(plans);
        }
        let subs: InlineVec<SubAxis, 4> = new.iter().map(|p| p.sub).collect();
        let bare = to.with_partial(stay)?;
        for dim in 0..to.shape().len() {
            if let Some(parts) = pieces(&bare, &subs, dim)?
                && self.goes_on()
            {
                let steps = [self.straight(from, &parts)?, self.straight(&parts, to)?];
                plans.push(steps.into_iter().flatten().collect());
            }
        }
        Ok(plans)
    }

    /// The direct step on one mesh whose groups straddle the network's domains: there another replica may be nearer than
    /// the one at the receiver's own coordinates, for which the group is the larger by the replicated axes.
    fn by_near_sources(&mut self, from: &Sharding, direct: &Proposed) -> Result<Option<Legs>, Error> {
        let replicated = from.replicated_axes();
        let q = self.q;
        let intersection = q.intersection(from, q.to);
        let straddles =
            direct.axes.iter().chain(&replicated).any(|&s| !q.network.level(from.mesh().known_mode(s)).1);
        if !intersection.one_mesh() || !direct.communicates() || replicated.is_empty() || !straddles {
            return Ok(None);
        }
        let near = q.propose(intersection.on(q.network.model.levels()))?;
        self.work = self.work.saturating_add(near.work());
        Ok(Some(vec![Leg::Move(Rc::new(near))]))
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
    fn by_domain(&mut self, from: &Sharding, direct: &Proposed) -> Result<Option<Legs>, Error> {
        let (q, to) = (self.q, self.q.to);
        if q.network.levels() == 1 || !direct.communicates() || to.is_partial() {
            return Ok(None);
        }
        let network = Network::new(q.network.model, to.mesh());
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
        let first = self.straight(from, &parts)?.into_iter();
        Ok(Some(first.chain([Leg::Plan { to: to.clone() }]).collect()))
    }
}

/// The sharding in which the ranks of `subs` share what each of them held of `dim`.
pub(crate) fn pieces(whole: &Sharding, subs: &[SubAxis], dim: usize) -> Result<Option<Sharding>, Error> {
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
    Ok(from.mesh().size() <= COUNTED && most_missing(from, to)? == 0)
}
