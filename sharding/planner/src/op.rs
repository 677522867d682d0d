//! The kinds of steps.

use core::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;

/// The kind of operation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepOp {
    /// Every rank keeps a part of its data. Local.
    Slice,
    /// Every rank gets the shards of its group.
    AllGather,
    /// Every rank gets the reduction of its part of the group's partial values.
    ReduceScatter,
    /// Every rank gets the reduction of all the group's partial values.
    AllReduce,
    /// Every rank sends an equal block to every member of its group.
    AllToAll,
    /// Chosen blocks go to chosen ranks.
    ///
    /// In a deterministic plan it may also send all partial values of a reduction. They are combined in the
    /// order in which [`Phase::receives`](crate::Phase::receives) lists them.
    Exchange,
    /// One copy stays and the rest is filled with the op's identity: shard or replicate becomes partial.
    ///
    /// It is local.
    ZeroFill,
}

impl StepOp {
    /// All variants.
    #[doc(hidden)]
    pub const ALL: [StepOp; 7] = [
        StepOp::Slice,
        StepOp::AllGather,
        StepOp::ReduceScatter,
        StepOp::AllReduce,
        StepOp::AllToAll,
        StepOp::Exchange,
        StepOp::ZeroFill,
    ];

    /// Returns the name in snake case, such as `all_gather`.
    #[doc(hidden)]
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

    /// Returns `true` if ranks communicate in it.
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
        StepOp::ALL.into_iter().find(|op| op.as_str() == s).ok_or_else(|| {
            Error::unknown(
                "step",
                s,
                "slice, all_gather, reduce_scatter, all_reduce, all_to_all, exchange or zero_fill",
            )
        })
    }
}

impl Serialize for StepOp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StepOp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StepOp, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
