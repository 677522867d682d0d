//! Plans by overlapping regions: any two shardings of a tensor, uneven, not nesting, or on two meshes.
//!
//! Partial axes that go away are reduced first, in the split of the source, where one sharding always nests.
//! They are reduced onto all ranks of the group, onto equal blocks of one dim, or straight onto the target.
//! The last needs that every rank's target region is inside the region of which it holds a partial value.
//! Idle replicas may take a part first. Then one exchange transfers the data that is still missing. Where
//! that is cheaper on the network, each block enters a domain once and is gathered there.

mod relays;

use std::rc::Rc;

use reshard_layout::InlineVec;
use reshard_layout::{AxisStride, Modes};
use smallvec::SmallVec;

use crate::Error;
use crate::candidates::region_steps::{Proposed, contains};
use crate::candidates::{Leg, greedy};
use crate::message::reduce_of;
use crate::model::totals::{Cost, Totals};
use crate::problem::COUNTED;
use crate::problem::Question;
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

/// Maximum number of ranks for which overlapping regions are planned.
const MAX_RANKS: usize = 1 << 17;

/// The work of a step of digits.
const OF_DIGITS: u64 = 1 << 9;

/// A path as a list of segments.
pub(crate) type Legs = Vec<Leg>;

fn step(step: Step) -> Leg {
    Leg::Step(Box::new(step))
}

/// The paths that were found so far.
pub(crate) struct Ways<'q, 'a> {
    q: &'q Question<'a>,
    pub(crate) all: Vec<Legs>,
    /// Index of the path that goes straight, with no regard to the network and to idle replicas.
    pub(crate) direct: usize,
    last_direct: usize,
    /// Exchanges that were proposed, each once.
    proposed: Vec<Rc<Proposed>>,
    /// Work so far, and its limit in `most`.
    pub(crate) work: u64,
    most: u64,
    /// `true` if the budget ran out before all paths were found.
    pub(crate) exhausted: bool,
}

/// Returns every path that first reduces and then exchanges, within the budget.
///
/// The direct path is always among them.
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
    // First without idle replicas, since the direct path is among these. They go to the end of the list.
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

/// Returns the one step from one sharding of the mesh to another, and its work.
///
/// It is a step of digits where these nest and do one thing. Elsewhere, partial axes that go away are reduced
/// in place and with nothing else, and everything else is one exchange of regions. `None` where one step
/// cannot do that, or the mesh has no group for it.
pub(crate) fn one_step(
    q: &Question<'_>,
    from: &Sharding,
    to: &Sharding,
) -> Result<Option<(Step, u64)>, Error> {
    // Digits have no record of the order in which partial values are combined.
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
    // In rank order, all axes that the target has not as partial must be reduced in the same step.
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
    // On few ranks, sending all partial values to all of them may take less time.
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
    /// Partial axes that stay.
    stay: Vec<PartialAxis>,
    /// Partial axes that go away.
    subs: InlineVec<SubAxis, 4>,
    reduction: Reduction,
}

impl Question<'_> {
    /// Returns an error if there are too many ranks to examine each of them.
    pub(crate) fn few_ranks(&self) -> Result<(), Error> {
        let (from, to) = (self.from, self.to);
        let ranks = from.mesh().size().max(to.mesh().size());
        if ranks <= MAX_RANKS {
            return Ok(());
        }
        Err(Error::Unsupported {
            reason: format!(
                "{from} -> {to} is uneven or between two meshes, which is limited to {MAX_RANKS} ranks, not {ranks}; \
                 use shardings that divide on one mesh, or plan for a part of it"
            ),
        })
    }
}

impl Ways<'_, '_> {
    /// Returns `true` if the budget allows more paths.
    fn goes_on(&mut self) -> bool {
        self.exhausted |= self.work > self.most || stop::is_stopped();
        !self.exhausted
    }

