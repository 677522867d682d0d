//! Messages: what one rank sends, receives and reduces in one phase of a step, and where the elements lie.

use reshard_layout::InlineVec;
use reshard_layout::Modes;

use reshard_sharding::ReduceOp;

/// Elements that move together: two offsets and a layout of pairs `(source stride, target stride)`, leftmost fastest.
///
/// ```text
/// source[source_offset + sum_k c_k s_k]   goes to   target[target_offset + sum_k c_k t_k]       modes e_k : (s_k, t_k)
/// ```
///
/// No modes at all is one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where the first element lies in the sender's buffer.
    pub source_offset: usize,
    /// Where it goes in the receiver's buffer.
    pub target_offset: usize,
    /// The modes, coalesced, strides counted in elements.
    pub modes: Modes<(i64, i64)>,
}

impl Block {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.modes.iter().map(|m| m.extent as usize).product()
    }
}

/// The blocks that go from one rank to another, in the same order on both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other rank: the sender of what is received, the receiver of what is sent.
    pub peer: usize,
    /// What moves.
    pub blocks: InlineVec<Block, 1>,
}

impl Message {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.blocks.iter().map(Block::numel).sum()
    }
}

/// How received terms become a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// How two terms combine; never avg, which is sum with a divisor.
    pub op: ReduceOp,
    /// What the combination is divided by; 1 unless some axes were avg.
    pub divisor: usize,
}

/// How the terms of the partial axes that go away become a value.
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

/// What one rank does in one phase of a step. Offsets and strides count elements of row-major, dense local buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The elements of this rank's buffer before the phase; 0 if it holds nothing.
    pub source_len: usize,
    /// And after it.
    pub target_len: usize,
    /// If set, the target is first filled with this op's identity (-0.0 for a sum of floats).
    pub fill_identity: Option<ReduceOp>,
    /// What lands in this rank's target; a message from itself is a local copy.
    pub receives: Vec<Message>,
    /// What other ranks take from this rank's source.
    pub sends: Vec<Message>,
    /// If set, every received message (this rank's own included) is a term that covers the whole target, or, if that is
    /// [filled](Phase::fill), the part of it where the message lands. They combine in the order listed, which is the order of
    /// the group and the same for all replicas.
    pub reduce: Option<Reduce>,
    /// The ranks that take part together, this one included, ascending.
    pub members: Vec<usize>,
}

/// A phase in which a rank sends equal blocks to all values of some digits, and receives as many, told without a list of them.
///
/// Ensures that [`Step::phases`](crate::Step::phases) lists the same: a message from and to each, this rank's own included, in the
/// order of [`Ends::digits`] if ranks ascend, with the modes of [`DigitPhase::own`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigitPhase {
    /// The elements of this rank's buffer before the phase.
    pub source_len: usize,
    /// And after it.
    pub target_len: usize,
    /// If set, received blocks are terms.
    pub reduce: Option<Reduce>,
    /// The block that the rank has from itself.
    pub own: Block,
    /// Where blocks land in this rank's target.
    pub receives: Ends,
    /// Where blocks lie in this rank's source.
    pub sends: Ends,
}

/// The blocks from or to all values of some digits, on this rank's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The offset of the block of the lowest rank.
    pub offset: usize,
    /// Extents, and how far ranks and offsets are apart: the slowest first, so that ranks ascend.
    pub digits: Modes<(i64, i64)>,
}

/// One phase, two for an all-reduce, none for a rank outside the step's mesh.
pub type Phases = InlineVec<Phase, 2>;
