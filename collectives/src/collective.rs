//! Exchanges for which a library has one call.
//!
//! An engine may always treat an [`Exchange`](crate::Exchange) as messages. If the whole exchange is one MPI
//! or NCCL collective on contiguous blocks, [`Exchange::collective`](crate::Exchange::collective) returns it,
//! with the offset of every member's block, in the order of [`members`](crate::Exchange::members):
//!
//! ```text
//! AllGather       target[theirs[i]] = source(members[i])[mine]
//! AllToAll        target[into[i]]   = source(members[i])[its block for me];
//!                 source[out[i]] goes to members[i]
//! ReduceScatter   target[mine]      = op over i of source(members[i])[its block for me];
//!                 source[theirs[i]] goes to members[i]
//! AllReduce       target            = op over i of source(members[i])
//! ```
//!
//! All members of a group find the same variant, so all may call it. It is only searched for if shapes are
//! the same on all members, that is if both shardings are digits and buffers row-major, or for an all-reduce.

use std::ops::Range;

use reshard_kernels::{CombineOp, CopySide, DType, Exponent};
use reshard_planner::StepOp;

use crate::Exchange;

/// The operation that reduces partial values to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// The operation on two partial values.
    ///
    /// An average is a sum, divided by [`Exchange::finalize_target`](crate::Exchange::finalize_target).
    pub op: CombineOp,
    /// The type of the elements.
    pub dtype: DType,
    /// The divisor of [`Exchange::finalize_target`](crate::Exchange::finalize_target); 1 unless some axes are averaged.
    pub divisor: usize,
}

impl Reduction {
    /// Returns `true` if the result does not depend on the order in which partial values are combined.
    ///
    /// This holds for integers, minimum, maximum and greatest magnitude. Otherwise, ranks with replicas of
    /// the result in different groups get the same bits only if the library combines the partial values of
    /// all groups in the same member order.
    #[doc(hidden)]
    pub fn is_exact(self) -> bool {
        match self.op {
            CombineOp::Min | CombineOp::Max | CombineOp::Norm(Exponent::INFINITY) => true,
            CombineOp::Norm(_) => false,
            CombineOp::Sum | CombineOp::Prod => self.dtype.check_average().is_err(),
        }
    }
}

/// An exchange as one collective on contiguous blocks; ranges count bytes of this rank's source and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every member receives every member's block.
    AllGather {
        /// This rank's block in its source.
        mine: Range<usize>,
        /// The range of each member's block in the target.
        theirs: Vec<Range<usize>>,
    },
    /// Every member receives a block from every member.
    AllToAll {
        /// The block for each member, in the source.
        out: Vec<Range<usize>>,
        /// The range of each member's block in the target.
        into: Vec<Range<usize>>,
    },
    /// Every member receives the reduction of its block.
    ReduceScatter {
        /// Each member's block in the source.
        theirs: Vec<Range<usize>>,
        /// The range of this rank's block in the target.
        mine: Range<usize>,
        /// The reduction of the block.
        reduction: Reduction,
    },
    /// Every member receives the reduction of the whole source.
    AllReduce {
        /// This rank's partial value in the source.
        source: Range<usize>,
        /// The range of the result in the target.
        target: Range<usize>,
        /// The reduction of the whole source.
        reduction: Reduction,
    },
}

/// Finds the collective for a step's op and the nests of one rank; `None` if some block is not contiguous.
pub(crate) fn recognise(exchange: &Exchange, op: StepOp) -> Option<Collective> {
    match (op, exchange.reduction()) {
        (StepOp::AllGather | StepOp::AllReduce, None) => all_gather(exchange),
        (StepOp::AllToAll, None) => all_to_all(exchange),
        (StepOp::ReduceScatter | StepOp::AllReduce, Some(reduction)) => reduce_scatter(exchange, reduction),
        (StepOp::Slice | StepOp::ZeroFill | StepOp::Exchange, _)
        | (StepOp::AllGather | StepOp::AllToAll, Some(_))
        | (StepOp::ReduceScatter, None) => None,
    }
}

/// Returns the range of each member's block in the target; empty for members that have none.
fn landing(exchange: &Exchange) -> Option<Vec<Range<usize>>> {
    let mut all = vec![0..0; exchange.members().len()];
    for receive in exchange.receives() {
        let [piece] = receive.pieces() else { return None };
        all[exchange.group_rank(receive.peer())?] = piece.contiguous(CopySide::Target)?;
    }
    close_gaps(&mut all);
    Some(all)
}

/// Returns the range of the source that each member takes.
fn leaving(exchange: &Exchange) -> Option<Vec<Range<usize>>> {
    let mut all = vec![0..0; exchange.members().len()];
    for send in exchange.sends() {
        let [piece] = send.pieces() else { return None };
        all[exchange.group_rank(send.peer())?] = piece.contiguous(CopySide::Source)?;
    }
    for receive in exchange.receives().iter().filter(|receive| receive.peer() == exchange.rank()) {
        let [piece] = receive.pieces() else { return None };
        all[exchange.group_rank(receive.peer())?] = piece.contiguous(CopySide::Source)?;
    }
    close_gaps(&mut all);
    Some(all)
}

/// Puts empty blocks after the last one, so that they are dense too.
fn close_gaps(blocks: &mut [Range<usize>]) {
    let end = blocks.iter().map(|block| block.end).max().unwrap_or(0);
    blocks.iter_mut().filter(|block| block.start == block.end).for_each(|block| *block = end..end);
}

fn all_gather(exchange: &Exchange) -> Option<Collective> {
    let theirs = landing(exchange)?;
    let out = leaving(exchange)?;
    let mine = out.first()?.clone();
    let place = exchange.group_rank(exchange.rank())?;
    (out.iter().all(|block| *block == mine) && theirs[place].len() == mine.len())
        .then_some(Collective::AllGather { mine, theirs })
}

fn all_to_all(exchange: &Exchange) -> Option<Collective> {
    Some(Collective::AllToAll { out: leaving(exchange)?, into: landing(exchange)? })
}

fn reduce_scatter(exchange: &Exchange, reduction: Reduction) -> Option<Collective> {
    let theirs = leaving(exchange)?;
    let place = exchange.group_rank(exchange.rank())?;
    let landed = landing(exchange)?;
    let mine = landed.first()?.clone();
    (landed.iter().all(|block| *block == mine) && theirs[place].len() == mine.len())
        .then_some(Collective::ReduceScatter { theirs, mine, reduction })
}