    /// Adds every path that optionally slices, then reduces the partial axes, then continues.
    fn reduce_and_go_on(
        &mut self,
        slice: Option<&Leg>,
        from: &Sharding,
        pending: &Pending,
    ) -> Result<(), Error> {
        let q = self.q;
        let reduction = || pending.reduction.clone();
        // Onto all ranks, then exchange.
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
        // Onto equal blocks of one dim, then exchange.
        for dim in 0..from.shape().len() {
            if let Some(pieces) = pieces(&whole, &pending.subs, dim)?
                && self.goes_on()
            {
                self.go_on(slice, &q.reduce_inside([from, &pieces], reduction())?, &pieces)?;
            }
        }
        // Straight onto the target, if every rank's target region is inside the region of which it holds a
        // partial value.
        let to = q.to;
        if from.mesh() == to.mesh() && to.partial().len() == pending.stay.len() && lies_inside(from, to)? {
            let last = q.reduce_inside([from, to], reduction())?;
            self.all.push(slice.cloned().into_iter().chain([step(last)]).collect());
        }
        Ok(())
    }

    /// Adds every path that begins with these steps and continues from where they lead.
    fn go_on(&mut self, slice: Option<&Leg>, first: &Step, from: &Sharding) -> Result<(), Error> {
        let (onward, direct) = self.onward(from)?;
        self.last_direct = self.all.len() + direct;
        for rest in onward {
            let begin = slice.cloned().into_iter().chain([step(first.clone())]);
            self.all.push(begin.chain(rest).collect());
        }
        Ok(())
    }

    /// Returns the paths from a sharding whose partial axes stay, and the index of the direct one.
    ///
    /// The direct one is a single exchange of regions. After combining in rank order there is a plan by
    /// digits, where that is sure to reduce nothing. Another path makes axes partial at once and then does
    /// the rest.
    fn onward(&mut self, from: &Sharding) -> Result<(Vec<Legs>, usize), Error> {
        let to = self.q.to;
        let mut ways: Vec<Legs> = Vec::new();
        let straight = self.propose(from, to)?;
        if let Some(straight) = &straight
            && self.goes_on()
        {
            ways.extend(self.relays(from, straight)?);
            ways.extend(self.through_shards(from)?);
            ways.extend(self.by_near_sources(from, straight)?);
            ways.extend(self.by_shared_sources(from, straight)?);
            ways.extend(self.gathered(from, straight)?);
        }
        let direct: Legs = straight.into_iter().map(Leg::Move).collect();
        ways.push(direct);
        let direct = ways.len() - 1;
        if self.q.reduces_in_order() && !from.is_partial() && from.mesh() == to.mesh() {
            ways.push(vec![Leg::Plan { to: to.clone() }]);
        }
        // If the filled sharding is the target, the direct path covers it.
        if let Some(filled) = self.q.filled(from)?.filter(|filled| filled != to) {
            ways.push(vec![Leg::Local { to: filled }, Leg::Plan { to: to.clone() }]);
        }
        Ok((ways, direct))
    }
}

