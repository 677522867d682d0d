//! The propagator: from the shardings of an op's inputs to those of its outputs.

use crate::propagate::choice::OpSharding;
use crate::propagate::constraint::OutputConstraint;
use crate::propagate::operand::Operand;
use crate::propagate::problem::{Problem, Stays};
use crate::propagate::refusal;
use crate::propagate::search::{Found, Search};
use std::sync::Arc;

use crate::Error;
use crate::rules::Op;
use reshard_planner::internal::go_on;
use reshard_planner::{Arithmetic, Planner, SearchBudget};
use reshard_sharding::Mesh;

/// Propagates shardings through ops on one network.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_ops::{propagate::{Operand, Propagator}, rules::Op};
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let mm = Op::new("mm", &"mk,kn->mn".parse()?, &[&[64, 32], &[32, 16]])?;
/// let of = |shape: &[usize], p: &str| Sharding::parse(&mesh, shape, p).map(|s| Operand::new(DType::F32, s));
/// let inputs = [of(&[64, 32], "S(0),R")?, of(&[32, 16], "R,S(1)")?];
/// let choice = Propagator::new().propagate(&mm, &mesh, &inputs, &[])?;
/// assert_eq!((choice.cost_us, choice.outputs[0].to_string()), (0.0, "S(0),S(1)".to_string()));
/// # Ok::<(), reshard_ops::Error>(())
/// ```
///
/// Ops are computed by a framework, which may also reduce partial values of any element type. Plans are made
/// with [`Arithmetic::Framework`], whatever the planner had.
#[derive(Clone, Debug, PartialEq)]
pub struct Propagator {
    pub(super) planner: Planner,
    budget: SearchBudget,
}

/// The default budget of a propagation, as a multiple of the default budget of a plan.
const PER_PLAN: u64 = 5;

impl Default for Propagator {
    fn default() -> Propagator {
        let budget = SearchBudget::new(SearchBudget::default().work() * PER_PLAN);
        Propagator { planner: Planner::new().arithmetic(Arithmetic::Framework), budget }
    }
}

impl Propagator {
    /// A propagator for the `uniform` network.
    pub fn new() -> Propagator {
        Propagator::default()
    }

    /// Replaces the planner, whose costs are minimized.
    #[must_use]
    pub fn with_planner(self, planner: Planner) -> Propagator {
        Propagator { planner: planner.arithmetic(Arithmetic::Framework), ..self }
    }

    /// Sets the work limit of the search over strategies.
    ///
    /// When it is exhausted, the best strategy so far is returned ([`OpSharding::is_budget_exhausted`]). The plans have
    /// the separate budget of the planner.
    ///
    /// ```
    /// use reshard_ops::propagate::Propagator;
    /// use reshard_planner::SearchBudget;
    /// assert_eq!(Propagator::new().budget().to_string(), "7500000");
    /// assert_eq!(Propagator::new().with_budget(SearchBudget::UNLIMITED).budget().to_string(), "none");
    /// ```
    #[must_use]
    pub fn with_budget(self, budget: SearchBudget) -> Propagator {
        Propagator { budget, ..self }
    }

    /// The work limit of the search over strategies.
    pub fn budget(&self) -> SearchBudget {
        self.budget
    }

    /// The planner, whose costs are minimized.
    #[doc(hidden)]
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Returns the cheapest strategy: least cost of redistributing the inputs and satisfying the constraints.
    ///
    /// Ties are won by the strategy that changes fewest inputs, then by the first in the order of the op's
    /// strategies, with all-replicated first.
    ///
    /// Requires all inputs on `mesh`, with the op's shapes. `constraints` holds one for each output, or
    /// fewer. The bytes of outputs use the dtype of the first input of real or complex numbers, or else of
    /// the first input.
    ///
    /// A tensor into which the op writes, in place or as `out`, is not redistributed, and the values written
    /// into it have its sharding. If no strategy allows that, the error names what to redistribute first.
    pub fn propagate(
        &self,
        op: &Op,
        mesh: &Mesh,
        inputs: &[Operand],
        constraints: &[OutputConstraint],
    ) -> Result<OpSharding, Error> {
        let mut best = self.cheapest(op, mesh, inputs, constraints, 1)?;
        Ok(best.remove(0))
    }

    /// The cheapest strategies with their plans, best first: at least one, at most `most`.
    pub fn cheapest(
        &self,
        op: &Op,
        mesh: &Mesh,
        inputs: &[Operand],
        constraints: &[OutputConstraint],
        most: usize,
    ) -> Result<Vec<OpSharding>, Error> {
        let problem = Problem::new(&self.planner, op, mesh, inputs, constraints, Stays::Written)?;
        let mut search = Search::new(&problem, most <= 1, self.budget);
        let out = best(&problem, most, &mut search)?;
        go_on()?;
        if !out.is_empty() {
            return Ok(out);
        }
        Err(if problem.inputs.iter().any(|a| a.stays) {
            refusal::written_moves(self, op, mesh, inputs)
        } else {
            let spent = search.effort.exhausted.then_some(search.effort.work);
            refusal::nothing_fits(op, inputs, search.refusal, spent)
        })
    }

