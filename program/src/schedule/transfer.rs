//! Redistributions on one rank: their compiled plans, and the offsets of their buffers.

use reshard_collectives::CompiledPlan;
use reshard_planner::{Plan, StepOp};

use crate::report::CommScope;
use crate::schedule::ArenaSlice;
use crate::{Error, Meshes};

/// An exchange of a [schedule](super::Schedule): a redistribution or bucket on one rank, in all phases.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The plan, or the [`Batch`](reshard_collectives::Batch) of a bucket, compiled for the rank.
    pub compiled: CompiledPlan,
    /// Its redistributions: one, or those of the bucket.
    pub moves: Vec<TransferMember>,
    /// The rank's bytes before it, over all redistributions; empty if there are none.
    pub source: ArenaSlice,
    /// The rank's bytes after it.
    pub target: ArenaSlice,
    /// The buffers between phases: [`scratch_bytes`](CompiledPlan::scratch_bytes).
    pub scratch: [ArenaSlice; 2],
    /// The steps, in order.
    pub steps: Vec<TransferStep>,
}

/// A redistribution of a [`Transfer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferMember {
    /// The names of the source and the result.
    pub values: (String, String),
    /// The rank's bytes before it, a part of the transfer's source.
    pub source: ArenaSlice,
    /// The rank's bytes after it.
    pub target: ArenaSlice,
}

impl Transfer {
    /// Returns the names of the results: `dv, dw`.
    #[doc(hidden)]
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.moves.iter().map(|moved| moved.values.1.as_str()).collect();
        names.join(", ")
    }

    /// Returns `true` if some step communicates.
    #[doc(hidden)]
    pub fn communicates(&self) -> bool {
        self.steps.iter().any(|step| step.op.communicates())
    }
}

/// A step of a transfer on this rank: of one redistribution, or of all in a bucket between the same ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferStep {
    /// The number in the plan.
    pub step: usize,
    /// The indices of its [redistributions](Transfer::moves).
    pub moves: Vec<usize>,
    /// The kind of operation.
    pub op: StepOp,
    /// The mesh axes, or the meshes between which.
    pub over: CommScope,
    /// The participating ranks including this one, ascending.
    pub members: Vec<usize>,
    /// The bytes that this rank receives.
    pub received_bytes: u64,
    /// The modelled cost, in microseconds.
    ///
    /// For a bucket it is the cost of all its bytes for this rank: at most the sum of its redistributions,
    /// and at least the most expensive of them.
    pub cost_us: f64,
}

impl TransferStep {
    /// Returns the steps of redistributions fused into one exchange, each compiled by itself.
    ///
    /// Steps are in order; those with the same number and members are fused.
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

    /// Returns the steps of one redistribution; an all-reduce is one step, in however many phases.
    fn of_move(meshes: &Meshes, plan: &Plan, compiled: &CompiledPlan) -> Vec<TransferStep> {
        let mut steps: Vec<TransferStep> = Vec::new();
        for exchange in compiled.exchanges() {
            let received = exchange.received_bytes() as u64;
            match steps.last_mut() {
                Some(known) if known.step == exchange.step() => known.received_bytes += received,
                Some(_) | None => {
                    let Some(step) = plan.steps().get(exchange.step()) else { continue };
                    // For a local copy the rank is alone: others of its group may hold nothing.
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
