//! Steps: one collective or local operation each.

use core::fmt;
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::axis::SubAxis;
use crate::redistribute::messages::Motion;
use crate::{Error, Group, Sharding};

/// What kind of operation a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepOp {
    /// Every rank keeps a part of what it holds. Local.
    Slice,
    /// Every rank gets the shards of its group.
    AllGather,
    /// Every rank gets the reduction of its part of the group's terms.
    ReduceScatter,
    /// Every rank gets the reduction of all the group's terms.
    AllReduce,
    /// Every rank sends an equal block to every member of its group.
    AllToAll,
    /// Chosen blocks go to chosen ranks. Of a deterministic planner also all terms of a reduction, to be combined in the
    /// order in which [`Phase::receives`](crate::redistribute::Phase::receives) lists them.
    Exchange,
    /// One copy is kept, the rest is filled with the op's identity: shard or replicate becomes partial. Local.
    ZeroFill,
}

impl StepOp {
    /// All of them.
    pub const ALL: [StepOp; 7] = [
        StepOp::Slice,
        StepOp::AllGather,
        StepOp::ReduceScatter,
        StepOp::AllReduce,
        StepOp::AllToAll,
        StepOp::Exchange,
        StepOp::ZeroFill,
    ];

    /// The name in snake case, such as `all_gather`.
    pub fn as_str(self) -> &'static str {
        match self {
            StepOp::Slice => "slice",
            StepOp::AllGather => "all_gather",
            StepOp::ReduceScatter => "reduce_scatter",
            StepOp::AllReduce => "all_reduce",
            StepOp::AllToAll => "all_to_all",
            StepOp::Exchange => "exchange",
            StepOp::ZeroFill => "zero_fill",
        }
    }

    /// Whether ranks talk to each other in it.
    pub fn communicates(self) -> bool {
        match self {
            StepOp::Slice | StepOp::ZeroFill => false,
            StepOp::AllGather
            | StepOp::ReduceScatter
            | StepOp::AllReduce
            | StepOp::AllToAll
            | StepOp::Exchange => true,
        }
    }
}

impl fmt::Display for StepOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StepOp {
    type Err = Error;
    fn from_str(s: &str) -> Result<StepOp, Error> {
        StepOp::ALL.into_iter().find(|op| op.as_str() == s).ok_or_else(|| Error::Parse {
            what: "step",
            input: s.to_owned(),
            at: 0,
            expected: "slice, all_gather, reduce_scatter, all_reduce, all_to_all, exchange or zero_fill"
                .to_owned(),
        })
    }
}

/// One operation of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// What it does.
    pub op: StepOp,
    /// The (sub-)axes of `before`'s mesh that it runs over.
    pub axes: SmallVec<[SubAxis; 4]>,
    /// The ranks that talk to each other: the pattern of those axes, or for two meshes the span of both.
    pub group: Group,
    /// Who holds what before it; shared with the step before.
    pub before: Arc<Sharding>,
    /// Who holds what after it.
    pub after: Arc<Sharding>,
    /// Bytes that the rank which receives the most receives, without what it sends itself.
    pub received_bytes: u64,
    /// Bytes that the rank which sends the most sends, without what it sends itself.
    pub sent_bytes: u64,
    /// Modelled time, as the worst rank pays it.
    pub cost_us: f64,
    pub(crate) motion: Arc<Motion>,
}

impl Step {
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
            self.op,
            self.axis_names().join(","),
            self.group,
            self.before,
            self.after
        )?;
        write!(f, ", {} B, {:.1} us", self.received_bytes, self.cost_us)
    }
}
