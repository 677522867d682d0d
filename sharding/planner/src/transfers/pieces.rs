//! All-reduces: a reduce-scatter, then an all-gather, of blocks of the flat local buffer.

use reshard_layout::InlineVec;
use reshard_layout::{Mode, Modes};

use crate::Error;
use crate::message::{Block, Message, Phase, Phases};
use crate::step::Reduction;
use reshard_sharding::Sharding;
use reshard_sharding::internal::chunk;
use reshard_sharding::internal::members_along;

/// A contiguous range as a block.
fn range(source_offset: usize, target_offset: usize, len: usize) -> Block {
    let mut modes = Modes::new();
    if len > 1 {
        modes.push(Mode::new(len as i64, (1, 1)));
    }
    Block { source_offset, target_offset, modes }
}

/// Returns the two phases of an all-reduce of the flat local buffer, in blocks of `ceil(n / g)`.
pub(super) fn all_reduced(
    before: &Sharding,
    reduction: &Reduction,
    rank: usize,
    group: &[usize],
) -> Result<Phases, Error> {
    let order = members_along(before.mesh(), &reduction.modes, rank)?;
    let n: usize = before.local_shape(rank)?.iter().product();
    let g = order.len();
    let mine = order.iter().position(|&r| r == rank).expect("a rank is in its own group");
    let piece = |i: usize| chunk(n, g, i);
    let message = |peer: usize, block: Block| Message { peer, blocks: InlineVec::from_iter([block]) };
    let my = piece(mine);
    let mut first = Phase {
        source_len: n,
        target_len: my.len,
        fill_identity: None,
        receives: Vec::new(),
        sends: Vec::new(),
        reduce: Some(reduction.reduce),
        members: group.to_vec(),
    };
    let mut second = Phase { source_len: my.len, target_len: n, reduce: None, ..first.clone() };
    for (i, &peer) in order.iter().enumerate() {
        let its = piece(i);
        if my.len > 0 {
            first.receives.push(message(peer, range(my.start, 0, my.len)));
        }
        if its.len > 0 {
            second.receives.push(message(peer, range(0, its.start, its.len)));
        }
        if peer != rank {
            if its.len > 0 {
                first.sends.push(message(peer, range(its.start, 0, its.len)));
            }
            if my.len > 0 {
                second.sends.push(message(peer, range(0, my.start, my.len)));
            }
        }
    }
    Ok(InlineVec::from_iter([first, second]))
}
