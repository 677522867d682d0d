//! Steps: one collective or local operation each, with the motion that executes it.

use core::fmt;
use reshard_layout::InlineVec;
use std::sync::Arc;

use reshard_layout::{AxisStride, Mode};

use crate::message::Reduce;
use crate::op::StepOp;
use crate::regions::intersection::Intersection;
use reshard_sharding::{GroupPattern, ReduceOp, Sharding, SubAxis};

/// The op of a step and its motion, as one value so that they cannot disagree.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Slice(Moves),
    ZeroFill(Moves),
    AllGather(Moves),
    AllToAll(Moves),
    Exchange(Moves),
    /// Every rank gets the reduction of its part.
    ReduceScatter(Moves, Reduction),
    /// The same, as an exchange of all partial values, which every rank combines in rank order.
    OrderedReduce(Moves, Reduction),
    /// Every rank reduces a block of the local buffer, and all gather the blocks.
    AllReduce(Reduction),
    /// A transposed step between the cotangent shardings.
    Transposed(Box<Transposed>),
}

impl Action {
    /// Returns the op that is printed: an ordered reduction is an exchange.
    pub(crate) fn op(&self) -> StepOp {
        match self {
            Action::Slice(_) => StepOp::Slice,
            Action::ZeroFill(_) => StepOp::ZeroFill,
            Action::AllGather(_) => StepOp::AllGather,
            Action::AllToAll(_) => StepOp::AllToAll,
            Action::Exchange(_) | Action::OrderedReduce(..) => StepOp::Exchange,
            Action::ReduceScatter(..) => StepOp::ReduceScatter,
            Action::AllReduce(_) => StepOp::AllReduce,
            Action::Transposed(turned) => match turned.of.op() {
                StepOp::Slice if turned.fills => StepOp::ZeroFill,
                StepOp::ZeroFill if !turned.fills => StepOp::Slice,
                StepOp::AllGather => StepOp::ReduceScatter,
                StepOp::ReduceScatter => StepOp::AllGather,
                // Replicas that become partial are filled in both directions, and exchanged blocks are an
                // exchange in both.
                op @ (StepOp::Slice
                | StepOp::ZeroFill
                | StepOp::AllReduce
                | StepOp::AllToAll
                | StepOp::Exchange) => op,
            },
        }
    }
}

/// A step from the cotangent sharding of `after` to that of `before`, to be executed transposed.
///
/// Senders receive, and values that arrive at one element are added.
#[derive(Clone, Debug)]
pub(crate) struct Transposed {
    pub(crate) of: Step,
    /// `true` if an element of some rank's target receives several partial values.
    pub(crate) adds: bool,
    /// `true` if an element of some rank's target receives none, or partial values cover only parts of it.
    pub(crate) fills: bool,
}

/// The motion of a step: source and target of each element.
#[derive(Clone, Debug)]
pub(crate) enum Moves {
    /// Digits change their positions.
    Modes {
        zip: Zip,
        /// Digits without a position before, whose source has another digit's value: `(head, tail)`.
        senders: Vec<Mode<(AxisStride, AxisStride)>>,
        /// Digits that become partial by zero-filling.
        terms: Option<Terms>,
    },
    /// Overlapping regions.
    Regions(Box<Intersection>),
}

/// The zipped layouts before and after a step; on the heap, to keep steps small.
pub(crate) type Zip = Vec<Mode<(AxisStride, AxisStride)>>;

/// The modes of axes along which one value becomes partial: one copy of it, and the op's identity.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) op: ReduceOp,
    pub(crate) modes: Vec<Mode<AxisStride>>,
}

/// The modes of axes along which partial values are reduced.
///
/// They combine in the order of the modes' digits, the first slowest.
#[derive(Clone, Debug)]
pub(crate) struct Reduction {
    pub(crate) modes: Vec<Mode<AxisStride>>,
    pub(crate) reduce: Reduce,
}

/// One operation of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// The (sub-)axes of the mesh of `before` that it runs over.
    pub axes: InlineVec<SubAxis, 4>,
    /// The ranks that communicate: the pattern of those axes, or for two meshes the span of both.
    pub group: GroupPattern,
    /// The sharding before it; shared with the step before.
    pub before: Arc<Sharding>,
    /// The sharding after it.
    pub after: Arc<Sharding>,
    /// The most bytes that one rank receives, without those from itself.
    pub received_bytes: u64,
    /// The most bytes that one rank sends, without those to itself.
    pub sent_bytes: u64,
    /// The most bytes that one rank holds: input and output of the step, and its staging.
    pub peak_bytes: u64,
    /// Modelled time of the worst rank, in microseconds; of an exchange in the direction that takes longer.
    pub cost_us: f64,
    pub(crate) action: Arc<Action>,
}