impl Question<'_> {
    /// Returns the sharding in which axes that shard now and become partial already are partial.
    ///
    /// Reaching it transfers no data. `None` if there are no such axes.
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

    /// Returns the intersection of two shardings, into the axes that become partial.
    ///
    /// These are partial in the target and not in the source. Between two meshes, near sources are preferred.
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
    /// Returns the step from a sharding whose partial axes all stay to another, proposed once.
    ///
    /// `None` if the two are the same.
    fn propose(&mut self, from: &Sharding, to: &Sharding) -> Result<Option<Rc<Proposed>>, Error> {
        if from == to {
            return Ok(None);
        }
        let is = |p: &&Rc<Proposed>| p.regions.from == *from && p.regions.to == *to;
        if let Some(known) = self.proposed.iter().find(is) {
            return Ok(Some(Rc::clone(known)));
        }
        let made = Rc::new(self.q.propose_between(from, to)?);
        self.work = self.work.saturating_add(made.work());
        self.proposed.push(Rc::clone(&made));
        Ok(Some(made))
    }

    fn straight(&mut self, from: &Sharding, to: &Sharding) -> Result<Option<Leg>, Error> {
        Ok(self.propose(from, to)?.map(Leg::Move))
    }

    /// Returns two-step paths into partial values, one for every dim that can be split.
    ///
    /// Each rank receives a part of a dim as if the axes that become partial sharded it, and that part is
    /// then its partial value. This is as good as a direct step where source and target nest. It is better
    /// where the parts by the sources' own digits would be uneven.
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

    /// Returns the direct step from the nearest replicas, on one mesh whose groups straddle domains.
    ///
    /// There another replica may be nearer than the one at the receiver's own coordinates. Its group is
    /// larger by the replicated axes.
    fn by_near_sources(&mut self, from: &Sharding, direct: &Proposed) -> Result<Option<Legs>, Error> {
        let replicated = from.replicated_axes();
        let q = self.q;
        let intersection = q.intersection(from, q.to);
        let straddles =
            direct.axes.iter().chain(&replicated).any(|&s| !q.network.level(from.mesh().known_mode(s)).1);
        if !intersection.one_mesh() || !direct.communicates() || replicated.is_empty() || !straddles {
            return Ok(None);
        }
        let near = q.propose(intersection.on(q.network.model.levels())).map(Some).or_else(no_group)?;
        self.work = self.work.saturating_add(near.as_ref().map_or(0, Proposed::work));
        Ok(near.map(|near| vec![Leg::Move(Rc::new(near))]))
    }

    /// Returns the direct step on one mesh in which all nearest owners of a region share its requests.
    ///
    /// `None` if that cannot help: no region has several owners, or none sends more than ranks receive.
    fn by_shared_sources(&mut self, from: &Sharding, direct: &Proposed) -> Result<Option<Legs>, Error> {
        let (q, one_mesh) = (self.q, from.mesh() == self.q.to.mesh());
        if !one_mesh || !direct.communicates() || !direct.may_send_more() || from.replicated_axes().is_empty()
        {
            return Ok(None);
        }
        let shared = q.intersection(from, q.to).shared(q.network.model.levels())?;
        let Some(proposed) = shared.map(|regions| q.propose(regions)).transpose().or_else(no_group)? else {
            return Ok(None);
        };
        self.work = self.work.saturating_add(proposed.work());
        Ok(Some(vec![Leg::Move(Rc::new(proposed))]))
    }
}

/// Returns the splits of dims along whole axes; `None` if the sharding has no such form.
fn cuts_of(s: &Sharding) -> Option<Cuts> {
    if let Some(cuts) = s.cuts() {
        return Some(cuts.iter().cloned().collect());
    }
    let cut = |(axis, p): (usize, &Placement)| {
        let (dim, cut) = p.cut(s.mesh().axes()[axis].size())?;
        Some(AxisCut { dim, sub: s.mesh().known_whole(axis), cut })
    };
    Some(s.placements().ok()?.iter().enumerate().filter_map(cut).collect())
}

/// Returns no candidate if the mesh has no group for it.
pub(crate) fn no_group<T>(e: Error) -> Result<Option<T>, Error> {
    if let Error::Sharding(_) = e { Ok(None) } else { Err(e) }
}

/// Returns the sharding in which the ranks of `subs` split what each of them held of `dim`.
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
    let Some(mut cuts) = cuts_of(whole) else { return Ok(None) };
    cuts.extend(subs.iter().map(|&s| AxisCut { dim, sub: s, cut: DimCut::chunks(1, s.size) }));
    let partial = whole.partial().iter().copied().collect();
    let pieces = Sharding::from_cuts(mesh, shape, cuts, partial)?;
    Ok(pieces.has_notation().then_some(pieces))
}

/// Returns `true` if the target region of each rank is inside its source region.
fn lies_inside(from: &Sharding, to: &Sharding) -> Result<bool, Error> {
    Ok(from.mesh().size() <= COUNTED && most_missing(from, to)? == 0)
}
