//! Steps: one collective or local operation each, with the motion that carries it out.

use core::fmt;
use reshard_layout::InlineVec;
use std::sync::Arc;

use reshard_layout::{AxisStride, Mode};

use crate::message::Reduce;
use crate::op::StepOp;
use crate::regions::intersection::Intersection;
use reshard_sharding::{GroupPattern, ReduceOp, Sharding, SubAxis};

/// What a step does, and to what: the op and its motion are one value, so they cannot disagree.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Slice(Moves),
    ZeroFill(Moves),
    AllGather(Moves),
    AllToAll(Moves),
    Exchange(Moves),
    /// Every rank gets the reduction of its part.
    ReduceScatter(Moves, Reduction),
    /// The same, as an exchange of all terms that every rank combines in their order.
    OrderedReduce(Moves, Reduction),
    /// Every rank reduces a piece of the local buffer, and all gather the pieces.
    AllReduce(Reduction),
    /// A step between the duals, turned round.
    Transposed(Box<Transposed>),
}

impl Action {
    /// What is printed: an ordered reduction is an exchange.
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
                // Replicas that become terms are filled either way, and what only changes hands is that both ways.
                op @ (StepOp::Slice
                | StepOp::ZeroFill
                | StepOp::AllReduce
                | StepOp::AllToAll
                | StepOp::Exchange) => op,
            },
        }
    }
}

/// A step from the dual of `after` to the dual of `before`, to be carried out from end to end: whoever sends receives, and what
/// lands together is added.
#[derive(Clone, Debug)]
pub(crate) struct Transposed {
    pub(crate) of: Step,
    /// Whether an element of some rank's target gets several terms.
    pub(crate) adds: bool,
    /// Whether an element of some rank's target gets none, or terms bring parts of it.
    pub(crate) fills: bool,
}

/// Which elements go where.
#[derive(Clone, Debug)]
pub(crate) enum Moves {
    /// Digits change places.
    Modes {
        zip: Zip,
        /// Digits that stand nowhere before and for which the source has another's value: `(head, tail)`.
        senders: Vec<Mode<(AxisStride, AxisStride)>>,
        /// Digits that become terms by zero-filling.
        terms: Option<Terms>,
    },
    /// Regions overlap.
    Regions(Box<Intersection>),
}

/// The layouts before and after a step side by side; on the heap, because steps are moved about.
pub(crate) type Zip = Vec<Mode<(AxisStride, AxisStride)>>;

/// Along these modes of axes what was one value becomes terms: one copy of it, and the op's identity.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) op: ReduceOp,
    pub(crate) modes: Vec<Mode<AxisStride>>,
}

/// The terms along these modes of axes become a value. They combine in the order of the modes' digits, the first slowest.
#[derive(Clone, Debug)]
pub(crate) struct Reduction {
    pub(crate) modes: Vec<Mode<AxisStride>>,
    pub(crate) reduce: Reduce,
}

/// One operation of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// The (sub-)axes of `before`'s mesh that it runs over.
    pub axes: InlineVec<SubAxis, 4>,
    /// The ranks that talk to each other: the pattern of those axes, or for two meshes the span of both.
    pub group: GroupPattern,
    /// Who holds what before it; shared with the step before.
    pub before: Arc<Sharding>,
    /// Who holds what after it.
    pub after: Arc<Sharding>,
    /// Bytes that the rank which receives the most receives, without what it sends itself.
    pub received_bytes: u64,
    /// Bytes that the rank which sends the most sends, without what it sends itself.
    pub sent_bytes: u64,
    /// Bytes that the rank which holds the most holds: what the step reads, what it writes, and its staging.
    pub peak_bytes: u64,
    /// Modelled time, as the worst rank pays it.
    pub cost_us: f64,
    pub(crate) action: Arc<Action>,
}

impl Step {
    /// What kind of operation it is.
    ///
    /// A reduction whose result every member of its group keeps is an all-reduce, however it is carried out: in pieces, or
    /// with all terms to everyone where the buffer is too small for pieces.
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

    /// Whether it is a step between the duals, carried out from end to end (see [`Plan::transposed`](crate::Plan::transposed)).
    pub fn is_transposed(&self) -> bool {
        matches!(*self.action, Action::Transposed(_))
    }

    /// Whether terms of one element meet in it.
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

    /// How terms become a value in it, if they do.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_planner::Planner;
    /// use reshard_sharding::Sharding;
    /// let mesh = "x=4".parse()?;
    /// let (from, to) = (Sharding::parse(&mesh, &[8], "P(avg)")?, Sharding::parse(&mesh, &[8], "R")?);
    /// let plan = Planner::new().plan(&from, &to, DType::F32)?;
    /// let reduce = plan.steps()[0].reduce().expect("terms go away");
    /// assert_eq!((reduce.op.to_string(), reduce.divisor), ("sum".to_string(), 4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// How many exchanges carry it out: two of an all-reduce in pieces, one of anything else.
    pub fn exchanges(&self) -> usize {
        1 + usize::from(matches!(*self.action, Action::AllReduce(_)))
    }

    /// Whether the axes of the step are those of the terms, and all of them hold the same after it.
    fn all_keep(&self, reduction: &Reduction) -> bool {
        let size: usize = self.axes.iter().map(|s| s.size).product();
        let terms: i64 = reduction.modes.iter().map(|m| m.extent).product();
        if self.before.mesh() != self.after.mesh() || size as i64 != terms {
            return false;
        }
        let replicated = self.after.replicated_axes();
        self.axes.iter().all(|&s| replicated.iter().any(|r| r.contains(s)))
    }

    /// The axes as text: `tp`, or `tp:(1)2` for a part of one.
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
