//! Traces: the externally visible actions of a rank, which are ops with shapes and exchanges with members.
//!
//! ```text
//! Schedule::trace    from the instruction list, without types
//! Program::trace     statement by statement, from types, meshes and plans
//! ```
//!
//! Tests check that both are equal on every rank. They also are for a program that was
//! [solved](crate::ShardingSolver) from scratch from this one's graph. Neither contains statements that
//! leave all bytes in place, nor local copies of a redistribution.

use reshard_kernels::DType;
use reshard_ops::rules::OpCall;
use reshard_planner::{Plan, StepOp};

use crate::Error;

use crate::graph::ValueId;
use crate::program::{Program, Statement, Value};
use crate::report::CommScope;
use crate::schedule::build::refused;
use crate::schedule::call::called;
use crate::schedule::{Instruction, LocalTensor, Schedule, each_once};

/// An input or output of an op on a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct TraceOperand {
    /// The name in the program.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The shape of the rank's shard.
    pub shape: Vec<usize>,
}

/// An action of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Event {
    /// Runs an op on its shards.
    Call {
        /// The op and its arguments.
        call: OpCall,
        /// Its operands.
        takes: Vec<TraceOperand>,
        /// Its results.
        makes: Vec<TraceOperand>,
    },
    /// Exchanges data with other ranks.
    Exchange {
        /// The kind of operation.
        op: StepOp,
        /// The mesh axes, or the meshes between which.
        over: CommScope,
        /// The participating ranks including this one, ascending.
        members: Vec<usize>,
        /// The source and result of the redistribution; for a bucket, those of all its redistributions.
        values: Vec<(String, String)>,
        /// The bytes that this rank receives.
        received_bytes: u64,
    },
}

impl Schedule {
    /// Returns the trace: calls, and exchanges at their waits.
    #[doc(hidden)]
    pub fn trace(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for instr in &self.instructions {
            match instr {
                Instruction::Call { kernel, args } => {
                    let call = &self.calls[*kernel as usize];
                    let names = &self.names[args.start as usize..args.end as usize];
                    let operand = |(name, tensor): (&String, &LocalTensor)| TraceOperand {
                        name: name.clone(),
                        dtype: tensor.dtype,
                        shape: tensor.shape.clone(),
                    };
                    let (takes, makes) = names.split_at(call.inputs.len());
                    events.push(Event::Call {
                        call: call.call.clone(),
                        takes: takes.iter().zip(&call.inputs).map(operand).collect(),
                        makes: makes.iter().zip(&call.outputs).map(operand).collect(),
                    });
                }
                Instruction::Wait { exchange } => {
                    let transfer = &self.exchanges[*exchange as usize];
                    let steps = transfer.steps.iter().filter(|step| step.op.communicates());
                    events.extend(steps.map(|step| Event::Exchange {
                        op: step.op,
                        over: step.over.clone(),
                        members: step.members.clone(),
                        values: step.moves.iter().map(|&n| transfer.moves[n].values.clone()).collect(),
                        received_bytes: step.received_bytes,
                    }));
                }
                Instruction::Post { .. } => {}
            }
        }
        events
    }
}

impl Program {
    /// Returns the trace of a rank, statement by statement, from types and plans.
    ///
    /// ```
    /// use reshard_program::{Program, schedule::CompileOptions};
    /// let program: Program = "mesh dp=2\nx: f32[8,4] S(0)\nt = sum(x, dims=[0])\ns: R = t".parse()?;
    /// let typed = program.trace(1)?;
    /// assert_eq!(typed, program.compile(1, &CompileOptions::default())?.trace());
    /// assert_eq!(typed.len(), 2);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns an error for a rank outside the first mesh.
    #[doc(hidden)]
    pub fn trace(&self, rank: usize) -> Result<Vec<Event>, Error> {
        if !self.mesh().contains(rank) {
            let mesh = self.mesh();
            return Err(refused(format!(
                "rank {rank} is outside the mesh `{mesh}`, which has {} ranks",
                mesh.size()
            )));
        }
        let program = &*self.lower_comm_dtypes()?;
        let holds = |v: &ValueId| program.get(*v).ty.value.mesh().contains(rank);
        let mut events = Vec::new();
        for item in program.statements() {
            match item {
                Statement::Op { call, is_view: false, inputs, outputs, .. } if outputs.iter().any(holds) => {
                    let values = || inputs.iter().chain(outputs).map(|v| program.get(*v));
                    let tensors: Result<Vec<LocalTensor>, Error> =
                        values().map(|value| LocalTensor::of(value, rank)).collect();
                    let (call, tensors) = called(call, tensors?, inputs.len());
                    let of = |(value, LocalTensor { dtype, shape, .. }): (&Value, LocalTensor)| {
                        TraceOperand { name: value.name.clone(), dtype, shape }
                    };
                    let mut takes: Vec<TraceOperand> = values().zip(tensors).map(of).collect();
                    let makes = takes.split_off(inputs.len());
                    events.push(Event::Call { call, takes, makes });
                }
                Statement::Redistribute { from, to, forward, .. } if holds(from) || holds(to) => {
                    let values = (program.get(*from).name.clone(), program.get(*to).name.clone());
                    exchanged(program, forward, rank, &values, &mut events)?;
                }
                Statement::Input(_)
                | Statement::NoGrad
                | Statement::Op { .. }
                | Statement::Redistribute { .. } => {}
            }
        }
        Ok(events)
    }
}

/// Adds the communicating steps of a plan in which a rank participates.
fn exchanged(
    program: &Program,
    plan: &Plan,
    rank: usize,
    values: &(String, String),
    events: &mut Vec<Event>,
) -> Result<(), Error> {
    for step in plan.steps().iter().filter(|step| step.op().communicates()) {
        let phases = step.phases(rank)?;
        let members = each_once(phases.iter().flat_map(|phase| phase.members.iter().copied()).collect());
        if phases.is_empty() {
            continue;
        }
        let messages = phases.iter().flat_map(|phase| &phase.receives).filter(|message| message.peer != rank);
        let elements = messages.fold(0u64, |sum, message| sum.saturating_add(message.numel() as u64));
        events.push(Event::Exchange {
            op: step.op(),
            over: CommScope::of(program.meshes(), step),
            members,
            values: vec![values.clone()],
            received_bytes: elements.saturating_mul(plan.element_bytes() as u64),
        });
    }
    Ok(())
}
