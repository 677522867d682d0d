//! The planner: candidates, their costs, and the choice among them.
//!
//! On one mesh with nesting digits the candidates are the forms of `closed_form`, without reductions one direct exchange,
//! and what a `search` finds (`digit_plan`). Otherwise, and where terms meet extents that no digit divides, they are made
//! of overlapping regions (`direct`). The least by objective wins; ties go to fewer bytes, then to the earlier candidate,
//! so a plan is a pure function of its inputs.

use core::cell::OnceCell;
use core::fmt;
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::redistribute::cost::Topology;
use crate::redistribute::digit_plan::Ends;
use crate::redistribute::digit_step::{Measured, codes};
use crate::redistribute::messages::Motion;
use crate::redistribute::network::Network;
use crate::redistribute::overlap::Overlap;
use crate::redistribute::plan::Plan;
use crate::redistribute::step::{Step, StepOp};
use crate::{Error, Group, ReduceOp, Sharding};

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
    pub(crate) topology: Topology,
    pub(crate) objective: Objective,
    pub(crate) max_peak_bytes: Option<u64>,
    pub(crate) groups: Option<Arc<[Group]>>,
    pub(crate) deterministic: bool,
}

/// The most ranks whose totals are added up one by one.
pub(super) const COUNTED: usize = 1 << 14;

