//! Messages: the blocks that one rank sends, receives and reduces in one phase of a step, with their offsets.

use reshard_layout::InlineVec;
use reshard_layout::Modes;

use reshard_sharding::ReduceOp;

/// Elements that are sent as one block: two offsets, and a layout of pairs of strides.
///
/// A pair is `(source stride, target stride)`, and the leftmost mode is the fastest.
///
/// ```text
/// source[source_offset + sum_k c_k s_k]   goes to   target[target_offset + sum_k c_k t_k]       modes e_k : (s_k, t_k)
/// ```
///
/// An empty list of modes is one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Offset of the first element in the sender's buffer.
    pub source_offset: usize,
    /// Offset of the first element in the receiver's buffer.
    pub target_offset: usize,
    /// The modes, coalesced, strides counted in elements.
    pub modes: Modes<(i64, i64)>,
}

impl Block {
    /// Returns the number of elements.
    pub fn numel(&self) -> usize {
        self.modes.iter().map(|m| m.extent as usize).product()
    }
}

/// The blocks that go from one rank to another, in the same order on both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other rank: the sender of a received message, or the receiver of a sent one.
    pub peer: usize,
    /// The blocks of the message.
    pub blocks: InlineVec<Block, 1>,
}

impl Message {
    /// Returns the number of elements.
    pub fn numel(&self) -> usize {
        self.blocks.iter().map(Block::numel).sum()
    }
}

/// The reduction of received partial values to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// The operation that combines two partial values; never avg, which is sum with a divisor.
    pub op: ReduceOp,
    /// The divisor of the combination; 1 unless some axes were avg.
    pub divisor: usize,
}

/// Returns the reduction of the partial axes that go away.
pub(crate) fn reduce_of(ops: impl Iterator<Item = (ReduceOp, usize)>) -> Reduce {
    let mut reduce = Reduce { op: ReduceOp::Sum, divisor: 1 };
    for (op, size) in ops {
        reduce.op = op.combining();
        if op.divides() {
            reduce.divisor *= size;
        }
    }
    reduce
}

/// The actions of one rank in one phase of a step.
///
/// Offsets and strides count elements of row-major, dense local buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The elements of this rank's buffer before the phase; 0 if it holds nothing.
    pub source_len: usize,
    /// The elements of this rank's buffer after the phase.
    pub target_len: usize,
    /// The op whose identity first fills the target (-0.0 for a sum of floats), if any.
    pub fill_identity: Option<ReduceOp>,
    /// The messages that this rank receives; one from itself is a local copy.
    pub receives: Vec<Message>,
    /// The messages that this rank sends from its source.
    pub sends: Vec<Message>,
    /// The reduction of the received messages; `None` if they are not partial values.
    ///
    /// Every received message (this rank's own included) is a partial value that covers the whole target. If
    /// the target is [filled](Phase::fill_identity), it covers the part where the message arrives. The messages
    /// combine in the order listed, which is the order of the group and the same for all replicas.
    pub reduce: Option<Reduce>,
    /// The ranks that take part in the phase, this one included, ascending.
    pub members: Vec<usize>,
}

/// A phase in which a rank exchanges equal blocks with all values of some digits, without a list of messages.
///
/// Ensures that [`Step::phases`](crate::Step::phases) lists the same: a message from and to each, this rank's
/// own included, in the order of [`Ends::digits`] if ranks ascend, with the modes of [`DigitPhase::own`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigitPhase {
    /// The elements of this rank's buffer before the phase.
    pub source_len: usize,
    /// The elements of this rank's buffer after the phase.
    pub target_len: usize,
    /// The reduction of the received blocks; `None` if they are not partial values.
    pub reduce: Option<Reduce>,
    /// The block that the rank has from itself.
    pub own: Block,
    /// The offsets of received blocks in this rank's target.
    pub receives: Ends,
    /// The offsets of sent blocks in this rank's source.
    pub sends: Ends,
}

/// The blocks from or to all values of some digits, on this rank's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The offset of the block of the lowest rank.
    pub offset: usize,
    /// Extents, and the strides of ranks and offsets: the slowest first, so that ranks ascend.
    pub digits: Modes<(i64, i64)>,
}

/// One phase, two for an all-reduce, none for a rank outside the step's mesh.
#[doc(hidden)]
pub type Phases = InlineVec<Phase, 2>;