    /// Returns the cheapest strategies within the budget.
    ///
    /// They are the suggestions in an error, so that an error costs no more than an answer.
    pub(super) fn advise_hastily(
        &self,
        op: &Op,
        mesh: &Mesh,
        inputs: &[Operand],
        most: usize,
        stays: Stays,
    ) -> Result<Vec<OpSharding>, Error> {
        let problem = Problem::new(&self.planner, op, mesh, inputs, &[], stays)?;
        best(&problem, most, &mut Search::new(&problem, most <= 1, self.budget).hasty())
    }

    /// Returns the choice without any redistributed input, not even for free.
    ///
    /// Fails if no strategy takes the inputs as they are; the error names the axis, the reason and the
    /// cheapest alternatives.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_ops::{propagate::{Operand, Propagator}, rules::Op};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let mm = Op::new("mm", &"mk,kn->mn".parse()?, &[&[64, 32], &[32, 16]])?;
    /// let of = |shape: &[usize], p: &str| Sharding::parse(&mesh, shape, p).map(|s| Operand::new(DType::F32, s));
    /// let inputs = [of(&[64, 32], "S(0),R")?, of(&[32, 16], "R,S(0)")?];
    /// let error = Propagator::new().explicit(&mm, &mesh, &inputs).unwrap_err();
    /// assert_eq!(error.code(), "needs_redistribute");
    /// assert!(error.to_string().starts_with(
    ///     "mm of f32[64,32] [S(0),R] on dp=2,tp=4 and f32[32,16] [R,S(0)] on dp=2,tp=4: \
    ///      along tp the inputs are R,S(0), and no strategy accepts these"
    /// ));
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn explicit(&self, op: &Op, mesh: &Mesh, inputs: &[Operand]) -> Result<OpSharding, Error> {
        let found = self.as_they_are(op, mesh, inputs)?;
        found.ok_or_else(|| match Problem::new(&self.planner, op, mesh, inputs, &[], Stays::All) {
            Ok(problem) => refusal::needs_redistribute(self, &problem, op, mesh, inputs),
            Err(e) => e,
        })
    }

    /// Returns the choice without any redistributed input; `None` if no strategy takes them as they are.
    pub(super) fn as_they_are(
        &self,
        op: &Op,
        mesh: &Mesh,
        inputs: &[Operand],
    ) -> Result<Option<OpSharding>, Error> {
        let problem = Problem::new(&self.planner, op, mesh, inputs, &[], Stays::All)?;
        let mut search = Search::new(&problem, true, self.budget);
        search.next_best().map(|found| chosen(&problem, &mut search, &found)).transpose()
    }
}

/// Returns at most `most` best choices.
fn best(problem: &Problem<'_>, most: usize, search: &mut Search<'_, '_>) -> Result<Vec<OpSharding>, Error> {
    let mut out: Vec<OpSharding> = Vec::new();
    while out.len() < most.max(1) {
        let Some(found) = search.next_best() else { break };
        let choice = chosen(problem, search, &found)?;
        if !out.iter().any(|c| c.inputs == choice.inputs && c.outputs == choice.outputs) {
            out.push(choice);
        }
    }
    Ok(out)
}

/// Returns the choice of a path.
fn chosen(problem: &Problem<'_>, search: &mut Search<'_, '_>, found: &Found) -> Result<OpSharding, Error> {
    let gone = || Error::Unsupported { reason: "a path without targets".to_owned() };
    let mut targets = Vec::with_capacity(problem.inputs.len());
    // With an upper bound of the cost, the planner may find a better plan within the same budget.
    let mut saved_us = 0.0;
    for (i, a) in problem.inputs.iter().enumerate() {
        let target = search.target(&found.path, i).ok_or_else(gone)?;
        let plan = if target.changed {
            let limit = target.most.unwrap_or(u64::MAX);
            let plan = problem.planner.plan_within(a.source, &target.sharding, a.dtype, limit)?;
            if plan.is_budget_exhausted() && limit < u64::MAX {
                saved_us += (limit as f64 / 1e6 - plan.cost_us()) * a.count as f64;
            }
            Some(Arc::new(plan))
        } else {
            None
        };
        targets.push((target.sharding.clone(), plan));
    }
    let (inputs, plans) = problem.alike.iter().map(|&a| targets[usize::from(a)].clone()).unzip();
    let made = search.made(&found.path).ok_or_else(gone)?;
    let (outputs, output_plans) = made.finish(problem)?;
    let (mut strategies, mut regions) = (Vec::new(), Vec::new());
    if !problem.op.is_view() {
        for (slot, &row) in found.path.iter().enumerate() {
            let row = problem.rows[slot][usize::from(row)];
            let bound = problem.bound.get();
            let row = &bound.rows[usize::from(row.row)];
            strategies.push((problem.slots[slot], bound.strategy(&row.entries, problem.alike.len())));
            regions.push(row.region);
        }
    }
    let cost_us = found.picoseconds as f64 / 1e6 - saved_us;
    let exhausted = search.effort.exhausted;
    Ok(OpSharding { inputs, plans, outputs, output_plans, strategies, regions, cost_us, exhausted })
}
