//! The planner: candidates, their costs, and the choice among them.
//!
//! On one mesh with nesting digits the candidates are the forms of [`closed_form`](super::closed_form) and, without
//! reductions, one direct exchange. Otherwise the source's partial axes are reduced in the source's own digits (onto all
//! of them, onto equal pieces, or straight onto the target where it lies inside the source), and one exchange of
//! overlapping regions does the rest. The least by objective wins; ties go to fewer bytes, then to the earlier candidate,
//! so a plan is a pure function of its inputs.

use core::fmt;
use std::str::FromStr;

use crate::digits::Owner;
use crate::redistribute::bounds;
use crate::redistribute::cost::Topology;
use crate::redistribute::digit_plan;
use crate::redistribute::messages::Motion;
use crate::redistribute::overlap::Overlap;
use crate::redistribute::plan::Plan;
use crate::redistribute::step::{Step, StepOp};
use crate::redistribute::system::{State, System, refine};
use crate::{Error, ReduceOp, Sharding};

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
}

/// The most ranks whose totals are added up one by one.
pub(super) const COUNTED: usize = 1 << 14;

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
        let work = Work { planner: self, topology: &self.topology, from, to, item: item_bytes as u64 };
        if from == to || from.numel() == 0 {
            return work.finish(Vec::new(), None);
        }
        let system = if from.mesh() == to.mesh() { refine(from, to) } else { None };
        let mut plans = Vec::new();
        match &system {
            Some((system, s, t)) => {
                for candidate in digit_plan::candidates(system, s, t) {
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
pub(super) struct Work<'a> {
    planner: &'a Planner,
    pub(super) topology: &'a Topology,
    pub(super) from: &'a Sharding,
    pub(super) to: &'a Sharding,
    pub(super) item: u64,
}

impl Work<'_> {
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
            planner: self.planner.clone(),
            item_bytes: self.item as usize,
            received_bytes: steps.iter().map(|s| s.received_bytes).sum(),
            steps,
            lower_bound_bytes,
            lower_bound_us: match lower_bound_bytes {
                None | Some(0) => 0.0,
                Some(b) => self.topology.collective_us(b, 1),
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
        (_, StepOp::Slice | StepOp::ZeroFill)
        | (Motion::Move { .. }, StepOp::AllGather | StepOp::AllToAll)
        | (Motion::ReduceScatter { .. }, _) => true,
        (Motion::AllReduce { .. }, _) => {
            s.before.digits().is_some() && s.before.max_local_numel().is_multiple_of(s.group.size())
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
