//! Reports on the communication, computing and memory of a program, without running it.
//!
//! # Passes
//!
//! Each statement is in one of three passes, by its consumers:
//!
//! ```text
//! forward    above `no_grad`, or everything without that line
//! backward   below it, and a requested gradient needs it: dv below `no_grad`, if the type of v above has a gradient
//! update     below it, and no gradient needs it
//! ```
//!
//! # Each byte once
//!
//! A redistribution stores the plan of its gradient. In a program whose gradients are statements, that plan
//! is executed by a separate redistribution below `no_grad`, and counting both would count it twice. So the
//! count is
//!
//! ```text
//! explicit backward    the forward plan of every statement, in the pass of the statement; no backward plan
//! no gradients         the forward plan of every statement, and the backward plans that a gradient would need
//! ```
//!
//! A redistribution below `no_grad` that executes the backward plan of one above (`dv` for `v`, between the
//! same two shardings) is reported as the backward of that one and has no row. A redistribution whose
//! gradient is not requested then has no backward. Totals are the sums over rows in either case.
//!
//! # Live memory
//!
//! [`Peak`] defines the lifetimes. Bytes are those of the worst rank, value by value: exact if one rank has
//! the largest shard of all values, as with chunks, and otherwise an upper bound.
//!
//! # Several meshes
//!
//! A rank outside a mesh holds nothing of the values on it and runs none of its ops. So operations and live
//! bytes are added up for each combination of meshes that some rank is in, and the combination with the most
//! is reported. Bytes of redistributions are those of the worst rank of each redistribution, wherever it is.

mod build;
mod notes;
mod over;
mod peak;
mod text;

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_planner::StepOp;
use reshard_sharding::ShardingType;

use crate::Meshes;

pub(crate) use build::{classes, local_bytes};
pub use notes::Note;
pub use over::CommScope;
pub(crate) use peak::{END, Lives, Walk};
pub use peak::{Peak, ValueClass};

/// The pass in which a statement runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// Statements that are differentiated, or would be.
    Forward,
    /// Statements that compute requested gradients.
    Backward,
    /// Statements that use gradients.
    Update,
}

impl Pass {
    /// All passes, in order.
    #[doc(hidden)]
    pub const ALL: [Pass; 3] = [Pass::Forward, Pass::Backward, Pass::Update];

    /// Returns its name.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Pass::Forward => "forward",
            Pass::Backward => "backward",
            Pass::Update => "update",
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A value for each pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[doc(hidden)]
pub struct PerPass<T> {
    /// The value for the forward pass.
    pub forward: T,
    /// The value for the backward pass.
    pub backward: T,
    /// The value for the update.
    pub update: T,
}

impl<T> PerPass<T> {
    /// Returns the value for a pass.
    pub fn of(&self, pass: Pass) -> &T {
        match pass {
            Pass::Forward => &self.forward,
            Pass::Backward => &self.backward,
            Pass::Update => &self.update,
        }
    }

    fn of_mut(&mut self, pass: Pass) -> &mut T {
        match pass {
            Pass::Forward => &mut self.forward,
            Pass::Backward => &mut self.backward,
            Pass::Update => &mut self.update,
        }
    }
}

/// The amount and the cost of communication.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommCost {
    /// The number of communicating steps.
    pub steps: usize,
    /// Bytes that the worst rank receives.
    pub received_bytes: u64,
    /// The modelled time, in microseconds.
    pub cost_us: f64,
}

impl CommCost {
    fn add(&mut self, other: CommCost) {
        self.steps += other.steps;
        self.received_bytes = self.received_bytes.saturating_add(other.received_bytes);
        self.cost_us += other.cost_us;
    }
}

/// A value of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueReport {
    /// The name in the program text.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The shardings of the value and its gradient.
    pub ty: Arc<ShardingType>,
    /// The type in text form, with the name of its mesh.
    pub text: String,
    /// The sharding of the value alone in text form.
    pub(crate) value_text: String,
    /// The purpose of the value.
    pub class: ValueClass,
    /// The pass in which it is computed; inputs exist before.
    pub pass: Pass,
}

