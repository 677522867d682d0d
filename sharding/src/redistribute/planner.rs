//! The planner: candidates, their costs, and the choice among them.
//!
//! On one mesh with nesting digits the candidates are the forms of [`closed_form`](super::closed_form) and, without
//! reductions, one direct exchange. Otherwise the source's partial axes are reduced in the source's own digits (onto all
//! of them, onto equal pieces, or straight onto the target where it lies inside the source), and one exchange of
//! overlapping regions does the rest. The least by objective wins; ties go to fewer bytes, then to the earlier candidate,
//! so a plan is a pure function of its inputs.

use core::fmt;
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::axis::{SubAxis, join};
use crate::digits::{Digits, Owner, Word};
use crate::extent::Cut;
use crate::redistribute::bounds;
use crate::redistribute::closed_form::{self, Candidate, Form, Move, senders};
use crate::redistribute::cost::Topology;
use crate::redistribute::messages::{self, Motion, Reduce};
use crate::redistribute::overlap::Overlap;
use crate::redistribute::plan::Plan;
use crate::redistribute::step::{Step, StepOp};
use crate::redistribute::system::{Place, State, System, refine};
use crate::sharding::{AxisCut, PartialAxis};
use crate::{Error, Group, Mesh, Placement, ReduceOp, Sharding};

/// What the chosen plan is least in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Objective {
    /// Modelled time.
    #[default]
    Time,
    /// Received bytes, then time.
    Bytes,
    /// Peak bytes, then time.
    Peak,
}

impl Objective {
    /// All of them.
    pub const ALL: [Objective; 3] = [Objective::Time, Objective::Bytes, Objective::Peak];

    /// The name: `time`, `bytes` or `peak`.
    pub fn as_str(self) -> &'static str {
        match self {
            Objective::Time => "time",
            Objective::Bytes => "bytes",
            Objective::Peak => "peak",
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Objective {
    type Err = Error;
    fn from_str(s: &str) -> Result<Objective, Error> {
        Objective::ALL.into_iter().find(|o| o.as_str() == s).ok_or_else(|| Error::Parse {
            what: "objective",
            input: s.to_owned(),
            at: 0,
            expected: "time, bytes or peak".to_owned(),
        })
    }
}

/// Makes plans for one network and one objective.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding, redistribute::{Objective, Planner}};
/// let mesh: Mesh = "x=2,y=2".parse()?;
/// let from = Sharding::parse(&mesh, &[8], "P,P")?;
/// let to = Sharding::parse(&mesh, &[8], "R,R")?;
/// let plan = Planner::new().objective(Objective::Bytes).plan(&from, &to, 4)?;
/// assert_eq!(plan.communicating_steps(), 1);
/// assert_eq!(plan.groups()[0].to_string(), "4:1");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planner {
    topology: Topology,
    objective: Objective,
}

/// The most ranks whose totals are added up one by one.
const COUNTED: usize = 1 << 14;

impl Planner {
    /// A planner for the `uniform` network and objective `time`.
    pub fn new() -> Planner {
        Planner::default()
    }

    /// The same for another network.
    #[must_use]
    pub fn topology(self, topology: Topology) -> Planner {
        Planner { topology, ..self }
    }

    /// The same for another objective.
    #[must_use]
    pub fn objective(self, objective: Objective) -> Planner {
        Planner { objective, ..self }
    }