/// The most ranks for which a reduction within a digit system is also tried in uneven pieces: those look at every rank.
pub(super) const COUNTED_UNEVEN: usize = 1 << 10;

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

    /// The same, but no rank may ever hold more than these bytes: source, target and staging of any step.
    #[must_use]
    pub fn max_peak_bytes(self, bytes: u64) -> Planner {
        Planner { max_peak_bytes: Some(bytes), ..self }
    }

    /// The same, but only groups with the members of a given one are used.
    #[must_use]
    pub fn with_groups(self, groups: impl IntoIterator<Item = Group>) -> Planner {
        Planner { groups: Some(groups.into_iter().collect()), ..self }
    }

    /// The same, but every reduction is an exchange of all its terms and a local combine in their order.
    ///
    /// Then each element is one left fold over the coordinates of the partial axes that go away, outermost axis first,
    /// divided once at the end where some are averages: what [`meaning`](crate::meaning::meaning) computes, bit for bit,
    /// whatever the plan, the target, the network and the engine. Terms that stay terms are not touched.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, redistribute::{Planner, StepOp}};
    /// let mesh: Mesh = "x=4".parse()?;
    /// let from = Sharding::parse(&mesh, &[8], "P")?;
    /// let to = Sharding::parse(&mesh, &[8], "S(0)")?;
    /// let plan = Planner::new().deterministic(true).plan(&from, &to, 4)?;
    /// assert_eq!(plan.steps()[0].op, StepOp::Exchange);
    /// let phases = plan.phases(0, 1)?;
    /// let order: Vec<usize> = phases[0].receives.iter().map(|m| m.peer).collect();
    /// assert_eq!(order, [0, 1, 2, 3]);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    #[must_use]
    pub fn deterministic(self, deterministic: bool) -> Planner {
        Planner { deterministic, ..self }
    }

    /// Whether every reduction is combined in the order of its terms, see [`deterministic`](Planner::deterministic).
    pub fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    /// Feeds a hasher: equal planners alike.
    pub(crate) fn hash_word(&self, hasher: &mut impl core::hash::Hasher) {
        hasher.write_u64(self.objective as u64 | u64::from(self.deterministic) << 8);
        hasher.write_u64(self.max_peak_bytes.map_or(0, |b| b.wrapping_add(1)));
        hasher.write_u64(self.groups.as_ref().map_or(0, |g| g.len() as u64 + 1));
        hasher.write_u64(self.topology.launch_us().to_bits());
        for l in self.topology.levels() {
            hasher.write_u64(l.gbytes_per_s.to_bits() ^ l.ranks.unwrap_or(0) as u64);
        }
    }

    /// Refuses what no planner can do.
    pub(super) fn check(from: &Sharding, to: &Sharding, item_bytes: usize) -> Result<(), Error> {
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
        refuse_avg_of_shards(from, to)
    }

    /// The plan from one sharding to another of the same tensor, with elements of `item_bytes`.
    ///
    /// Fails if the shapes differ, a shard would have to become a term of an average, or no plan keeps to the memory or
    /// the groups that were asked for.
    pub fn plan(&self, from: &Sharding, to: &Sharding, item_bytes: usize) -> Result<Plan, Error> {
        self.plan_within(from, to, item_bytes, u64::MAX)
    }

    /// The same plan, found sooner if it is known to cost at most so many picoseconds.
    pub(crate) fn plan_within(
        &self,
        from: &Sharding,
        to: &Sharding,
        item_bytes: usize,
        limit: u64,
    ) -> Result<Plan, Error> {
        Planner::check(from, to, item_bytes)?;
        let work = Work::new(self, from, to, item_bytes as u64);
        if from == to || from.numel() == 0 {
            let plan = work.finish(Vec::new(), None, None)?;
            return if self.admits(&plan) { Ok(plan) } else { Err(self.refused(plan.peak_bytes)) };
        }
        let ends = work.ends();
        let mut best = None;
        let in_order = self.deterministic && from.is_partial();
        if let Some(ends) = ends.as_ref().filter(|_| !in_order) {
            best = work.best_digit_plan(ends, limit)?;
        }
        let uneven = ends.as_ref().is_some_and(|e| e.lacks_spares() && from.mesh().size() <= COUNTED_UNEVEN);
        if ends.is_none() || in_order || uneven {
            for steps in work.overlap_candidates()? {
                work.keep_better(steps, ends.as_ref(), &mut best)?;
            }
        }
        match best {
            Some(plan) => Ok(plan),
            None => Err(self.explain_refusal(from, to, item_bytes)?),
        }
    }

    /// Whether a plan keeps to the memory and the groups that were asked for.
    fn admits(&self, plan: &Plan) -> bool {
        self.admits_peak(plan.peak_bytes)
            && self.groups.as_ref().is_none_or(|known| plan.groups().iter().all(|g| known.contains(g)))
    }

    fn refused(&self, least: u64) -> Error {
        Error::PeakTooSmall { limit: self.max_peak_bytes.unwrap_or(0), least }
    }

    /// Why no plan keeps to what was asked for.
    fn explain_refusal(&self, from: &Sharding, to: &Sharding, item_bytes: usize) -> Result<Error, Error> {
        let free = Planner { groups: None, max_peak_bytes: None, ..self.clone() };
        if self.groups.is_some() {
            let plan = free.plan(from, to, item_bytes)?;
            let missing: Vec<String> = self.missing(&plan).iter().map(ToString::to_string).collect();
            return Ok(Error::Unsupported {
                reason: format!(
                    "no plan from {from} to {to} uses the given groups only: the best one also needs {}",
                    missing.join(" and ")
                ),
            });
        }
        let plan = free.objective(Objective::Peak).plan(from, to, item_bytes)?;
        Ok(self.refused(plan.peak_bytes))
    }

    /// The groups of a plan that were not given.
    fn missing<'p>(&self, plan: &'p Plan) -> Vec<&'p Group> {
        let known = self.groups.as_deref().unwrap_or_default();
        plan.groups().into_iter().filter(|g| !known.contains(g)).collect()
    }

    /// What one more group would save a plan of this planner: each group that the unrestricted plan would use, and the
    /// microseconds saved if it existed.
    pub fn savings(&self, plan: &Plan) -> Result<Vec<(Group, f64)>, Error> {
        let Some(known) = &self.groups else { return Ok(Vec::new()) };
        let free = Planner { groups: None, ..self.clone() };
        let unrestricted = free.plan(&plan.from, &plan.to, plan.item_bytes)?;
        let mut out = Vec::new();
        for group in self.missing(&unrestricted) {
            let more = known.iter().chain([group]).cloned();
            let with = self.clone().with_groups(more).plan(&plan.from, &plan.to, plan.item_bytes)?;
            out.push((group.clone(), plan.cost_us() - with.cost_us()));
        }
        Ok(out)
    }

    pub(super) fn admits_peak(&self, peak: u64) -> bool {
        self.max_peak_bytes.is_none_or(|m| peak <= m)
    }

    /// What plans are compared by.
    fn key(&self, p: &Plan) -> [u64; 3] {
        let mut totals = Totals::default();
        for s in &p.steps {
            totals.add(s.cost_us, s.received_bytes, 0);
        }
        // Steps have their worst ranks, which need not be one rank.
        totals.bytes = p.received_bytes;
        totals.peak = p.peak_bytes;
        totals.key(self.objective)
    }
}

