//! One phase of a plan, or of several plans together, compiled for one rank.

mod build;

use std::sync::Arc;

use reshard_kernels::{Copy, DType, Divide};
use reshard_layout::Few;
use reshard_planner::StepOp;

pub(crate) use build::{Head, Part};

use crate::collective::{Collective, Reduction};
use crate::{Error, Piece, Place, Receive, Send};

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
    receives: Vec<Receive>,
    sends: Vec<Send>,
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
    pub piece: Piece,
    /// The bytes of one element.
    pub item: Few<u8, 8>,
    copy: Copy,
}

/// Target elements that are divided after everything has landed.
#[derive(Clone, Debug)]
pub struct Average {
    /// The target elements; the source side means nothing.
    pub piece: Piece,
    /// What they are divided by.
    pub divisor: usize,
    divide: Divide,
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
    pub fn place_of(&self, rank: usize) -> Option<usize> {
        self.members.binary_search(&rank).ok()
    }

    /// Where this is, for errors.
    pub fn place(&self) -> Place {
        Place { step: (!self.is_meeting).then_some(self.step), group: self.members.to_vec() }
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
    pub fn receives(&self) -> &[Receive] {
        &self.receives
    }

    /// What others take from here.
    pub fn sends(&self) -> &[Send] {
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
        self.receives.iter().filter(|receive| receive.peer() != self.rank).map(Receive::bytes).sum()
    }

    /// Bytes that others take from here.
    pub fn sent_bytes(&self) -> usize {
        self.sends.iter().map(Send::bytes).sum()
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
    pub fn prepare(&self, target: &mut [u8]) -> Result<(), Error> {
        for fill in &self.fills {
            fill.copy.run(target, &fill.item)?;
        }
        Ok(())
    }

    /// Ends the reduction: divides, where it is an average.
    pub fn finish(&self, target: &mut [u8]) -> Result<(), Error> {
        for average in &self.averages {
            average.divide.run(target)?;
        }
        Ok(())
    }
}