    /// The plan from one sharding to another of the same tensor, with elements of `item_bytes`.
    ///
    /// Fails if the shapes differ, or a shard would have to become a term of an average.
    pub fn plan(&self, from: &Sharding, to: &Sharding, item_bytes: usize) -> Result<Plan, Error> {
        if from.shape() != to.shape() {
            return Err(Error::Incompatible {
                reason: format!(
                    "a tensor {:?} does not become {:?}: the shapes must be equal",
                    from.shape(),
                    to.shape()
                ),
            });
        }
        let most = from.numel().max(1).checked_mul(item_bytes.max(1)).and_then(|b| i64::try_from(b).ok());
        if most.is_none() {
            return Err(Error::overflow(format!("{:?} elements of {item_bytes} bytes", from.shape())));
        }
        refuse_avg_of_shards(from, to)?;
        let work = Work { planner: self, from, to, item: item_bytes as u64 };
        if from == to || from.numel() == 0 {
            return work.finish(Vec::new(), None);
        }
        let system = if from.mesh() == to.mesh() { refine(from, to) } else { None };
        let mut plans = Vec::new();
        match &system {
            Some((system, s, t)) => {
                for candidate in work.digit_candidates(system, s, t) {
                    plans.push(work.digit_steps(&candidate)?);
                }
            }
            None => plans.extend(work.overlap_candidates()?),
        }
        let mut best: Option<Plan> = None;
        for steps in plans {
            let plan = work.finish(steps, system.as_ref())?;
            if best.as_ref().is_none_or(|b| self.is_less(&plan, b)) {
                best = Some(plan);
            }
        }
        best.ok_or_else(|| Error::Incompatible { reason: format!("no plan leads from {from} to {to}") })
    }

    /// Whether one plan is strictly better than another.
    fn is_less(&self, a: &Plan, b: &Plan) -> bool {
        // Times are compared in whole picoseconds, so that the order of additions decides nothing.
        let key = |p: &Plan| {
            let time = (p.cost_us() * 1e6).round();
            let bytes = p.received_bytes as f64;
            let steps = p.steps.len() as f64;
            match self.objective {
                Objective::Time => [time, bytes, steps],
                Objective::Bytes => [bytes, time, steps],
                Objective::Peak => [p.peak_bytes as f64, time, bytes],
            }
        };
        key(a).partial_cmp(&key(b)) == Some(core::cmp::Ordering::Less)
    }
}

/// A shard that becomes a term of an average would need its value multiplied by the number of ranks.
fn refuse_avg_of_shards(from: &Sharding, to: &Sharding) -> Result<(), Error> {
    let shards = |s: &Sharding, axis: usize| {
        s.digits()
            .is_some_and(|ds| ds.iter().any(|d| matches!(d.owner, Owner::Axis { axis: a, .. } if a == axis)))
            || s.cuts().is_some_and(|cs| cs.iter().any(|c| c.axis == axis))
    };
    for p in to.partial().iter().filter(|p| p.op == ReduceOp::Avg) {
        let bad = if from.mesh() == to.mesh() { shards(from, p.sub.axis) } else { false };
        if bad {
            let name = to.mesh().axes()[p.sub.axis].name();
            return Err(Error::Placement {
                reason: format!(
                    "a shard cannot become a term of an average: {from} shards over {name}, which {to} averages over; \
                     make it P(sum), or replicate it first"
                ),
            });
        }
    }
    Ok(())
}

/// One planning problem.
struct Work<'a> {
    planner: &'a Planner,
    from: &'a Sharding,
    to: &'a Sharding,
    item: u64,
}

/// How the terms of the partial axes that go away become a value.
fn reduce_of(ops: impl Iterator<Item = (ReduceOp, usize)>) -> Reduce {
    let mut reduce = Reduce { op: ReduceOp::Sum, divisor: 1 };
    for (op, size) in ops {
        reduce.op = op.combining();
        if op == ReduceOp::Avg {
            reduce.divisor *= size;
        }
    }
    reduce
}