/// What the steps of a plan add up to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Each step in whole picoseconds, so that the order of additions decides nothing.
    picoseconds: u64,
    bytes: u64,
    pub(super) peak: u64,
    steps: u64,
}

/// A time in whole picoseconds.
pub(crate) fn picoseconds(us: f64) -> u64 {
    (us * 1e6).round() as u64
}

impl Totals {
    pub(super) fn of(measured: &[Measured]) -> Totals {
        let mut totals = Totals::default();
        for x in measured {
            totals.add(x.cost_us, x.received, x.peak);
        }
        totals
    }

    fn add(&mut self, cost_us: f64, bytes: u64, peak: u64) {
        self.picoseconds = self.picoseconds.saturating_add(picoseconds(cost_us));
        self.bytes += bytes;
        self.peak = self.peak.max(peak);
        self.steps += 1;
    }

    /// The order of an objective.
    pub(super) fn key(&self, objective: Objective) -> [u64; 3] {
        match objective {
            Objective::Time => [self.picoseconds, self.bytes, self.steps],
            Objective::Bytes => [self.bytes, self.picoseconds, self.steps],
            Objective::Peak => [self.peak, self.picoseconds, self.bytes],
        }
    }
}

/// A shard that becomes a term of an average would need its value multiplied by the number of ranks.
fn refuse_avg_of_shards(from: &Sharding, to: &Sharding) -> Result<(), Error> {
    let shards = |s: &Sharding, axis: usize| s.cutting().any(|sub| sub.axis == axis);
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
pub(super) struct Work<'a> {
    pub(super) planner: &'a Planner,
    pub(super) network: Network<'a>,
    pub(super) from: &'a Sharding,
    pub(super) to: &'a Sharding,
    pub(super) item: u64,
    /// Both ends as plans and steps hold them.
    shared: OnceCell<[Arc<Sharding>; 2]>,
}

impl<'a> Work<'a> {
    pub(super) fn new(planner: &'a Planner, from: &'a Sharding, to: &'a Sharding, item: u64) -> Work<'a> {
        let network = Network::new(&planner.topology, from.mesh());
        Work { planner, network, from, to, item, shared: OnceCell::new() }
    }

    /// Both ends, to be shared by all steps of all candidates.
    pub(super) fn shared(&self) -> &[Arc<Sharding>; 2] {
        self.shared.get_or_init(|| [self.from, self.to].map(|s| Arc::new(s.clone())))
    }
}

impl Work<'_> {
    /// Keeps a plan if it is admitted and better than the best so far.
    fn keep_better(
        &self,
        steps: Vec<Step>,
        ends: Option<&Ends>,
        best: &mut Option<Plan>,
    ) -> Result<(), Error> {
        let plan = self.finish(steps, ends, None)?;
        let better = |b: &Plan| self.planner.key(&plan) < self.planner.key(b);
        if self.planner.admits(&plan) && best.as_ref().is_none_or(better) {
            *best = Some(plan);
        }
        Ok(())
    }

