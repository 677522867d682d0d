//! What propagation chose.

use core::fmt;
use std::sync::Arc;

use crate::propagate::operand::Operand;
use crate::rules::Strategy;
use reshard_planner::Plan;
use reshard_sharding::{Sharding, SubAxis};

/// A strategy for every axis, what the inputs become for it, and what comes out.
#[derive(Clone, Debug)]
pub struct Choice {
    /// What each input has to be.
    pub inputs: Vec<Sharding>,
    /// How each input gets there; `None` for one that stays as it is.
    pub plans: Vec<Option<Arc<Plan>>>,
    /// What each output is, after what was wanted of it.
    pub outputs: Vec<Sharding>,
    /// How an output gets to what was wanted of it, where it is not that already.
    pub output_plans: Vec<Option<Arc<Plan>>>,
    /// The strategy of each (sub-)axis with more than one rank; none for a view.
    pub strategies: Vec<(SubAxis, Strategy)>,
    /// What all plans cost together, and the penalty of outputs that are not as preferred, in microseconds.
    pub cost_us: f64,
}

impl Choice {
    /// Every plan with its operand: input or output, and its number.
    pub fn moves(&self) -> impl Iterator<Item = (Side, usize, &Plan)> {
        let of = |side: Side, plans: &'_ [Option<Arc<Plan>>]| -> Vec<(Side, usize)> {
            plans.iter().enumerate().filter(|(_, p)| p.is_some()).map(|(i, _)| (side, i)).collect()
        };
        let mut list = of(Side::Input, &self.plans);
        list.extend(of(Side::Output, &self.output_plans));
        list.into_iter().filter_map(|(side, i)| {
            let plans = match side {
                Side::Input => &self.plans,
                Side::Output => &self.output_plans,
            };
            plans[i].as_deref().map(|p| (side, i, p))
        })
    }

    /// How many steps of all plans communicate.
    pub fn communicating_steps(&self) -> usize {
        self.moves().map(|(_, _, p)| p.communicating_steps()).sum()
    }

    /// The bytes that the worst rank of each plan receives, added up.
    pub fn received_bytes(&self) -> u64 {
        self.moves().map(|(_, _, p)| p.received_bytes()).sum()
    }

    /// One line for each input: what it is and what it becomes.
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

/// Whether a plan is one of an input or of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Of an input, before the op.
    Input,
    /// Of an output, after it.
    Output,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Input => "input",
            Side::Output => "output",
        })
    }
}