impl Work<'_> {
    // ---- digit systems ----

    fn digit_candidates(&self, system: &System, s: &State, t: &State) -> Vec<Candidate> {
        let partial = s.iter().chain(t).any(|p| p.is_partial());
        let mut candidates: Vec<Candidate> = Vec::new();
        let forms: &[(Form, bool)] = if partial {
            &[
                (Form::Lean, true),
                (Form::Full, true),
                (Form::Plain, true),
                (Form::Lean, false),
                (Form::Plain, false),
                (Form::Full, false),
            ]
        } else {
            &[(Form::Lean, true)]
        };
        for &(form, spares) in forms {
            if let Some(c) = closed_form::plan(system, s, t, form, spares)
                && !candidates.iter().any(|o| same_moves(o, &c))
            {
                candidates.push(c);
            }
        }
        let reduces = s.iter().zip(t).any(|(a, b)| a != b && (a.is_partial() || b.is_partial()));
        let communicating = candidates
            .iter()
            .map(|c| c.moves.iter().filter(|m| m.op.communicates()).count())
            .min()
            .unwrap_or(0);
        if !reduces && communicating > 1 {
            let moves =
                SmallVec::from_iter([Move { op: StepOp::Exchange, before: s.clone(), after: t.clone() }]);
            candidates.push(Candidate { system: system.clone(), moves, sender: senders(system, s, t) });
        }
        candidates
    }

    fn digit_steps(&self, c: &Candidate) -> Result<Vec<Step>, Error> {
        c.moves.iter().map(|m| self.digit_step(c, m)).collect()
    }

    fn digit_step(&self, c: &Candidate, m: &Move) -> Result<Step, Error> {
        let system = &c.system;
        let changed = |d: &usize| m.before[*d] != m.after[*d];
        let digits: SmallVec<[usize; 8]> = (0..m.before.len()).filter(changed).collect();
        let axes: SmallVec<[SubAxis; 4]> = join(digits.iter().map(|&d| system.digits[d]));
        let g: usize = digits.iter().map(|&d| system.digits[d].size).product();
        let (small, large) = {
            let (a, b) = (system.local_numel(&m.before) as u64, system.local_numel(&m.after) as u64);
            (a.min(b), a.max(b))
        };
        let own: SmallVec<[usize; 8]> = (0..m.before.len()).collect();
        let moves = |sender: SmallVec<[usize; 8]>| Motion::Move {
            system: system.clone(),
            before: m.before.clone(),
            after: m.after.clone(),
            sender,
        };
        let reduce = reduce_of(digits.iter().filter_map(|&d| match m.before[d] {
            Place::Partial(op) => Some((op, system.digits[d].size)),
            Place::At(_) | Place::Replicated => None,
        }));
        let topology = &self.planner.topology;
        let mut op = m.op;
        let (motion, received, sent, cost_us) = match m.op {
            StepOp::Slice | StepOp::ZeroFill => (moves(own), 0, 0, 0.0),
            StepOp::AllGather => {
                let bytes = small * (g as u64 - 1) * self.item;
                (moves(own), bytes, bytes, topology.collective_us(bytes, g - 1))
            }
            StepOp::ReduceScatter => {
                let bytes = small * (g as u64 - 1) * self.item;
                let motion = Motion::ReduceScatter {
                    system: system.clone(),
                    before: m.before.clone(),
                    after: m.after.clone(),
                    reduce,
                };
                (motion, bytes, bytes, topology.collective_us(bytes, g - 1))
            }
            StepOp::AllReduce => {
                let (bytes, modelled) = all_reduce_bytes(large, g as u64, self.item);
                let subs = digits.iter().map(|&d| system.digits[d]).collect();
                (Motion::AllReduce { subs, reduce }, bytes, bytes, topology.collective_us(modelled, g - 1))
            }
            StepOp::AllToAll | StepOp::Exchange => {
                let x = exchanged(system, &m.before, &m.after, &c.sender);
                if x.peers + 1 == g && !x.forced {
                    op = StepOp::AllToAll;
                }
                let (r, s) = (x.received * self.item, x.sent * self.item);
                (moves(c.sender.clone()), r, s, topology.exchange_us(r, x.peers))
            }
        };
        Ok(Step {
            op,
            group: system.mesh.group(&axes)?,
            axes,
            before: system.sharding(&m.before)?,
            after: system.sharding(&m.after)?,
            received_bytes: received,
            sent_bytes: sent,
            cost_us,
            motion: Arc::new(motion),
        })
    }

    // ---- overlapping regions ----

    fn overlap_candidates(&self) -> Result<Vec<Vec<Step>>, Error> {
        let (from, to) = (self.from, self.to);
        let one_mesh = from.mesh() == to.mesh();
        let kept = |p: &PartialAxis| one_mesh && to.partial().contains(p);
        let (stay, gone): (Vec<PartialAxis>, Vec<PartialAxis>) = from.partial().iter().partition(|p| kept(p));
        if gone.is_empty() {
            return Ok(vec![self.direct(from)?.into_iter().collect()]);
        }
        let subs: SmallVec<[SubAxis; 4]> = gone.iter().map(|p| p.sub).collect();
        let reduce = reduce_of(gone.iter().map(|p| (p.op, p.sub.size)));
        let mut plans = Vec::new();
        // Reduce onto everybody, then move.
        let whole = from.with_partial(stay.iter().copied())?;
        let mut steps = vec![self.all_reduce(from, &whole, &subs, reduce)?];
        steps.extend(self.direct(&whole)?);
        plans.push(steps);
        // Reduce onto equal pieces of one dim, then move.
        for dim in 0..from.shape().len() {
            if let Some(pieces) = self.pieces(&whole, &subs, dim)? {
                let mut steps = vec![self.reduce_scatter(from, &pieces, &subs, reduce)?];
                steps.extend(self.direct(&pieces)?);
                plans.push(steps);
            }
        }
        // Reduce straight onto the target, where every rank's part lies inside what it holds a term of.
        if one_mesh && to.partial().len() == stay.len() && self.lies_inside(from, to)? {
            plans.push(vec![self.reduce_scatter(from, to, &subs, reduce)?]);
        }
        Ok(plans)
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
            return Ok(Some(self.step(StepOp::ZeroFill, axes, overlap, (0, 0, 0))?));
        }
        let counted = self.count(&overlap)?;
        let op = match (counted.0, overlap.fill) {
            (0, None) => StepOp::Slice,
            (0, Some(_)) => StepOp::ZeroFill,
            (_, _) => StepOp::Exchange,
        };
        Ok(Some(self.step(op, axes, overlap, counted)?))
    }

    fn step(
        &self,
        op: StepOp,
        axes: SmallVec<[SubAxis; 4]>,
        overlap: Overlap,
        (received, sent, peers): (u64, u64, usize),
    ) -> Result<Step, Error> {
        let group = if overlap.one_mesh() {
            overlap.from.mesh().group(&axes)?
        } else {
            span_of(overlap.from.mesh(), overlap.to.mesh())?
        };
        let (r, s) = (received * self.item, sent * self.item);
        let cost_us = if op.communicates() { self.planner.topology.exchange_us(r, peers) } else { 0.0 };
        Ok(Step {
            op,
            axes,
            group,
            before: overlap.from.clone(),
            after: overlap.to.clone(),
            received_bytes: r,
            sent_bytes: s,
            cost_us,
            motion: Arc::new(Motion::Overlap(overlap)),
        })
    }

    /// Elements that the worst rank receives and sends, and the most peers that a rank hears from.
    fn count(&self, overlap: &Overlap) -> Result<(u64, u64, usize), Error> {
        let ranks = overlap.ranks();
        let mut sent = vec![0u64; ranks.len()];
        let (mut most, mut peers) = (0u64, 0usize);
        for &rank in &ranks {
            let mut received = 0u64;
            let mut from = 0;
            for m in overlap.received(rank)?.iter().filter(|m| m.peer != rank) {
                let n = m.numel() as u64;
                received += n;
                from += 1;
                let at = ranks.binary_search(&m.peer).expect("a source holds something");
                sent[at] += n;
            }
            most = most.max(received);
            peers = peers.max(from);
        }
        Ok((most, sent.into_iter().max().unwrap_or(0), peers))
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
            axes,
            before: from.clone(),
            after: to.clone(),
            received_bytes: bytes,
            sent_bytes: bytes,
            cost_us: self.planner.topology.collective_us(modelled, g - 1),
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
                for peer in messages::members(mesh, subs, rank)? {
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
            axes,
            before: from.clone(),
            after: to.clone(),
            received_bytes: received,
            sent_bytes: sent,
            cost_us: self.planner.topology.collective_us(received, g - 1),
            motion: Arc::new(Motion::ReduceOverlap {
                overlap: Overlap::new(from, to),
                subs: SmallVec::from_slice(subs),
                reduce,
            }),
        })
    }

    /// The sharding in which the ranks of `subs` share what each of them held of `dim`.
    fn pieces(&self, whole: &Sharding, subs: &[SubAxis], dim: usize) -> Result<Option<Sharding>, Error> {
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
        let mut cuts: SmallVec<[AxisCut; 4]> = match (whole.cuts(), whole.placements()) {
            (Some(cuts), _) => SmallVec::from_slice(cuts),
            (None, Err(_)) => return Ok(None),
            (None, Ok(placements)) => {
                let cut = |(axis, p): (usize, &Placement)| {
                    let (dim, split_factor) = match *p {
                        Placement::Shard(dim) => (dim, 1),
                        Placement::StridedShard { dim, split_factor } => (dim, split_factor),
                        Placement::Replicate | Placement::Partial(_) => return None,
                    };
                    Some(AxisCut { dim, axis, cut: Cut { split_factor, n: mesh.axes()[axis].size() } })
                };
                placements.iter().enumerate().filter_map(cut).collect()
            }
        };
        cuts.extend(subs.iter().map(|s| AxisCut {
            dim,
            axis: s.axis,
            cut: Cut { split_factor: 1, n: s.size },
        }));
        let partial = whole.partial().iter().copied().collect();
        Sharding::from_cuts(mesh, shape, cuts, partial).map(Some)
    }

    /// Whether what each rank wants lies inside what it holds.
    fn lies_inside(&self, from: &Sharding, to: &Sharding) -> Result<bool, Error> {
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

    // ---- the whole plan ----

    fn finish(&self, steps: Vec<Step>, system: Option<&(System, State, State)>) -> Result<Plan, Error> {
        let numel = |s: &Sharding| s.max_local_numel() as u64 * self.item;
        let ends = [numel(self.from), numel(self.to)];
        let mut peak = ends[0].max(ends[1]);
        let mut largest = peak;
        for s in &steps {
            let (a, b) = (numel(&s.before), numel(&s.after));
            let staging = match s.op {
                StepOp::AllReduce => s.group.size() as u64,
                StepOp::Slice
                | StepOp::AllGather
                | StepOp::ReduceScatter
                | StepOp::AllToAll
                | StepOp::Exchange
                | StepOp::ZeroFill => 0,
            };
            let staged = if staging == 0 { 0 } else { (a / self.item.max(1)).div_ceil(staging) * self.item };
            peak = peak.max(a + b + staged);
            largest = largest.max(a).max(b);
        }
        let lower_bound_bytes = self.lower_bound(system)?;
        let mut plan = Plan {
            from: self.from.clone(),
            to: self.to.clone(),
            item_bytes: self.item as usize,
            received_bytes: steps.iter().map(|s| s.received_bytes).sum(),
            steps,
            lower_bound_bytes,
            lower_bound_us: match lower_bound_bytes {
                None | Some(0) => 0.0,
                Some(b) => self.planner.topology.collective_us(b, 1),
            },
            peak_bytes: peak,
            max_shard_bytes: largest,
        };
        let ranks = plan.from.mesh().size().max(plan.to.mesh().size());
        if plan.communicating_steps() > 1
            && ranks <= COUNTED
            && plan.steps.iter().any(|s| !is_same_for_all(s))
        {
            plan.received_bytes = total_received(&plan)?;
        }
        Ok(plan)
    }

    fn lower_bound(&self, system: Option<&(System, State, State)>) -> Result<Option<u64>, Error> {
        if let Some((system, s, t)) = system {
            return Ok(bounds::elements(system, s, t).map(|n| n * self.item));
        }
        if self.to.is_partial() {
            return Ok(None);
        }
        if self.from == self.to || self.from.numel() == 0 {
            return Ok(Some(0));
        }
        let overlap = Overlap::new(self.from, self.to);
        let mut worst = 0u64;
        for rank in self.to.mesh().ranks() {
            let (wanted, held) = overlap.wanted_and_held(rank)?;
            // Of a reduction no rank holds any value yet.
            let held = if self.from.is_partial() { 0 } else { held };
            worst = worst.max((wanted - held) as u64);
        }
        Ok(Some(worst * self.item))
    }
}

