//! Plans: the steps from one sharding to another, and what they cost.

use std::sync::Arc;

use reshard_kernels::DType;

use crate::Error;
use crate::budget::Effort;
use crate::message::Phase;
use crate::options::PlanOptions;
use crate::step::Step;
use reshard_sharding::internal::ranks_of_both;
use reshard_sharding::{GroupPattern, Sharding};

/// The steps that take a tensor from one sharding to another.
///
/// A plan is a pure function of its inputs: every rank that makes it makes the same one.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::{Planner, StepOp};
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let from = Sharding::parse(&mesh, &[64, 32], "S(0),S(1)")?;
/// let to = Sharding::parse(&mesh, &[64, 32], "R,S(1)")?;
/// let plan = Planner::new().plan(&from, &to, DType::F32)?;
/// assert_eq!(plan.steps().len(), 1);
/// assert_eq!(plan.steps()[0].op(), StepOp::AllGather);
/// assert_eq!(plan.received_bytes(), 32 * 8 * 4);
/// assert_eq!(plan.lower_bound_bytes(), Some(32 * 8 * 4));
/// # Ok::<(), reshard_planner::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) from: Arc<Sharding>,
    pub(crate) to: Arc<Sharding>,
    pub(crate) options: PlanOptions,
    pub(crate) dtype: DType,
    pub(crate) steps: Vec<Step>,
    pub(crate) received_bytes: u64,
    pub(crate) lower_bound_bytes: Option<u64>,
    pub(crate) lower_bound_us: f64,
    pub(crate) peak_bytes: u64,
    pub(crate) max_shard_bytes: u64,
    pub(crate) effort: Effort,
}

impl Plan {
    /// Who holds what before.
    pub fn from(&self) -> &Sharding {
        &self.from
    }

    /// Who holds what after.
    pub fn to(&self) -> &Sharding {
        &self.to
    }

    /// How it was asked for.
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of an element.
    pub fn item_bytes(&self) -> usize {
        self.dtype.bits() / 8
    }

    /// The steps in order; none if every rank already holds its target.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The greatest total of bytes that any one rank receives.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Bytes that the worst rank cannot do without; `None` where nothing simple is true (partial targets).
    pub fn lower_bound_bytes(&self) -> Option<u64> {
        self.lower_bound_bytes
    }

    /// Modelled time in microseconds: the sum of the steps'.
    pub fn cost_us(&self) -> f64 {
        // An empty sum of floats would be -0.0.
        self.steps.iter().fold(0.0, |total, s| total + s.cost_us)
    }

    /// Time that no plan can beat under the same model.
    pub fn lower_bound_us(&self) -> f64 {
        self.lower_bound_us
    }

    /// The most bytes that any rank holds at one moment: what a step reads, what it writes, and its staging.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Bytes of the largest shard among source, target and what lies between.
    pub fn max_shard_bytes(&self) -> u64 {
        self.max_shard_bytes
    }

    /// Whether the [budget](crate::Budget) ran out before everything that might be better was looked at: the plan is the best
    /// of what was, and [`lower_bound_us`](Plan::lower_bound_us) says how far from the least it is at most.
    ///
    /// Ensures that a plan which is not is the plan that no budget limits.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::{Budget, Planner};
    /// let mesh: Mesh = "a=3,b=5,c=2,d=4".parse()?;
    /// let of = |p: &str| Sharding::parse(&mesh, &[97, 31], p);
    /// let (from, to) = (of("P,S(0),S(1),P")?, of("S(1),R,S(0),R")?);
    /// let plan = |budget| Planner::new().budget(budget).plan(&from, &to, DType::F32);
    /// assert!(!plan(Budget::default())?.is_exhausted());
    /// let hasty = plan(Budget::of(0))?;
    /// assert!(hasty.is_exhausted() && hasty.cost_us() >= plan(Budget::UNLIMITED)?.cost_us());
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    pub fn is_budget_exhausted(&self) -> bool {
        self.effort.exhausted
    }

    /// The groups that the communicating steps need, each once, in the order of first use.
    pub fn groups(&self) -> Vec<&GroupPattern> {
        let mut groups: Vec<&GroupPattern> = Vec::new();
        for s in self.steps.iter().filter(|s| s.op().communicates()) {
            if !groups.contains(&&s.group) {
                groups.push(&s.group);
            }
        }
        groups
    }

    /// The number of steps in which ranks talk to each other.
    pub fn communicating_steps(&self) -> usize {
        self.steps.iter().filter(|s| s.op().communicates()).count()
    }

    /// All ranks that hold something before or after, ascending.
    pub fn ranks(&self) -> Vec<usize> {
        ranks_of_both(self.from.mesh(), self.to.mesh())
    }

    /// All that one rank sends and receives, phase after phase, each with the index of its step: what a framework with a
    /// transport of its own carries out.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::Planner;
    /// let mesh: Mesh = "x=2".parse()?;
    /// let from = Sharding::parse(&mesh, &[4], "S(0)")?;
    /// let plan = Planner::new().plan(&from, &Sharding::parse(&mesh, &[4], "R")?, DType::F32)?;
    /// let phases = plan.phases(0)?;
    /// let (step, phase) = &phases[0];
    /// assert_eq!((phases.len(), *step, phase.source_len, phase.target_len), (1, 0, 2, 4));
    /// let sent = &phase.sends[0];
    /// assert_eq!((sent.peer, sent.numel(), sent.blocks[0].source_offset), (1, 2, 0));
    /// let lands: Vec<_> = phase.receives.iter().map(|m| (m.peer, m.blocks[0].target_offset)).collect();
    /// assert_eq!(lands, [(0, 0), (1, 2)]); // its own part is copied
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    ///
    /// Errors: a rank that is not in [`Plan::ranks`].
    pub fn phases(&self, rank: usize) -> Result<Vec<(usize, Phase)>, Error> {
        let (from, to) = (self.from.mesh(), self.to.mesh());
        if !from.contains(rank) && !to.contains(rank) {
            let mesh = if from == to { from.to_string() } else { format!("{from} or {to}") };
            return Err(reshard_sharding::Error::NoSuchRank { rank, mesh }.into());
        }
        let mut all = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            all.extend(step.phases(rank)?.into_iter().map(|phase| (index, phase)));
        }
        Ok(all)
    }
}