    /// The plan of these steps, with its bounds. What one rank receives in all of them is counted rank by rank, unless
    /// the caller knows it.
    pub(super) fn finish(
        &self,
        steps: Vec<Step>,
        ends: Option<&Ends>,
        received: Option<u64>,
    ) -> Result<Plan, Error> {
        let numel = |s: &Sharding| s.max_local_numel() as u64 * self.item;
        let mut before = numel(self.from);
        let mut largest = before.max(numel(self.to));
        let mut peak = largest;
        for s in &steps {
            let after = numel(&s.after);
            let staged = match s.op {
                StepOp::AllReduce => (before / self.item.max(1)).div_ceil(s.group.size() as u64) * self.item,
                StepOp::Slice
                | StepOp::AllGather
                | StepOp::ReduceScatter
                | StepOp::AllToAll
                | StepOp::Exchange
                | StepOp::ZeroFill => 0,
            };
            peak = peak.max(before + after + staged);
            largest = largest.max(before).max(after);
            before = after;
        }
        let (lower_bound_bytes, lower_bound_us) = self.lower_bounds(ends)?;
        let [from, to] = self.shared().clone();
        let mut plan = Plan {
            from,
            to,
            planner: self.planner.clone(),
            item_bytes: self.item as usize,
            received_bytes: received.unwrap_or_else(|| steps.iter().map(|s| s.received_bytes).sum()),
            steps,
            lower_bound_bytes,
            lower_bound_us,
            peak_bytes: peak,
            max_shard_bytes: largest,
        };
        let ranks = plan.from.mesh().size().max(plan.to.mesh().size());
        let alike = |s: &Step| plan.from.mesh() == plan.to.mesh() && is_same_for_all(s);
        let differ = || plan.steps.iter().filter(|s| !alike(s)).count() > 1;
        if received.is_none() && ranks <= COUNTED && differ() {
            plan.received_bytes = total_received(&plan)?;
        }
        Ok(plan)
    }

    /// What no plan can do without: bytes (not with partial targets) and time.
    fn lower_bounds(&self, ends: Option<&Ends>) -> Result<(Option<u64>, f64), Error> {
        if self.to.is_partial() {
            return Ok((None, 0.0));
        }
        if self.from == self.to || self.from.numel() == 0 {
            return Ok((Some(0), 0.0));
        }
        let topology = self.network.topology;
        if let Some(ends) = ends {
            let (s, t) = (codes(&ends.from, &ends.from), codes(&ends.to, &ends.from));
            let needs = self.needs(&ends.bounding, &s, &t);
            // Over whole elements.
            let bytes = (needs[0] - 1e-6).max(0.0).ceil() as u64 * self.item;
            let needs: SmallVec<[f64; 3]> = needs.iter().map(|n| n * self.item as f64).collect();
            return Ok((Some(bytes), if bytes == 0 { 0.0 } else { topology.bound_us(&needs) }));
        }
        let overlap = Overlap::new(self.from, self.to);
        let mut worst = 0u64;
        for rank in self.to.mesh().ranks() {
            let (wanted, held) = overlap.wanted_and_held(rank)?;
            // Of a reduction no rank holds any value yet.
            let held = if self.from.is_partial() { 0 } else { held };
            worst = worst.max((wanted - held) as u64);
        }
        let bytes = worst * self.item;
        Ok((Some(bytes), topology.bound_us(&[bytes as f64])))
    }
}

/// Whether every rank receives the same in a step.
fn is_same_for_all(s: &Step) -> bool {
    match (&*s.motion, s.op) {
        (_, StepOp::Slice | StepOp::ZeroFill)
        | (Motion::Move(_), StepOp::AllGather | StepOp::AllToAll)
        | (Motion::ReduceScatter { .. }, _) => true,
        (Motion::AllReduce { .. }, _) => {
            s.before.layout().is_some() && s.before.max_local_numel().is_multiple_of(s.group.size())
        }
        (Motion::Move(_) | Motion::Overlap(_) | Motion::ReduceOverlap { .. }, _) => false,
    }
}

/// The greatest total that one rank receives.
fn total_received(plan: &Plan) -> Result<u64, Error> {
    let ranks = plan.ranks();
    let mut totals = vec![0u64; ranks.len()];
    for (i, step) in plan.steps.iter().enumerate() {
        let meetings = match &*step.motion {
            Motion::Overlap(overlap) => Some((overlap, overlap.meetings()?)),
            Motion::Move(_)
            | Motion::ReduceScatter { .. }
            | Motion::AllReduce { .. }
            | Motion::ReduceOverlap { .. } => None,
        };
        for (&rank, total) in ranks.iter().zip(&mut totals) {
            let mut add = |peer: usize, numel: usize| *total += if peer == rank { 0 } else { numel as u64 };
            if let Some((overlap, meetings)) = &meetings {
                overlap.pulls(rank, meetings, &mut add);
            } else {
                for phase in plan.phases(i, rank)? {
                    phase.receives.iter().for_each(|m| add(m.peer, m.numel()));
                }
            }
        }
    }
    Ok(totals.into_iter().max().unwrap_or(0) * plan.item_bytes as u64)
}
