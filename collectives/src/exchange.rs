//! One phase of a plan, or of several plans together, compiled for one rank.

mod build;

use std::sync::Arc;

use reshard_kernels::{DType, PreparedCopy, PreparedDivide};
use reshard_layout::InlineVec;
use reshard_planner::StepOp;

pub(crate) use build::{Head, Part};

use crate::collective::{Collective, Reduction};
use crate::{Error, Location, ReceiveMessage, SendMessage, TypedNest};

/// What one rank does in one phase: everything checked, every offset fixed, nothing that depends on the data.
///
/// Carrying it out means, in this order: run [`prepare`](Exchange::prepare) on the target; for every [`Receive`] in the
/// listed order (for a reduction the order matters) move its pieces from the peer's source into the target; run
/// [`finish`](Exchange::finish) on the target. There is at most one receive from each peer, and the peer has the send
/// that belongs to it: of the same size, its pieces in the same order.
#[derive(Clone, Debug)]
pub struct Exchange {
    id: u64,
    rank: usize,
    step: usize,
    /// Whether it is no step of a plan: ranks meet, and nothing moves.
    is_meeting: bool,
    phase: usize,
    op: Option<StepOp>,
    dtype: Option<DType>,
    members: Arc<[usize]>,
    communicates: bool,
    source_bytes: usize,
    target_bytes: usize,
    fills: Vec<Fill>,
    receives: Vec<ReceiveMessage>,
    sends: Vec<SendMessage>,
    reduces: bool,
    reduction: Option<Reduction>,
    averages: Vec<Average>,
    tag: u64,
    collective: Option<Collective>,
}

/// Target elements that are set before anything lands: to the identity of the reduction that they are terms of.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The target elements; the source side means nothing.
    pub piece: TypedNest,
    /// The bytes of one element.
    pub item: InlineVec<u8, 8>,
    copy: PreparedCopy,
}

/// Target elements that are divided after everything has landed.
#[derive(Clone, Debug)]
pub struct Average {
    /// The target elements; the source side means nothing.
    pub piece: TypedNest,
    /// What they are divided by.
    pub divisor: usize,
    divide: PreparedDivide,
}

impl Exchange {
    /// A number that no other exchange of this process has; copies of an exchange have the same.
    ///
    /// By it an engine finds again what it has prepared for an exchange.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Index of the step in the plan; of several plans together, of the round.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Index of the phase in the step, or of the exchange in the round.
    pub fn phase(&self) -> usize {
        self.phase
    }

    /// What the plan calls this step, the same on all members; `None` if several plans call it differently or it comes
    /// from no plan.
    ///
    /// In an all-gather every member sends the same message to all others; in an all-to-all all messages have one size.
    /// The second phase of an all-reduce is an all-gather of its pieces, the first one a reduce-scatter.
    pub fn op(&self) -> Option<StepOp> {
        self.op
    }

    /// The type of all elements, if they have one type.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// The ranks that take part together, ascending, this one among them.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// The place of a rank among the members.
    pub fn group_rank(&self, rank: usize) -> Option<usize> {
        self.members.binary_search(&rank).ok()
    }

    /// Where this is, for errors.
    pub fn place(&self) -> Location {
        Location { step: (!self.is_meeting).then_some(self.step), group: self.members.to_vec() }
    }

    /// Whether ranks talk to each other; if not, everything comes from this rank's own source.
    pub fn communicates(&self) -> bool {
        self.communicates
    }

    /// Bytes of this rank's source.
    pub fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// Bytes of this rank's target.
    pub fn target_bytes(&self) -> usize {
        self.target_bytes
    }

    /// What lands here, in the order in which it must be combined.
    pub fn receives(&self) -> &[ReceiveMessage] {
        &self.receives
    }

    /// What others take from here.
    pub fn sends(&self) -> &[SendMessage] {
        &self.sends
    }

    /// Whether the receives must be combined in the order in which they are listed.
    pub fn is_reduction(&self) -> bool {
        self.reduces
    }

    /// How the terms combine, if this is a reduction and all elements combine alike.
    pub fn reduction(&self) -> Option<Reduction> {
        self.reduction
    }

    /// The whole exchange as one collective of contiguous blocks, if it is one; the same variant on all members.
    pub fn collective(&self) -> Option<&Collective> {
        self.collective.as_ref()
    }

    /// Bytes that land here from others.
    pub fn received_bytes(&self) -> usize {
        self.receives.iter().filter(|receive| receive.peer() != self.rank).map(ReceiveMessage::bytes).sum()
    }

    /// Bytes that others take from here.
    pub fn sent_bytes(&self) -> usize {
        self.sends.iter().map(SendMessage::bytes).sum()
    }

    /// The same on all members in the same phase of the same plan, so that different plans are noticed.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// What is filled before anything lands.
    pub fn fills(&self) -> &[Fill] {
        &self.fills
    }

    /// What is divided after everything has landed.
    pub fn averages(&self) -> &[Average] {
        &self.averages
    }

    /// Fills the target with the identity of the reduction, where the plan asks for it.
    pub fn init_target(&self, target: &mut [u8]) -> Result<(), Error> {
        for fill in &self.fills {
            fill.copy.run(target, &fill.item)?;
        }
        Ok(())
    }

    /// Ends the reduction: divides, where it is an average.
    pub fn finalize_target(&self, target: &mut [u8]) -> Result<(), Error> {
        for average in &self.averages {
            average.divide.run(target)?;
        }
        Ok(())
    }
}