impl Step {
    /// Returns the kind of operation.
    ///
    /// A reduction whose result every member of its group keeps is an all-reduce, in whatever form it is
    /// executed: in blocks, or with all partial values to all ranks where the buffer is too small for blocks.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_planner::{Planner, StepOp};
    /// use reshard_sharding::Sharding;
    /// let mesh = "x=4".parse()?;
    /// let (from, to) = (Sharding::parse(&mesh, &[], "P")?, Sharding::parse(&mesh, &[], "R")?);
    /// let plan = Planner::new().plan(&from, &to, DType::F32)?;
    /// assert_eq!((plan.steps()[0].op(), plan.steps()[0].exchanges()), (StepOp::AllReduce, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn op(&self) -> StepOp {
        if let Action::ReduceScatter(_, reduction) = &*self.action
            && self.all_keep(reduction)
        {
            StepOp::AllReduce
        } else {
            self.action.op()
        }
    }

    /// Returns `true` if it is a [transposed](crate::Plan::transposed) step between the cotangent shardings.
    #[doc(hidden)]
    pub fn is_transposed(&self) -> bool {
        matches!(*self.action, Action::Transposed(_))
    }

    /// Returns `true` if it adds partial values of one element.
    pub(crate) fn adds(&self) -> bool {
        match &*self.action {
            Action::ReduceScatter(..) | Action::OrderedReduce(..) | Action::AllReduce(_) => true,
            Action::Transposed(turned) => turned.adds,
            Action::Slice(_)
            | Action::ZeroFill(_)
            | Action::AllGather(_)
            | Action::AllToAll(_)
            | Action::Exchange(_) => false,
        }
    }

    /// Returns the reduction of partial values in this step, if any.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_planner::Planner;
    /// use reshard_sharding::Sharding;
    /// let mesh = "x=4".parse()?;
    /// let (from, to) = (Sharding::parse(&mesh, &[8], "P(avg)")?, Sharding::parse(&mesh, &[8], "R")?);
    /// let plan = Planner::new().plan(&from, &to, DType::F32)?;
    /// let reduce = plan.steps()[0].reduce().expect("partial values are reduced");
    /// assert_eq!((reduce.op.to_string(), reduce.divisor), ("sum".to_string(), 4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(hidden)]
    pub fn reduce(&self) -> Option<Reduce> {
        match &*self.action {
            Action::ReduceScatter(_, reduction)
            | Action::OrderedReduce(_, reduction)
            | Action::AllReduce(reduction) => Some(reduction.reduce),
            Action::Transposed(turned) => turned.adds.then_some(Reduce { op: ReduceOp::Sum, divisor: 1 }),
            Action::Slice(_)
            | Action::ZeroFill(_)
            | Action::AllGather(_)
            | Action::AllToAll(_)
            | Action::Exchange(_) => None,
        }
    }

    /// Returns the number of exchanges that execute it: two for an all-reduce in blocks, else one.
    #[doc(hidden)]
    pub fn exchanges(&self) -> usize {
        1 + usize::from(matches!(*self.action, Action::AllReduce(_)))
    }

    /// Returns `true` if the step's axes are exactly the reduced ones, and all ranks hold the same after it.
    fn all_keep(&self, reduction: &Reduction) -> bool {
        let size: usize = self.axes.iter().map(|s| s.size).product();
        let terms: i64 = reduction.modes.iter().map(|m| m.extent).product();
        if self.before.mesh() != self.after.mesh() || size as i64 != terms {
            return false;
        }
        let replicated = self.after.replicated_axes();
        self.axes.iter().all(|&s| replicated.iter().any(|r| r.contains(s)))
    }

    /// Returns the axes as text: `tp`, or `tp:(1)2` for a part of one.
    pub fn axis_names(&self) -> Vec<String> {
        let axes = self.before.mesh().axes();
        self.axes
            .iter()
            .map(|sub| {
                let mut text = String::new();
                sub.write(&mut text, axes).expect("writing to a String");
                text
            })
            .collect()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} over {} ({}): {} -> {}",
            self.op(),
            self.axis_names().join(","),
            self.group,
            self.before,
            self.after
        )?;
        write!(f, ", {} B, {:.1} us", self.received_bytes, self.cost_us)
    }
}
