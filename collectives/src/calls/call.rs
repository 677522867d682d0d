//! One call of a rank in a plan, between two lists of views.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use reshard_kernels::CombineOp;

use super::{FrameworkGroup, View, Views};

/// A call of a framework, from one flat buffer to another; counts are of elements.
///
/// ```text
/// Local           received = packed
/// AllGather       received = packed of the 0th member, packed of the 1st, ..
/// ReduceScatter   packed = one block per member, of equal length;  received = op over the members' blocks
/// AllReduce       received = op over the members of packed
/// AllToAll        packed = sends[0] elements for the 0th member, sends[1] for the 1st, ..; received likewise
/// Messages        packed = the messages to send, concatenated;  received likewise
/// ```
///
/// Members are in the order of the group's [`FrameworkGroup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectiveCall {
    /// No communication: a copy.
    Local,
    /// Every member receives the packed elements of every member.
    AllGather {
        /// The group of the call.
        group: Arc<FrameworkGroup>,
    },
    /// Every member receives the reduction of its block.
    ReduceScatter {
        /// The group of the call.
        group: Arc<FrameworkGroup>,
        /// The operation on two partial values.
        op: CombineOp,
    },
    /// Every member receives the reduction of all packed elements.
    AllReduce {
        /// The group of the call.
        group: Arc<FrameworkGroup>,
        /// The operation on two partial values.
        op: CombineOp,
    },
    /// Every member receives a block, which may be empty, from every member including itself.
    AllToAll {
        /// The group of the call.
        group: Arc<FrameworkGroup>,
        /// Elements for each member.
        sends: Vec<usize>,
        /// Elements from each member.
        receives: Vec<usize>,
    },
    /// Messages to and from single ranks; a message to the rank itself is a copy.
    ///
    /// All sends are posted before any receive is waited for.
    Messages {
        /// Receiving ranks, each with its number of elements.
        sends: Vec<(usize, usize)>,
        /// Sending ranks, each with its number of elements.
        receives: Vec<(usize, usize)>,
    },
}

impl CollectiveCall {
    /// Returns the group whose members all make this call, if it is a call of a group.
    #[doc(hidden)]
    pub fn group(&self) -> Option<&Arc<FrameworkGroup>> {
        match self {
            CollectiveCall::AllGather { group }
            | CollectiveCall::ReduceScatter { group, .. }
            | CollectiveCall::AllReduce { group, .. }
            | CollectiveCall::AllToAll { group, .. } => Some(group),
            CollectiveCall::Local | CollectiveCall::Messages { .. } => None,
        }
    }

    /// Returns `true` if the framework reduces.
    #[doc(hidden)]
    pub fn reduces(&self) -> bool {
        match self {
            CollectiveCall::ReduceScatter { .. } | CollectiveCall::AllReduce { .. } => true,
            CollectiveCall::Local
            | CollectiveCall::AllGather { .. }
            | CollectiveCall::AllToAll { .. }
            | CollectiveCall::Messages { .. } => false,
        }
    }
}

impl fmt::Display for CollectiveCall {
    /// Writes `all_gather tp[0,1]`, `all_to_all tp[0,1] 2,2 from 2,2`, `messages 1:2 from 3:4` or `local`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let messages = |list: &[(usize, usize)]| {
            list.iter().map(|(rank, n)| format!("{rank}:{n}")).collect::<Vec<_>>().join(",")
        };
        match self {
            CollectiveCall::Local => f.write_str("local"),
            CollectiveCall::AllGather { group } => write!(f, "all_gather {group}"),
            CollectiveCall::ReduceScatter { group, op } => write!(f, "reduce_scatter {op} {group}"),
            CollectiveCall::AllReduce { group, op } => write!(f, "all_reduce {op} {group}"),
            CollectiveCall::AllToAll { group, sends, receives } => {
                write!(f, "all_to_all {group} {} from {}", counts(sends), counts(receives))
            }
            CollectiveCall::Messages { sends, receives } => {
                write!(f, "messages {} from {}", messages(sends), messages(receives))
            }
        }
    }
}

/// Partial values that were received separately, and are reduced by their receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combine {
    /// The operation on two partial values.
    pub op: CombineOp,
    /// The partial values, in the order in which they are combined.
    pub terms: Vec<PartialInput>,
}

/// A received partial value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialInput {
    /// Its offset in the received elements.
    pub start: usize,
    /// The views of [`RankCall::unpack`] that it is written to, in sequence.
    ///
    /// Partial values with the same target share them.
    pub views: Range<usize>,
}

/// One call of a rank in a plan: it packs, calls, and unpacks, from its buffer to a new one.
///
/// ```text
/// packed    =  source[pack[0]], source[pack[1]], ..          each the view's elements in its order
/// received  =  call(packed)
/// target    =  fill's identity everywhere, if there is one
/// target[unpack[0]], target[unpack[1]], ..  =  received      of partial values: the first overwrites, unless
///                                                            there is a fill; the others combine
/// target    =  target / divisor
/// ```
///
/// If it neither packs, unpacks nor fills, and source and target have the same length, the rank participates
/// without data (see [`RankCall::is_idle`]): the buffer is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankCall {
    /// The step of the plan.
    pub step: usize,
    /// The collective or the messages.
    pub call: CollectiveCall,
    /// The views of the source that are packed.
    pub pack: Views,
    /// The views of the target that are written.
    pub unpack: Views,
    /// The reduction of partial values that were received separately, if there are any.
    pub combine: Option<Combine>,
    /// The op with whose identity the target is filled before any write, if it is filled.
    pub fill: Option<CombineOp>,
    /// The divisor of the target after all writes; 1 unless partial values are averaged.
    pub divisor: usize,
    /// Number of elements of the buffer before the call.
    pub source_len: usize,
    /// Number of elements of the buffer after the call.
    pub target_len: usize,
}

impl RankCall {
    /// Returns `true` if the rank only participates without data for the other members of a group.
    ///
    /// The buffer is then unchanged.
    pub fn is_idle(&self) -> bool {
        self.pack.is_empty()
            && self.unpack.is_empty()
            && self.fill.is_none()
            && self.source_len == self.target_len
    }

    /// Returns the number of elements that are packed.
    pub fn packed_len(&self) -> usize {
        self.pack.iter().map(View::len).sum()
    }

    /// Returns the number of elements that the call receives.
    pub fn received_len(&self) -> usize {
        match &self.call {
            CollectiveCall::Local | CollectiveCall::AllReduce { .. } => self.packed_len(),
            CollectiveCall::AllGather { group } => self.packed_len() * group.members().len(),
            CollectiveCall::ReduceScatter { group, .. } => self.packed_len() / group.members().len(),
            CollectiveCall::AllToAll { receives, .. } => receives.iter().sum(),
            CollectiveCall::Messages { receives, .. } => receives.iter().map(|message| message.1).sum(),
        }
    }
}

impl fmt::Display for RankCall {
    /// Writes the packed views, the call and the unpacked views.
    ///
    /// Example: `0+(2:8,4:1) -> all_gather tp[0,1] -> 0+(16:1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let views = |views: &[View]| views.iter().map(View::to_string).collect::<Vec<_>>().join(" ");
        write!(f, "{} -> {} -> {}", views(&self.pack), self.call, views(&self.unpack))?;
        if let Some(combine) = &self.combine {
            write!(f, " by {} of {} partial values", combine.op, combine.terms.len())?;
        }
        if let Some(fill) = self.fill {
            write!(f, " over the identity of {fill}")?;
        }
        if self.divisor != 1 {
            write!(f, " / {}", self.divisor)?;
        }
        Ok(())
    }
}
