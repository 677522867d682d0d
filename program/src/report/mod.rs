//! What a program communicates, computes and holds, read off its items without a tensor.
//!
//! # Passes
//!
//! Items are of one of three passes, by what needs them:
//!
//! ```text
//! forward    above `no_grad`, or all where nothing is marked
//! backward   below, and a gradient that was asked for needs it: dv below `no_grad`, where v above has its type's gradient
//! update     below, and no gradient needs it
//! ```
//!
//! # Each byte once
//!
//! A move knows the plan of its gradient. In a program whose gradients are statements, that plan is carried out by a move of
//! its own below `no_grad`, and counting both would count it twice. So what is counted is
//!
//! ```text
//! gradients written    the forward plan of every item, in the pass of the item; no backward plan
//! none written         the forward plan of every item, and the backward plans: what a gradient would do
//! ```
//!
//! A move below `no_grad` that carries out the backward plan of one above (`dv` for `v`, between the same two shardings) is
//! told as the backward of that one and has no row of its own. A move whose gradient nobody asked for has no backward then.
//! Totals are the sums over rows either way.
//!
//! # Bytes at hand
//!
//! [`Peak`] says what is held when. Bytes are those of the worst rank, value by value: exact where one rank has the largest
//! shard of all, as in chunks, and else an upper bound.
//!
//! # Several meshes
//!
//! A rank outside of a mesh holds nothing of what is there and runs none of its ops. So operations and bytes at hand are added up for
//! each combination of meshes that some rank is in, and told of the combination with most. Bytes of moves are those of the worst rank
//! of each move, wherever that is.

mod build;
mod over;
mod peak;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_planner::StepOp;
use reshard_sharding::ShardingType;

use crate::Meshes;

pub(crate) use build::{classes, computing_us, local_bytes};
pub use over::CommScope;
pub(crate) use peak::{END, Lives, Walk};
pub use peak::{Peak, ValueClass};

/// When an item runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// What is differentiated, or would be.
    Forward,
    /// What makes the gradients that were asked for.
    Backward,
    /// What is made of gradients.
    Update,
}

impl Pass {
    /// All, in order.
    pub const ALL: [Pass; 3] = [Pass::Forward, Pass::Backward, Pass::Update];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Pass::Forward => "forward",
            Pass::Backward => "backward",
            Pass::Update => "update",
        }
    }
}

/// One of something for each pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerPass<T> {
    /// That of the forward pass.
    pub forward: T,
    /// That of the backward pass.
    pub backward: T,
    /// That of the update.
    pub update: T,
}

impl<T> PerPass<T> {
    /// That of a pass.
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

/// What communication is and costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommCost {
    /// In how many steps ranks talk to each other.
    pub steps: usize,
    /// Bytes that the worst rank receives.
    pub received_bytes: u64,
    /// The time that the cost model gives it, in microseconds.
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
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Who holds it, and its gradient.
    pub ty: Arc<ShardingType>,
    /// The type as the text says it, with the name of its mesh.
    pub text: String,
    /// What it is for.
    pub class: ValueClass,
    /// When it is made; inputs are there before.
    pub pass: Pass,
}

/// A step of a move in which ranks talk to each other.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// When.
    pub pass: Pass,
    /// What kind of operation.
    pub op: StepOp,
    /// The axes over which it runs, or the meshes between which.
    pub over: CommScope,
    /// The ranks that talk to each other, as a layout.
    pub group: String,
    /// What it costs; one step.
    pub traffic: CommCost,
}

/// A move of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct RedistributionReport {
    /// The value that is moved, as the text calls it.
    pub value: String,
    /// Where: the first result of the op that takes it so, or what the text calls the moved value.
    pub consumer: String,
    /// The name of what is made.
    pub result: String,
    /// What it was.
    pub from: Arc<ShardingType>,
    /// What it becomes.
    pub to: Arc<ShardingType>,
    /// Both as the text says them, with the names of their meshes; without gradients where none is moved.
    pub texts: [String; 2],
    /// What it communicates; none in a pass in which nothing of it runs.
    pub traffic: PerPass<Option<CommCost>>,
    /// Its communicating steps, in all passes.
    pub steps: Vec<StepReport>,
}

impl RedistributionReport {
    /// Whether ranks talk to each other for it in any pass.
    pub fn communicates(&self) -> bool {
        !self.steps.is_empty()
    }
}

/// What a program communicates, computes and holds.
///
/// ```
/// use reshard_program::{Elaborator, Graph, Rates};
/// let graph: Graph = "
///     mesh tp=4
///     x: f32[8,2,16] I
///     up: f32[16,64] S(1)
///     down: f32[64,16] S(0)
///     h = sbh,hi->sbi(x, up)
///     y: I = sbi,ih->sbh(h, down)
/// ".parse()?;
/// let report = Elaborator::new().elaborate(&graph)?.report(&Rates::uniform());
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
    /// The meshes.
    pub meshes: Meshes,
    /// The values, in the order in which they are made.
    pub values: Vec<ValueReport>,
    /// The moves, in the order in which they are first carried out.
    pub redistributions: Vec<RedistributionReport>,
    /// What all moves communicate.
    pub traffic: PerPass<CommCost>,
    /// What the steps over some axes communicate; of each step its worst rank, so that axes may have more than all moves.
    pub by_axes: BTreeMap<CommScope, PerPass<CommCost>>,
    /// Operations of the rank with most of them in the pass; backward, where it is not written, as many again for each operand that has
    /// a gradient.
    pub operations: PerPass<f64>,
    /// The time of these, and of what they read and write, in microseconds.
    pub compute_us: PerPass<f64>,
    /// The most bytes at hand at a time.
    pub peak: Peak,
    /// Whether backward is written; where it is not, it is what a gradient would do.
    pub has_explicit_backward: bool,
    /// By how much the choices may cost more than the cheapest, in microseconds.
    pub gap_us: f64,
}
