//! One phase of a plan, or the fused phases of several plans, compiled for one rank.

mod build;

use std::sync::Arc;

use reshard_kernels::{DType, PreparedCopy, PreparedDivide};
use reshard_layout::InlineVec;
use reshard_planner::StepOp;

pub(crate) use build::{Head, Part};

use crate::collective::{Collective, Reduction};
use crate::{Error, Location, ReceiveMessage, SendMessage, TypedNest};

/// The work of one rank in one phase: checked, with every offset fixed, and independent of the data.
///
/// To run it, do three things in this order. Run [`init_target`](Exchange::init_target) on the target. For every
/// [`ReceiveMessage`] in the listed order (for a reduction the order matters) copy its nests from the peer's source
/// into the target. Run [`finalize_target`](Exchange::finalize_target) on the target. There is at most one receive from each
/// peer, and the peer has the matching send: of the same size, with its nests in the same order.
#[derive(Clone, Debug)]
pub struct Exchange {
    id: u64,
    rank: usize,
    step: usize,
    /// `true` for a synchronization that is not a step of a plan and transfers nothing.
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

/// Target elements that are set to the identity of their reduction before any receive.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The target elements; the source side is unused.
    pub piece: TypedNest,
    /// The bytes of one element.
    pub item: InlineVec<u8, 8>,
    copy: PreparedCopy,
}

/// Target elements that are divided after all receives.
#[derive(Clone, Debug)]
pub struct Average {
    /// The target elements; the source side is unused.
    pub piece: TypedNest,
    /// The divisor of the average.
    pub divisor: usize,
    divide: PreparedDivide,
}

impl Exchange {
    /// Returns a number that is unique among the exchanges of this process; clones of an exchange share it.
    ///
    /// An engine uses it as the key of the state that it prepares for an exchange.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the index of the step in the plan; for several fused plans, of the round.
    #[doc(hidden)]
    pub fn step(&self) -> usize {
        self.step
    }

    /// Returns the index of the phase in the step, or of the exchange in the round.
    #[doc(hidden)]
    pub fn phase(&self) -> usize {
        self.phase
    }

    /// Returns the step op of the plan, the same on all members.
    ///
    /// It is `None` if several plans have different ops for it, or if it comes from no plan. In an all-gather
    /// every member sends the same message to all others; in an all-to-all all messages have one size. The
    /// second phase of an all-reduce is an all-gather of the reduced blocks, the first one a reduce-scatter.
    #[doc(hidden)]
    pub fn op(&self) -> Option<StepOp> {
        self.op
    }

    /// Returns the type of all elements, if they have one type.
    #[doc(hidden)]
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// Returns the ranks that take part, ascending, including this one.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Returns the group rank of a rank among the members.
    #[doc(hidden)]
    pub fn group_rank(&self, rank: usize) -> Option<usize> {
        self.members.binary_search(&rank).ok()
    }

    /// Returns the location of this exchange, for errors.
    pub fn place(&self) -> Location {
        Location { step: (!self.is_meeting).then_some(self.step), group: self.members.to_vec() }
    }

    /// Returns `true` if ranks communicate; if not, all data comes from this rank's own source.
    #[doc(hidden)]
    pub fn communicates(&self) -> bool {
        self.communicates
    }

    /// Returns the bytes of this rank's source.
    #[doc(hidden)]
    pub fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// Returns the bytes of this rank's target.
    #[doc(hidden)]
    pub fn target_bytes(&self) -> usize {
        self.target_bytes
    }

    /// Returns the receives, in the order in which they must be combined.
    pub fn receives(&self) -> &[ReceiveMessage] {
        &self.receives
    }

    /// Returns the data that other ranks take from this one.
    pub fn sends(&self) -> &[SendMessage] {
        &self.sends
    }

    /// Returns `true` if the receives must be combined in the order in which they are listed.
    #[doc(hidden)]
    pub fn is_reduction(&self) -> bool {
        self.reduces
    }

    /// Returns the reduction, if there is one and it is the same for all elements.
    pub fn reduction(&self) -> Option<Reduction> {
        self.reduction
    }

    /// Returns the whole exchange as one collective of contiguous blocks, if it is one.
    ///
    /// The variant is the same on all members.
    pub fn collective(&self) -> Option<&Collective> {
        self.collective.as_ref()
    }

    /// Returns the bytes that this rank receives from others.
    #[doc(hidden)]
    pub fn received_bytes(&self) -> usize {
        self.receives.iter().filter(|receive| receive.peer() != self.rank).map(ReceiveMessage::bytes).sum()
    }

    /// Returns the bytes that others take from this rank.
    #[doc(hidden)]
    pub fn sent_bytes(&self) -> usize {
        self.sends.iter().map(SendMessage::bytes).sum()
    }

    /// Returns a tag that is the same on all members in a phase of one plan.
    ///
    /// Different tags reveal different plans.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns the elements that are filled before any receive.
    pub fn fills(&self) -> &[Fill] {
        &self.fills
    }

    /// Returns the elements that are divided after all receives.
    pub fn averages(&self) -> &[Average] {
        &self.averages
    }

    /// Fills the target with the identity of the reduction, where the plan requires it.
    pub fn init_target(&self, target: &mut [u8]) -> Result<(), Error> {
        for fill in &self.fills {
            fill.copy.run(target, &fill.item)?;
        }
        Ok(())
    }

    /// Completes the reduction: divides, if it is an average.
    pub fn finalize_target(&self, target: &mut [u8]) -> Result<(), Error> {
        for average in &self.averages {
            average.divide.run(target)?;
        }
        Ok(())
    }
}