/// A communicating step of a redistribution.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// The pass in which it runs.
    pub pass: Pass,
    /// The kind of operation.
    pub op: StepOp,
    /// The mesh axes that it communicates over, or the meshes between which.
    pub over: CommScope,
    /// The communicating ranks, as a layout.
    pub group: String,
    /// Its cost; counts as one step.
    pub traffic: CommCost,
}

/// A redistribution of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct RedistributionReport {
    /// The source value, by its name in the text.
    pub value: String,
    /// The consumer: the first result of the op that takes it, or the redistributed value's name in the text.
    pub consumer: String,
    /// The name of the result.
    pub result: String,
    /// The source type.
    pub from: Arc<ShardingType>,
    /// The target type.
    pub to: Arc<ShardingType>,
    /// Both types in text form, with the names of their meshes.
    ///
    /// Gradients are omitted if no gradient is redistributed.
    pub texts: [String; 2],
    /// The communication, by pass; `None` for a pass in which nothing of it runs.
    pub traffic: PerPass<Option<CommCost>>,
    /// Its communicating steps in all passes, in order.
    pub steps: Vec<StepReport>,
}

impl RedistributionReport {
    /// Returns `true` if it communicates in any pass.
    #[doc(hidden)]
    pub fn communicates(&self) -> bool {
        !self.steps.is_empty()
    }
}

/// A report on the communication, computing and memory of a program.
///
/// ```
/// use reshard_program::{ShardingSolver, Graph, ComputeRates};
/// let graph: Graph = "
///     mesh tp=4
///     x: f32[8,2,16] I
///     up: f32[16,64] S(1)
///     down: f32[64,16] S(0)
///     h = sbh,hi->sbi(x, up)
///     y: I = sbi,ih->sbh(h, down)
/// ".parse()?;
/// let report = ShardingSolver::new().solve(&graph)?.report(&ComputeRates::uniform());
/// // An all_reduce each way, of 1536 bytes.
/// let traffic = report.over("tp");
/// assert_eq!((traffic.forward.steps, traffic.backward.steps), (1, 1));
/// assert_eq!((traffic.forward.received_bytes, traffic.backward.received_bytes), (1536, 1536));
/// // Two products of 2 x 16 x 16 x 16 operations a rank, and two of each backward.
/// assert_eq!((report.operations.forward, report.operations.backward), (16384.0, 32768.0));
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The meshes of the program.
    pub meshes: Meshes,
    /// The values, in the order in which they are computed.
    pub values: Vec<ValueReport>,
    /// The redistributions, in the order of first execution.
    pub redistributions: Vec<RedistributionReport>,
    /// The communication of all redistributions.
    pub traffic: PerPass<CommCost>,
    /// The communication by mesh axes.
    ///
    /// Each step counts for its worst rank, so the sum over axes may exceed the total.
    pub by_axes: BTreeMap<CommScope, PerPass<CommCost>>,
    /// The operations of the rank with the most in each pass.
    ///
    /// If the program states no backward, it counts as many again for each operand that has a gradient.
    pub operations: PerPass<f64>,
    /// The time of these operations and of their memory traffic, in microseconds.
    pub compute_us: PerPass<f64>,
    /// The peak memory.
    pub peak: Peak,
    /// `true` if the program states its backward; otherwise backward is the cost a gradient would have.
    pub has_explicit_backward: bool,
    /// The optimality gap: the maximum cost above the cheapest program, in microseconds.
    ///
    /// It is 0 if implicit redistributions were [denied](crate::ImplicitRedistribution::Deny).
    pub optimality_gap_us: f64,
    /// Facts that no total shows, such as an axis whose ranks all compute the same.
    pub notes: Vec<Note>,
}

impl Report {
    /// Returns the time of communication and computing in all passes, in microseconds.
    ///
    /// ```
    /// use reshard_program::{ComputeRates, Program};
    /// let program: Program = "mesh x=2\nx: f32[8] S(0)\ny: R = x".parse()?;
    /// let report = program.report(&ComputeRates::uniform());
    /// assert_eq!(report.total_us(), report.traffic.forward.cost_us + report.traffic.backward.cost_us);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn total_us(&self) -> f64 {
        Pass::ALL.iter().map(|&pass| self.traffic.of(pass).cost_us + self.compute_us.of(pass)).sum()
    }
}
