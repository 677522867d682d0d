//! Plans: the steps from one sharding to another, and their cost.

use std::sync::Arc;

use reshard_kernels::DType;

use crate::Error;
use crate::bounds::cut::LowerBoundCut;
use crate::budget::Effort;
use crate::message::Phase;
use crate::options::PlanOptions;
use crate::step::Step;
use reshard_sharding::internal::ranks_of_both;
use reshard_sharding::{GroupPattern, Sharding};

/// The steps that redistribute a tensor from one sharding to another.
///
/// A plan is a pure function of its inputs: every rank computes the same one.
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
    pub(crate) lower_bound_cut: Option<LowerBoundCut>,
    pub(crate) peak_bytes: u64,
    pub(crate) max_shard_bytes: u64,
    pub(crate) effort: Effort,
}

impl Plan {
    /// Returns the source sharding.
    pub fn from(&self) -> &Sharding {
        &self.from
    }

    /// Returns the target sharding.
    pub fn to(&self) -> &Sharding {
        &self.to
    }

    /// Returns the options it was made with.
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the bytes of an element.
    #[doc(hidden)]
    pub fn element_bytes(&self) -> usize {
        self.dtype.bits() / 8
    }

    /// Returns the steps in order; empty if every rank already holds its target.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the greatest total of bytes that any one rank receives.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Returns a lower bound of the bytes that the worst rank receives.
    ///
    /// It is `None` for partial targets, for which no simple bound holds.
    pub fn lower_bound_bytes(&self) -> Option<u64> {
        self.lower_bound_bytes
    }

    /// Returns the modelled time in microseconds, the sum over all steps.
    pub fn cost_us(&self) -> f64 {
        // An empty sum of floats would be -0.0.
        self.steps.iter().fold(0.0, |total, s| total + s.cost_us)
    }

    /// Returns the least time of any plan under the same model, in microseconds.
    pub fn lower_bound_us(&self) -> f64 {
        self.lower_bound_us
    }

    /// Returns the set of ranks that bounds the time between two meshes.
    ///
    /// It is `None` on one mesh, for partial targets, and where nothing is sent.
    pub fn lower_bound_cut(&self) -> Option<&LowerBoundCut> {
        self.lower_bound_cut.as_ref()
    }

    /// Returns the most bytes that any rank holds at one moment.
    ///
    /// They are the input and output of a step, and its staging.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Returns the bytes of the largest shard among source, target and all intermediate shardings.
    #[doc(hidden)]
    pub fn max_shard_bytes(&self) -> u64 {
        self.max_shard_bytes
    }

    /// Returns `true` if the search [budget](crate::SearchBudget) ran out before the search was complete.
    ///
    /// The plan is then the best that was found, and [`lower_bound_us`](Plan::lower_bound_us) bounds its
    /// distance to the optimum. Ensures that a plan for which this is `false` is the same as without a
    /// budget.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::{SearchBudget, Planner};
    /// let mesh: Mesh = "a=3,b=5,c=2,d=4".parse()?;
    /// let of = |p: &str| Sharding::parse(&mesh, &[97, 31], p);
    /// let (from, to) = (of("P,S(0),S(1),P")?, of("S(1),R,S(0),R")?);
    /// let plan = |budget| Planner::new().budget(budget).plan(&from, &to, DType::F32);
    /// assert!(!plan(SearchBudget::default())?.is_budget_exhausted());
    /// let hasty = plan(SearchBudget::new(0))?;
    /// assert!(hasty.is_budget_exhausted() && hasty.cost_us() >= plan(SearchBudget::UNLIMITED)?.cost_us());
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    pub fn is_budget_exhausted(&self) -> bool {
        self.effort.exhausted
    }

    /// Returns the groups that the communicating steps need, each once, in the order of first use.
    pub fn groups(&self) -> Vec<&GroupPattern> {
        let mut groups: Vec<&GroupPattern> = Vec::new();
        for s in self.steps.iter().filter(|s| s.op().communicates()) {
            if !groups.contains(&&s.group) {
                groups.push(&s.group);
            }
        }
        groups
    }

    /// Returns the number of steps in which ranks communicate.
    pub fn communicating_steps(&self) -> usize {
        self.steps.iter().filter(|s| s.op().communicates()).count()
    }

    /// Returns all ranks that hold data before or after, ascending.
    pub fn ranks(&self) -> Vec<usize> {
        ranks_of_both(self.from.mesh(), self.to.mesh())
    }

    /// Returns all sends and receives of one rank, phase by phase, each with the index of its step.
    ///
    /// A framework with a custom transport executes these.
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
