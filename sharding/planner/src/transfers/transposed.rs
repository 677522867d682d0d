//! Transposed steps: senders receive, and values that arrive at one element are added.
//!
//! A phase is a matrix of zeros and ones: each element of a target is one element of a source, or the sum of
//! one from each peer. Its transpose reverses the messages, block by block:
//!
//! ```text
//! target[t] = source[s]              transposed      target[s] += source[t]
//! target[t] = sum of source[s_i]                     target[s_i] += source[t]        for each i
//! ```
//!
//! so an element that several ranks took gets the sum of their values, and one that no rank took gets
//! nothing: the target is filled. Two messages that bring partial values of one element bring them for
//! exactly the same elements, since the ranks that took it are replicas of each other or hold disjoint
//! regions.

use crate::Error;
use crate::message::{Block, Message, Phase, Phases, Reduce};
use crate::step::Transposed;
use reshard_sharding::{Mesh, ReduceOp};

/// Returns a block of the same elements, from target to source.
fn back(block: &Block) -> Block {
    Block {
        source_offset: block.target_offset,
        target_offset: block.source_offset,
        modes: block.modes.iter().map(|m| m.map(|(source, target)| (target, source))).collect(),
    }
}

/// Returns the received and sent messages of a rank in a transposed phase.
///
/// Partial values are in the order of their senders in `mesh`.
pub(crate) fn messages(phase: &Phase, rank: usize, mesh: &Mesh) -> [Vec<Message>; 2] {
    let own = |m: &&Message| m.peer == rank;
    let turned = |m: &Message| Message { peer: m.peer, blocks: m.blocks.iter().map(back).collect() };
    let kept = phase.receives.iter().filter(own);
    let mut receives: Vec<Message> =
        phase.sends.iter().chain(kept).filter(|m| m.numel() > 0).map(turned).collect();
    receives.sort_by_key(|m| mesh.position(m.peer));
    let sends = phase.receives.iter().filter(|m| !own(m) && m.numel() > 0).map(turned).collect();
    [receives, sends]
}

impl Transposed {
    pub(super) fn phases(&self, rank: usize) -> Result<Phases, Error> {
        let sum = Reduce { op: ReduceOp::Sum, divisor: 1 };
        let turned = |phase: Phase| {
            let [receives, sends] = messages(&phase, rank, self.of.after.mesh());
            Phase {
                source_len: phase.target_len,
                target_len: phase.source_len,
                fill_identity: self.fills.then_some(ReduceOp::Sum),
                receives,
                sends,
                reduce: self.adds.then_some(sum),
                members: phase.members,
            }
        };
        Ok(self.of.phases(rank)?.into_iter().map(turned).collect())
    }
}
