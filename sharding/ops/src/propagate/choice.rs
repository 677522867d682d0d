//! The result of a propagation.

use core::fmt;
use std::sync::Arc;

use crate::propagate::operand::Operand;
use crate::rules::Strategy;
use reshard_planner::Plan;
use reshard_sharding::{Sharding, SubAxis};

/// A strategy for every axis, with the shardings of inputs and outputs.
#[derive(Clone, Debug)]
pub struct OpSharding {
    /// The required sharding of each input.
    pub inputs: Vec<Sharding>,
    /// The plan for each input; `None` for one that stays as it is.
    pub plans: Vec<Option<Arc<Plan>>>,
    /// The sharding of each output, after its constraint.
    pub outputs: Vec<Sharding>,
    /// The plan of each output to its constraint; `None` if it satisfies it already.
    pub output_plans: Vec<Option<Arc<Plan>>>,
    /// The strategy of each (sub-)axis with more than one rank; none for a view.
    pub strategies: Vec<(SubAxis, Strategy)>,
    /// For each of them, `true` if the op has to know its region.
    pub(super) regions: Vec<bool>,
    /// The total cost in microseconds: all plans, and the penalties of outputs that are not as preferred.
    pub cost_us: f64,
    pub(super) exhausted: bool,
}

impl OpSharding {
    /// Every plan with its operand, inputs' first.
    pub fn redistributions(&self) -> impl Iterator<Item = (OperandIndex, &Plan)> {
        let inputs = (0..self.plans.len()).map(OperandIndex::Input);
        let outputs = (0..self.output_plans.len()).map(OperandIndex::Output);
        inputs.chain(outputs).filter_map(|operand| Some((operand, self.plan(operand)?)))
    }

    /// Returns the plan of an operand; `None` for one that is not redistributed or does not exist.
    #[doc(hidden)]
    pub fn plan(&self, operand: OperandIndex) -> Option<&Plan> {
        match operand {
            OperandIndex::Input(i) => self.plans.get(i)?.as_deref(),
            OperandIndex::Output(i) => self.output_plans.get(i)?.as_deref(),
        }
    }

    /// Returns the sharding of each output as the op computes it, before its constraint.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_ops::{propagate::{OutputConstraint, Operand, Propagator}, rules::Op};
    /// let mesh: Mesh = "tp=4".parse()?;
    /// let mm = Op::new("mm", &"mk,kn->mn".parse()?, &[&[64, 32], &[32, 16]])?;
    /// let of = |shape: &[usize], p: &str| Sharding::parse(&mesh, shape, p).map(|s| Operand::new(DType::F32, s));
    /// let inputs = [of(&[64, 32], "S(1)")?, of(&[32, 16], "S(0)")?];
    /// let replicated = OutputConstraint::Exactly(Sharding::replicated(&mesh, &[64, 16])?);
    /// let choice = Propagator::new().propagate(&mm, &mesh, &inputs, &[replicated])?;
    /// assert_eq!(choice.computed().map(ToString::to_string).collect::<Vec<_>>(), ["P(sum)"]);
    /// assert_eq!(choice.outputs[0].to_string(), "R");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn computed(&self) -> impl Iterator<Item = &Sharding> {
        self.outputs.iter().zip(&self.output_plans).map(|(out, plan)| plan.as_ref().map_or(out, |p| p.from()))
    }

    /// Returns the (sub-)axes for whose strategy the op has to know its region.
    ///
    /// A region is the rank's part of the whole tensors. Without such axes, every rank may run the op on its
    /// shards as if they were whole tensors.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_ops::{propagate::{Operand, Propagator}, rules::OpTable};
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let embedding = OpTable::standard().op(&"embedding".parse()?, &[&[64, 32], &[16]])?;
    /// let of = |shape: &[usize], p: &str| Sharding::parse(&mesh, shape, p).map(|s| Operand::new(DType::F32, s));
    /// // The table is sharded along its words over tp, and the batch over dp, so a rank needs to know its words.
    /// let inputs = [of(&[64, 32], "R,S(0)")?, of(&[16], "S(0),R")?];
    /// let choice = Propagator::new().propagate(&embedding, &mesh, &inputs, &[])?;
    /// assert_eq!(choice.outputs[0].to_string(), "S(0),P(sum)");
    /// assert_eq!(choice.regions().map(|axis| axis.printed(mesh.axes())).collect::<Vec<_>>(), ["tp"]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn regions(&self) -> impl Iterator<Item = SubAxis> {
        self.strategies.iter().zip(&self.regions).filter(|(_, region)| **region).map(|((axis, _), _)| *axis)
    }

    /// Returns `true` if a [budget](crate::propagate::Propagator::with_budget) was exhausted.
    ///
    /// That is the budget of the search over strategies or of a plan. The choice is then the best one found,
    /// and not certainly the cheapest.
    pub fn is_budget_exhausted(&self) -> bool {
        self.exhausted || self.redistributions().any(|(_, plan)| plan.is_budget_exhausted())
    }

    /// The number of communicating steps of all plans.
    #[doc(hidden)]
    pub fn communicating_steps(&self) -> usize {
        self.redistributions().map(|(_, p)| p.communicating_steps()).sum()
    }

    /// The bytes that the worst rank of each plan receives, added up.
    pub fn received_bytes(&self) -> u64 {
        self.redistributions().map(|(_, p)| p.received_bytes()).sum()
    }

    /// Returns one line for each input: its current and its required sharding.
    #[doc(hidden)]
    pub fn describe(&self, inputs: &[Operand]) -> Vec<String> {
        let line = |(i, (x, to)): (usize, (&Operand, &Sharding))| match &self.plans[i] {
            None => format!("input {i}   {x}   stays"),
            Some(plan) => format!(
                "input {i}   {x}   -> [{to}]   {:.1} us, {} bytes",
                plan.cost_us(),
                plan.received_bytes()
            ),
        };
        inputs.iter().zip(&self.inputs).enumerate().map(line).collect()
    }
}

/// An operand of an op by its number: an input, before the op, or an output, after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandIndex {
    /// This input, counted from 0.
    Input(usize),
    /// This output, counted from 0.
    Output(usize),
}

impl fmt::Display for OperandIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperandIndex::Input(i) => write!(f, "input {i}"),
            OperandIndex::Output(i) => write!(f, "output {i}"),
        }
    }
}
