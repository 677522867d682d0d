//! What one rank does at one place of a plan: a call between two lists of views.

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
/// ReduceScatter   packed = a block for each member, all equally long;  received = op over the members of their block for me
/// AllReduce       received = op over the members of packed
/// AllToAll        packed = sends[0] elements for the 0th member, sends[1] for the 1st, ..;  received likewise from each
/// Messages        packed = the messages to be sent, one behind the other;  received likewise
/// ```
///
/// Members are in the order of the group's [`Offer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectiveCall {
    /// Nobody is called: a copy.
    Local,
    /// Every member gets what every member has.
    AllGather {
        /// Who.
        group: Arc<FrameworkGroup>,
    },
    /// Every member gets the reduction of its block.
    ReduceScatter {
        /// Who.
        group: Arc<FrameworkGroup>,
        /// How two terms combine.
        op: CombineOp,
    },
    /// Every member gets the reduction of everything.
    AllReduce {
        /// Who.
        group: Arc<FrameworkGroup>,
        /// How two terms combine.
        op: CombineOp,
    },
    /// Every member gets something from every member, itself included; perhaps nothing.
    AllToAll {
        /// Who.
        group: Arc<FrameworkGroup>,
        /// Elements for each member.
        sends: Vec<usize>,
        /// Elements from each member.
        receives: Vec<usize>,
    },
    /// Messages to and from single ranks, perhaps to itself, which is a copy: all sends are posted before any receive is waited for.
    Messages {
        /// Ranks and how many elements go there.
        sends: Vec<(usize, usize)>,
        /// Ranks and how many elements come from there.
        receives: Vec<(usize, usize)>,
    },
}

impl CollectiveCall {
    /// The group whose members make this call together, if it is one of a group.
    pub fn group(&self) -> Option<&Arc<FrameworkGroup>> {
        match self {
            CollectiveCall::AllGather { group }
            | CollectiveCall::ReduceScatter { group, .. }
            | CollectiveCall::AllReduce { group, .. }
            | CollectiveCall::AllToAll { group, .. } => Some(group),
            CollectiveCall::Local | CollectiveCall::Messages { .. } => None,
        }
    }

    /// Whether the framework reduces.
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
    /// `all_gather tp[0,1]`, `reduce_scatter sum tp[0,1]`, `all_to_all tp[0,1] 2,2 from 2,2`, `messages 1:2 from 3:4`, `local`.
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

/// Terms that were received one by one, and are reduced by the one who received them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combine {
    /// How two terms combine.
    pub op: CombineOp,
    /// The terms in the order in which they combine.
    pub terms: Vec<PartialInput>,
}

/// A received term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialInput {
    /// Where it begins in what was received.
    pub start: usize,
    /// Where it lands: these views of [`RankCall::unpack`], one behind the other; terms that land alike share them.
    pub views: Range<usize>,
}

/// What one rank does at one place of a plan: it packs, calls, and unpacks, from its buffer to a new one.
///
/// ```text
/// packed    =  source[pack[0]], source[pack[1]], ..          each the view's elements in its order
/// received  =  call(packed)
/// target    =  fill's identity everywhere, if there is one
/// target[unpack[0]], target[unpack[1]], ..  =  received      or, of terms: the first overwrites, unless there is a fill; the
///                                                            others combine
/// target    =  target / divisor
/// ```
///
/// Where it neither packs nor unpacks nor fills, and source and target are equally long, the rank only
/// [attends](RankCall::attends): the buffer stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankCall {
    /// The step of the plan.
    pub step: usize,
    /// What is called.
    pub call: CollectiveCall,
    /// What is read of the source.
    pub pack: Views,
    /// What is written of the target.
    pub unpack: Views,
    /// How terms become a value, if they were received one by one.
    pub combine: Option<Combine>,
    /// The op with whose identity the target is filled before anything lands, if it is.
    pub fill: Option<CombineOp>,
    /// What the target is divided by when all has landed; 1 unless terms were averaged.
    pub divisor: usize,
    /// Elements of the buffer before.
    pub source_len: usize,
    /// Elements of the buffer after.
    pub target_len: usize,
}

impl RankCall {
    /// Whether the rank is there only because all members of a group must be: nothing moves here, and the buffer stays.
    pub fn is_idle(&self) -> bool {
        self.pack.is_empty()
            && self.unpack.is_empty()
            && self.fill.is_none()
            && self.source_len == self.target_len
    }

    /// Elements that are packed.
    pub fn packed_len(&self) -> usize {
        self.pack.iter().map(View::len).sum()
    }

    /// Elements that the call brings.
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
    /// `0+(2:8,4:1) -> all_gather tp[0,1] -> 0+(16:1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let views = |views: &[View]| views.iter().map(View::to_string).collect::<Vec<_>>().join(" ");
        write!(f, "{} -> {} -> {}", views(&self.pack), self.call, views(&self.unpack))?;
        if let Some(combine) = &self.combine {
            write!(f, " by {} of {} terms", combine.op, combine.terms.len())?;
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
