//! A move as one rank takes part in it: its plan compiled, and where its buffers lie.

use reshard_collectives::Compiled;
use reshard_planner::{Plan, StepOp};

use crate::Meshes;
use crate::report::Over;
use crate::schedule::Arg;

/// An exchange of a [schedule](super::Schedule): all phases of a move's plan, on one rank.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The plan, compiled for the rank.
    pub compiled: Compiled,
    /// What is moved, and what that becomes.
    pub values: (String, String),
    /// What the rank holds before; no bytes if nothing.
    pub source: Arg,
    /// What it holds after.
    pub target: Arg,
    /// What lies between phases: [`scratch_bytes`](Compiled::scratch_bytes) of the plan.
    pub scratch: [Arg; 2],
    /// What it does, step by step.
    pub steps: Vec<TransferStep>,
}

/// A step of a transfer that this rank has a part in.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferStep {
    /// Its number in the plan.
    pub step: usize,
    /// What kind of operation.
    pub op: StepOp,
    /// Over which axes, or between which meshes.
    pub over: Over,
    /// The ranks that take part together, this one among them, ascending.
    pub members: Vec<usize>,
    /// The bytes that this rank receives.
    pub received_bytes: u64,
    /// What it costs by the planner's model, in microseconds.
    pub cost_us: f64,
}

impl TransferStep {
    /// The steps of what was compiled: an all-reduce is one, in however many phases.
    pub(super) fn of(meshes: &Meshes, plan: &Plan, compiled: &Compiled) -> Vec<TransferStep> {
        let mut steps: Vec<TransferStep> = Vec::new();
        for exchange in compiled.exchanges() {
            let received = exchange.received_bytes() as u64;
            match steps.last_mut() {
                Some(known) if known.step == exchange.step() => known.received_bytes += received,
                Some(_) | None => {
                    let Some(step) = plan.steps().get(exchange.step()) else { continue };
                    steps.push(TransferStep {
                        step: exchange.step(),
                        op: step.op(),
                        over: Over::of(meshes, step),
                        members: exchange.members().to_vec(),
                        received_bytes: received,
                        cost_us: step.cost_us,
                    });
                }
            }
        }
        steps
    }
}
