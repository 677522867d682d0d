//! Bytes that one rank receives over several steps: the worst ranks of the steps may be different ranks.

use reshard_layout::AxisStride;
use smallvec::SmallVec;

use crate::Error;
use crate::problem::Question;
use crate::states::system::System;
use crate::step::{Action, Moves, Reduction, Step};
use reshard_sharding::internal::chunk;

impl Question<'_> {
    /// Returns the greatest total of bytes that one rank receives in the steps of a route.
    ///
    /// A rank receives less than others in an exchange if it is its own source of one block. It is that if
    /// all the equations between its digits hold. A rank is the worst in all exchanges if it breaks one
    /// equation of each, and three values of every digit are enough to find it. In an all-reduce of blocks
    /// that do not divide evenly, the first rank receives most.
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

    /// Returns the bytes that some ranks receive less in a step; `None` if all receive the same.
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
                // Every value of a gathered digit is another block of the target.
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

/// The reason why some ranks receive less than others in a step.
enum Unequal {
    /// A rank on which these pairs of digits are equal is its own source of a block.
    Own { equal: SmallVec<[(usize, usize); 8]>, block: u64 },
    /// Each rank reduces one block of the local buffer; these digits, with their sizes, index it.
    Piece { digits: SmallVec<[(usize, usize); 8]>, numel: u64, item: u64 },
}

impl Unequal {
    /// Returns the bytes that the rank with these digits receives less than the worst.
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
                // A rank receives g - 1 partial values of its block, and all other blocks.
                let first = chunk(*numel as usize, g, 0).len;
                ((first - chunk(*numel as usize, g, i).len) * g.saturating_sub(2)) as u64 * item
            }
        }
    }
}