/// Whether every rank receives the same in a step.
fn is_same_for_all(s: &Step) -> bool {
    match (&*s.motion, s.op) {
        (_, StepOp::Slice | StepOp::ZeroFill) => true,
        (Motion::Move { .. }, StepOp::AllGather | StepOp::AllToAll) | (Motion::ReduceScatter { .. }, _) => {
            true
        }
        (Motion::AllReduce { .. }, _) => {
            s.before.digits().is_some() && s.before.max_local_numel() % s.group.size() == 0
        }
        (Motion::Move { .. } | Motion::Overlap(_) | Motion::ReduceOverlap { .. }, _) => false,
    }
}

/// The greatest total that one rank receives.
fn total_received(plan: &Plan) -> Result<u64, Error> {
    let mut most = 0;
    for rank in plan.ranks() {
        let mut total = 0;
        for step in 0..plan.steps.len() {
            for phase in plan.phases(step, rank)? {
                total +=
                    phase.receives.iter().filter(|m| m.peer != rank).map(|m| m.numel() as u64).sum::<u64>();
            }
        }
        most = most.max(total);
    }
    Ok(most * plan.item_bytes as u64)
}

fn same_moves(a: &Candidate, b: &Candidate) -> bool {
    a.system == b.system
        && a.moves.len() == b.moves.len()
        && a.moves.iter().zip(&b.moves).all(|(x, y)| x.op == y.op && x.after == y.after)
}

