//! What one rank receives in several steps: their worst ranks need not be one rank.

use reshard_layout::AxisStride;
use smallvec::SmallVec;

use crate::Error;
use crate::question::Question;
use crate::states::system::System;
use crate::step::{Action, Moves, Reduction, Step};
use reshard_sharding::internal::chunk;

impl Question<'_> {
    /// The greatest total of bytes that one rank receives in the steps of a route.
    ///
    /// A rank receives less than another in an exchange if it is its own source of one block: if all the equations
    /// between its digits hold that say so. It is the worst in all exchanges if it breaks one of each, for which three
    /// values of every digit are enough. In an all-reduce of pieces that do not divide, the first rank has most.
    pub(crate) fn most_received(&self, system: &System, steps: &[Step]) -> Result<u64, Error> {
        let total: u64 = steps.iter().map(|s| s.received_bytes).sum();
        if steps.len() < 2 {
            return Ok(total);
        }
        let mut unequal: SmallVec<[Unequal; 4]> = SmallVec::new();
        for s in steps {
            unequal.extend(self.unequal(system, s));
        }
        if unequal.len() < 2 {
            return Ok(total);
        }
        let mut digits: SmallVec<[usize; 8]> = SmallVec::from_elem(0, system.digits.len());
        let mut least_spared = u64::MAX;
        loop {
            let spared: u64 = unequal.iter().map(|u| u.spared(&digits)).sum();
            least_spared = least_spared.min(spared);
            let next = (0..digits.len()).find(|&d| digits[d] + 1 < (system.digits[d].extent as usize).min(3));
            let (Some(d), true) = (next, least_spared > 0) else { return Ok(total - least_spared) };
            digits[d] += 1;
            digits[..d].fill(0);
        }
    }

    /// What a step receives less on some ranks, if it does.
    fn unequal(&self, system: &System, s: &Step) -> Option<Unequal> {
        match &*s.action {
            Action::Exchange(Moves::Modes { zip, senders, .. }) => {
                let digit = |at: AxisStride| system.digits.iter().position(|m| m.stride == at);
                let mut equal: SmallVec<[(usize, usize); 8]> = SmallVec::new();
                for told in zip.iter().chain(senders) {
                    let (x, y) = told.stride;
                    if !x.is_local() && !y.is_local() && x != y {
                        equal.extend(digit(x).zip(digit(y)));
                    }
                }
                // Every value of what is gathered is another block of the target.
                let block = zip.iter().filter(|m| m.stride.0.is_local() && m.stride.1.is_local());
                let block = block.map(|m| m.extent as u64).product::<u64>() * self.item;
                (!equal.is_empty()).then_some(Unequal::Own { equal, block })
            }
            Action::AllReduce(Reduction { modes, .. }) => {
                let (n, g) = (s.before.max_local_numel() as u64, s.group.size() as u64);
                (!n.is_multiple_of(g)).then(|| Unequal::Piece {
                    digits: (0..system.digits.len())
                        .filter(|&d| modes.contains(&system.digits[d]))
                        .map(|d| (d, system.digits[d].extent as usize))
                        .collect(),
                    numel: n,
                    item: self.item,
                })
            }
            Action::Slice(_)
            | Action::ZeroFill(_)
            | Action::AllGather(_)
            | Action::AllToAll(_)
            | Action::Exchange(Moves::Regions(_))
            | Action::ReduceScatter(..)
            | Action::OrderedReduce(..)
            | Action::Transposed(_) => None,
        }
    }
}

/// Why some ranks receive less than others in a step.
enum Unequal {
    /// Who has these pairs of digits equal is its own source of a block.
    Own { equal: SmallVec<[(usize, usize); 8]>, block: u64 },
    /// Each reduces a piece of the local buffer, numbered by these digits with their sizes.
    Piece { digits: SmallVec<[(usize, usize); 8]>, numel: u64, item: u64 },
}

impl Unequal {
    /// Bytes that the rank with these digits receives less than the worst.
    fn spared(&self, digits: &[usize]) -> u64 {
        match self {
            Unequal::Own { equal, block } => {
                if equal.iter().all(|&(a, b)| digits[a] == digits[b]) {
                    *block
                } else {
                    0
                }
            }
            Unequal::Piece { digits: of, numel, item } => {
                let (mut g, mut i) = (1, 0);
                for &(d, size) in of {
                    (g, i) = (g * size, i * size + digits[d]);
                }
                // It receives g - 1 terms of its piece, and all other pieces.
                let first = chunk(*numel as usize, g, 0).len;
                ((first - chunk(*numel as usize, g, i).len) * g.saturating_sub(2)) as u64 * item
            }
        }
    }
}
