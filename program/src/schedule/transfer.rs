//! Moves as one rank takes part in them: their plans compiled, and where their buffers lie.

use reshard_collectives::CompiledPlan;
use reshard_planner::{Plan, StepOp};

use crate::report::CommScope;
use crate::schedule::ArenaSlice;
use crate::{Error, Meshes};

/// An exchange of a [schedule](super::Schedule): all phases of a move's plan, or of those of a bucket together, on one rank.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The plan, or the [`Batch`](reshard_collectives::Batch) of the bucket's, compiled for the rank.
    pub compiled: CompiledPlan,
    /// Its moves: one, or those of the bucket.
    pub moves: Vec<TransferMember>,
    /// What the rank holds before, of all of them; no bytes if nothing.
    pub source: ArenaSlice,
    /// What it holds after.
    pub target: ArenaSlice,
    /// What lies between phases: [`scratch_bytes`](Compiled::scratch_bytes).
    pub scratch: [ArenaSlice; 2],
    /// What it does, step by step.
    pub steps: Vec<TransferStep>,
}

/// A move of a [`Transfer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferMember {
    /// What is moved, and what that becomes.
    pub values: (String, String),
    /// What the rank holds before, a part of the transfer's source.
    pub source: ArenaSlice,
    /// What it holds after.
    pub target: ArenaSlice,
}

impl Transfer {
    /// What it makes: the names of the targets, `dv, dw`.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.moves.iter().map(|moved| moved.values.1.as_str()).collect();
        names.join(", ")
    }

    /// Whether ranks talk to each other in some step of it.
    pub fn communicates(&self) -> bool {
        self.steps.iter().any(|step| step.op.communicates())
    }
}

/// A step of a transfer that this rank has a part in: of one move, or of those of a bucket between the same ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferStep {
    /// Its number in the plan.
    pub step: usize,
    /// The numbers of its [moves](Transfer::moves).
    pub moves: Vec<usize>,
    /// What kind of operation.
    pub op: StepOp,
    /// Over which axes, or between which meshes.
    pub over: CommScope,
    /// The ranks that take part together, this one among them, ascending.
    pub members: Vec<usize>,
    /// The bytes that this rank receives.
    pub received_bytes: u64,
    /// What it costs by the planner's model, in microseconds; of a bucket what it says of the
    /// bytes of all, as this rank pays it: never more than its moves one after the other, and never less than the dearest.
    pub cost_us: f64,
}

impl TransferStep {
    /// The steps of moves that are one exchange, each compiled by itself: in order, of the same number and members together.
    pub(super) fn of(
        meshes: &Meshes,
        moves: &[(&Plan, CompiledPlan)],
        rank: usize,
    ) -> Result<Vec<TransferStep>, Error> {
        let mut all: Vec<TransferStep> = Vec::new();
        for (n, (plan, compiled)) in moves.iter().enumerate() {
            for step in TransferStep::of_move(meshes, plan, compiled) {
                let same = |known: &&mut TransferStep| {
                    (known.step, known.op, &known.members) == (step.step, step.op, &step.members)
                };
                match all.iter_mut().find(same) {
                    Some(known) => {
                        known.moves.push(n);
                        known.received_bytes += step.received_bytes;
                        known.cost_us += step.cost_us;
                    }
                    None => all.push(TransferStep { moves: vec![n], ..step }),
                }
            }
        }
        for step in all.iter_mut().filter(|step| step.moves.len() > 1) {
            let plans: Vec<(&Plan, usize)> = step.moves.iter().map(|&n| (moves[n].0, step.step)).collect();
            let dearest = plans.iter().map(|(plan, n)| plan.steps()[*n].cost_us).fold(0.0, f64::max);
            step.cost_us = Plan::fused_cost_us(&plans, rank)?.min(step.cost_us).max(dearest);
        }
        all.sort_by_key(|step| step.step);
        Ok(all)
    }

    /// Those of one move: an all-reduce is one, in however many phases.
    fn of_move(meshes: &Meshes, plan: &Plan, compiled: &CompiledPlan) -> Vec<TransferStep> {
        let mut steps: Vec<TransferStep> = Vec::new();
        for exchange in compiled.exchanges() {
            let received = exchange.received_bytes() as u64;
            match steps.last_mut() {
                Some(known) if known.step == exchange.step() => known.received_bytes += received,
                Some(_) | None => {
                    let Some(step) = plan.steps().get(exchange.step()) else { continue };
                    // What a rank copies for itself, others of its group may have nothing of.
                    let alone = [compiled.rank()];
                    let talks = step.op().communicates();
                    steps.push(TransferStep {
                        step: exchange.step(),
                        moves: Vec::new(),
                        op: step.op(),
                        over: CommScope::of(meshes, step),
                        members: if talks { exchange.members().to_vec() } else { alone.to_vec() },
                        received_bytes: received,
                        cost_us: step.cost_us,
                    });
                }
            }
        }
        steps
    }
}