/// Bytes that the worst rank receives in an all-reduce, and what the model charges: both halves in whole pieces.
fn all_reduce_bytes(n: u64, g: u64, item: u64) -> (u64, u64) {
    let piece = n.div_ceil(g);
    (((g - 1) * piece + n - piece) * item, 2 * (g - 1) * piece * item)
}

/// What the worst rank receives and sends in an exchange, and from how many peers.
struct Exchanged {
    received: u64,
    sent: u64,
    peers: usize,
    /// Whether some digit's value comes from another digit, so that some ranks keep nothing.
    forced: bool,
}

fn exchanged(system: &System, before: &State, after: &State, sender: &[usize]) -> Exchanged {
    let (owner_before, owner_after) = (system.owners(before), system.owners(after));
    let mut sources = 1u64;
    // Which receiver digits a sender's digits fix, and whether any of the two come from another digit.
    let mut fixed: SmallVec<[bool; 8]> = SmallVec::from_elem(false, before.len());
    let (mut hears_others, mut tells_others) = (false, false);
    for (d, a) in before.iter().enumerate() {
        match *a {
            Place::At(p) => match owner_after[p] {
                None => sources *= system.digits[d].size as u64,
                Some(owner) => {
                    hears_others |= owner != d;
                    tells_others |= owner != d;
                    fixed[owner] = true;
                }
            },
            Place::Replicated | Place::Partial(_) => {
                tells_others |= sender[d] != d;
                fixed[sender[d]] = true;
            }
        }
    }
    let receivers: u64 =
        (0..before.len()).filter(|&d| !fixed[d]).map(|d| system.digits[d].size as u64).product();
    let block: u64 = system
        .positions
        .iter()
        .enumerate()
        .filter(|&(p, _)| owner_before[p].is_none() && owner_after[p].is_none())
        .map(|(_, x)| x.radix as u64)
        .product();
    let peers = sources - u64::from(!hears_others);
    Exchanged {
        received: peers * block,
        sent: (receivers - u64::from(!tells_others)) * block,
        peers: peers as usize,
        forced: hears_others,
    }
}

fn contains(outer: SubAxis, inner: SubAxis) -> bool {
    outer.axis == inner.axis && outer.pre <= inner.pre && inner.pre * inner.size <= outer.pre * outer.size
}

fn all_axes(mesh: &Mesh) -> SmallVec<[SubAxis; 4]> {
    join((0..mesh.axes().len()).map(|a| mesh.whole(a)))
}

/// The sub-axes of what shards a dim, as a list to compare.
fn shards_of(s: &Sharding, dim: usize) -> SmallVec<[(SubAxis, usize); 4]> {
    if let Some(digits) = s.digits() {
        let mut skipped = 1;
        let mut list = SmallVec::new();
        for d in digits.iter().filter(|d| d.dim == dim) {
            match d.sub_axis() {
                Some(sub) => list.push((sub, skipped)),
                None => skipped *= d.radix,
            }
        }
        return list;
    }
    let cuts = s.cuts().unwrap_or_default().iter().filter(|c| c.dim == dim);
    cuts.map(|c| (s.mesh().whole(c.axis), c.cut.split_factor)).collect()
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
