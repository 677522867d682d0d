//! What a rank does, as others see it: which ops on which shapes, and which exchanges with whom.
//!
//! ```text
//! Schedule::trace    read off the list without types
//! Program::trace     found item by item, of types, meshes and plans
//! ```
//!
//! Law: both are the same on every rank, also of a program that was [elaborated](crate::Elaborator) again, item by item, of what this one
//! [says](crate::Program::graph). What leaves all bytes where they are is in neither, and what a rank copies for itself in a
//! move neither.

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

/// A tensor that an op takes or makes on a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOperand {
    /// What the program calls it.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The shape of what the rank holds.
    pub shape: Vec<usize>,
}

/// Something that a rank does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It runs an op on what it holds.
    Call {
        /// What is called.
        call: OpCall,
        /// Its operands.
        takes: Vec<TraceOperand>,
        /// Its results.
        makes: Vec<TraceOperand>,
    },
    /// It exchanges something with others.
    Exchange {
        /// What kind of operation.
        op: StepOp,
        /// Over which axes, or between which meshes.
        over: CommScope,
        /// The ranks that take part together, this one among them, ascending.
        members: Vec<usize>,
        /// What is moved, and what that becomes; of a bucket all of them.
        values: Vec<(String, String)>,
        /// The bytes that this rank receives.
        received_bytes: u64,
    },
}

impl Schedule {
    /// What the rank does: calls, and exchanges where they are waited for.
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
    /// What a rank does, item by item, by its types and plans.
    ///
    /// ```
    /// use reshard_program::{Program, schedule::Options};
    /// let program: Program = "mesh dp=2\nx: f32[8,4] S(0)\nt = sum(x, dims=[0])\ns: R = t".parse()?;
    /// let typed = program.trace(1)?;
    /// assert_eq!(typed, program.compile(1, &Options::default())?.trace());
    /// assert_eq!(typed.len(), 2);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Fails for a rank that the first mesh has not.
    pub fn trace(&self, rank: usize) -> Result<Vec<Event>, Error> {
        if !self.mesh().contains(rank) {
            return Err(refused(format!("there is no rank {rank} in mesh {}", self.mesh())));
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

/// The steps of a plan in which a rank has a part and talks to others.
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
            received_bytes: elements.saturating_mul(plan.item_bytes() as u64),
        });
    }
    Ok(())
}
