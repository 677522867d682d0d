//! Cuts: how a dim is shared out among the ranks of an axis.
//!
//! A cut takes a length and gives each of `n` ranks its part of it. Nothing is padded: where a length does not divide,
//! some ranks keep less than others, or nothing.
//!
//! **Chunks** are those of `torch.chunk`: `chunk(N, n)` cuts `0..N` into pieces of `c = ceil(N/n)`, and piece `i` is
//! `[min(i c, N), min((i+1) c, N))`, so the last ones are short or empty. `Shard` gives rank `i` the `i`-th of them.
//! `StridedShard(k)` chunks the length into `k` pieces first and each of those over the ranks, and rank `i` concatenates
//! the `i`-th of every piece; `Shard` is `k = 1`:
//!
//! ```text
//! c = ceil(N/k)      rank i keeps  floor(N/c) |chunk(c, n)_i| + |chunk(N mod c, n)_i|  of N
//! ```
//!
//! **Sizes** `s_0, .., s_(n-1)` (`Ragged`) are for the one length that they add up to, of which rank `i` keeps
//! `[s_0 + .. + s_(i-1), s_0 + .. + s_i)`.
//!
//! **Any other cut** is a [`Cut`], which says for a length and a number of ranks who keeps which indices: [`Zigzag`], [`Block`], [`Counts`], [`Rolled`], or one
//! that somebody else brings ([`CutRegistry`]). It is asked when a sharding is made, once for each length that the cuts
//! before it leave, and what it says is checked and kept, so that afterwards it is a list like any other. Where that list is
//! what chunks give, it is those chunks; the list of one rank is everything, so there is nothing to cut.
//!
//! Only this module and the comparison of uneven views match on the three forms, and everybody else asks by method, so that
//! a further form (ragged cuts over a prefix of the dims, sizes in relative units) is a new variant and no change to callers.

mod balance;
mod block;
mod counts;
mod laws;
mod made;
mod own;
mod pieces;
mod registry;
mod rolled;
mod zigzag;

pub use block::Block;
pub use counts::Counts;
pub use laws::check_partition;
pub use made::Made;
pub use own::{DimPartition, NamedPartition};
pub use pieces::RankRanges;
pub use registry::PartitionRegistry;
pub use rolled::Rolled;
pub use zigzag::Zigzag;

use core::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::Error;
use crate::region::{Interval, Intervals, push};

/// The most pieces of one dim that are listed.
pub(crate) const MAX_PIECES: usize = 1 << 24;

/// Piece `i` of `n` of a length.
pub fn chunk(len: usize, n: usize, i: usize) -> Interval {
    let c = len.div_ceil(n);
    // i * c may leave usize only where it is past the end anyway.
    let start = i.saturating_mul(c).min(len);
    Interval { start, len: c.min(len - start) }
}

/// One cut of a dim among the ranks of an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DimCut {
    /// Chunked into `pieces`, each chunked over the ranks; rank `i` keeps the `i`-th of every piece.
    Chunks {
        /// The split factor.
        pieces: usize,
        /// Over how many ranks.
        ranks: usize,
    },
    /// A size for each rank.
    Sizes(Arc<[usize]>),
    /// What another cut says.
    Other(Arc<Made>),
}

impl DimCut {
    /// Chunks of `pieces` over `ranks`; one piece makes plain chunks.
    pub fn chunks(pieces: usize, ranks: usize) -> DimCut {
        DimCut::Chunks { pieces, ranks }
    }

    /// These sizes, which become plain chunks where that is what they are.
    ///
    /// Requires that their sum fits.
    pub fn ragged(sizes: &Arc<[usize]>) -> DimCut {
        let (n, total) = (sizes.len(), sizes.iter().sum());
        let plain = sizes.iter().enumerate().all(|(i, &s)| s == chunk(total, n, i).len);
        if plain { DimCut::chunks(1, n) } else { DimCut::Sizes(Arc::clone(sizes)) }
    }

    /// The same, as plain chunks where its sizes are those.
    #[must_use]
    pub fn simplest(self) -> DimCut {
        match self {
            DimCut::Chunks { .. } | DimCut::Other(_) => self,
            DimCut::Sizes(sizes) => DimCut::ragged(&sizes),
        }
    }

    /// The same without a split factor: plain chunks over as many ranks, or these sizes.
    #[must_use]
    pub fn in_one_piece(self) -> DimCut {
        match self {
            DimCut::Chunks { ranks, .. } => DimCut::chunks(1, ranks),
            DimCut::Sizes(_) | DimCut::Other(_) => self,
        }
    }

    /// The same cut of `len`, with as many pieces as that really makes.
    ///
    /// Requires that there is something to cut.
    #[must_use]
    pub fn without_empty_pieces(&self, len: usize) -> DimCut {
        match self {
            DimCut::Chunks { pieces, ranks } => DimCut::chunks(len.div_ceil(len.div_ceil(*pieces)), *ranks),
            DimCut::Sizes(_) | DimCut::Other(_) => self.clone(),
        }
    }

    /// The cut that leaves every rank what it keeps of the indices `part` of `len`, if these are whole pieces.
    pub fn narrowed(&self, len: usize, part: Range<usize>) -> Option<DimCut> {
        match *self {
            DimCut::Chunks { pieces, ranks } => {
                if part.is_empty() {
                    return None;
                }
                let piece = len.div_ceil(pieces);
                let whole =
                    part.start.is_multiple_of(piece) && (part.len().is_multiple_of(piece) || part.end == len);
                let pieces = part.len().div_ceil(piece);
                // The pieces of the new extent must be those of the old one.
                (whole && part.len().div_ceil(pieces) == piece).then(|| DimCut::chunks(pieces, ranks))
            }
            DimCut::Sizes(_) | DimCut::Other(_) => None,
        }
    }

    /// How many ranks the axis has.
    pub fn ranks(&self) -> usize {
        match self {
            DimCut::Chunks { ranks, .. } => *ranks,
            DimCut::Sizes(sizes) => sizes.len(),
            DimCut::Other(made) => made.ranks(),
        }
    }

    /// Into how many pieces it first cuts a dim, each of which goes to all ranks; 1 where it is not chunks.
    pub fn pieces(&self) -> usize {
        match self {
            DimCut::Chunks { pieces, .. } => *pieces,
            DimCut::Sizes(_) | DimCut::Other(_) => 1,
        }
    }

    /// The sizes, where it has its own.
    pub fn sizes(&self) -> Option<&Arc<[usize]>> {
        match self {
            DimCut::Chunks { .. } | DimCut::Other(_) => None,
            DimCut::Sizes(sizes) => Some(sizes),
        }
    }

    /// What another cut says, where it is one.
    pub fn other(&self) -> Option<&Arc<Made>> {
        match self {
            DimCut::Chunks { .. } | DimCut::Sizes(_) => None,
            DimCut::Other(made) => Some(made),
        }
    }

    /// The same for a dim of which earlier cuts leave ranks these lengths, ascending: another cut is asked about each.
    pub fn of_lens(self, lens: &[usize]) -> Result<DimCut, Error> {
        match self {
            DimCut::Chunks { .. } | DimCut::Sizes(_) => Ok(self),
            DimCut::Other(made) => made.of_lens(lens),
        }
    }

    /// Whether it is chunks, which cut every length.
    #[inline]
    pub fn is_chunks(&self) -> bool {
        match self {
            DimCut::Chunks { .. } => true,
            DimCut::Sizes(_) | DimCut::Other(_) => false,
        }
    }

    /// Another cut, which is not asked yet.
    #[inline(never)]
    pub fn by(cut: &NamedPartition, ranks: usize) -> DimCut {
        DimCut::Other(Arc::new(Made::new(cut, ranks)))
    }

    /// Whether it is plain chunks.
    pub fn is_plain(&self) -> bool {
        match self {
            DimCut::Chunks { pieces, .. } => *pieces == 1,
            DimCut::Sizes(_) | DimCut::Other(_) => false,
        }
    }

    /// The only length that it cuts, where there is only one.
    pub fn total(&self) -> Option<usize> {
        self.sizes().map(|sizes| sizes.iter().sum())
    }

    /// How many pieces there really are of `len`, if all are equal and give every rank as much.
    ///
    /// Requires that there is something to cut. Only chunks are taken for equal.
    pub fn even_pieces(&self, len: usize) -> Option<usize> {
        match *self {
            DimCut::Chunks { pieces, ranks } => {
                let piece = len.div_ceil(pieces);
                (len.is_multiple_of(piece) && piece.is_multiple_of(ranks)).then(|| len / piece)
            }
            DimCut::Sizes(_) | DimCut::Other(_) => None,
        }
    }

    /// How many elements rank `i` of the axis keeps of `len`.
    pub fn len(&self, len: usize, i: usize) -> usize {
        match self {
            DimCut::Chunks { pieces: 1, ranks } => chunk(len, *ranks, i).len,
            DimCut::Chunks { pieces, ranks } => {
                let c = len.div_ceil(*pieces);
                if c == 0 {
                    return 0;
                }
                (len / c) * chunk(c, *ranks, i).len + chunk(len % c, *ranks, i).len
            }
            DimCut::Sizes(sizes) => sizes[i],
            DimCut::Other(made) => made.len(len, i),
        }
    }

    /// Ranks of the axis among which every length is that some rank keeps of `len`.
    ///
    /// `chunk` gives full pieces up to index `floor(len / piece)`, one short piece there, and nothing after it, so the
    /// lengths can change only at those places of its two parts.
    pub fn places(&self, len: usize) -> SmallVec<[usize; 8]> {
        match self {
            DimCut::Chunks { pieces, ranks } => {
                let c = len.div_ceil(*pieces).max(1);
                let last = ranks - 1;
                let mut at: SmallVec<[usize; 8]> = SmallVec::from_slice(&[0, last]);
                for part in [c, len % c] {
                    let full = part / part.div_ceil(*ranks).max(1);
                    at.extend([full.saturating_sub(1), full, full + 1].map(|i| i.min(last)));
                }
                at
            }
            DimCut::Sizes(sizes) => (0..sizes.len()).collect(),
            DimCut::Other(made) => made.places(len),
        }
    }

    /// Every length that some rank of the axis keeps of `len`, in few candidates.
    pub fn lens(&self, len: usize) -> SmallVec<[usize; 8]> {
        self.places(len).into_iter().map(|i| self.len(len, i)).collect()
    }

    /// Whether this cut and then the next one, of what it leaves, are one cut of this split factor over both.
    ///
    /// A piece of `m` gives `c = ceil(m/n)` each, and then `ceil(c/n')` each. Over both at once it gives
    /// `ceil(m/(n n')) = ceil(c/n')` each, so the places are the same if `n'` divides `c`, or if nothing is left for the
    /// second rank. The next cut must cut every share for itself.
    pub fn goes_on(&self, next: &DimCut, len: usize) -> bool {
        let (pieces, ranks, next_pieces, next_ranks) = match (self, next) {
            (
                &DimCut::Chunks { pieces, ranks },
                &DimCut::Chunks { pieces: next_pieces, ranks: next_ranks },
            ) => (pieces, ranks, next_pieces, next_ranks),
            (DimCut::Chunks { .. }, DimCut::Sizes(_) | DimCut::Other(_))
            | (
                DimCut::Sizes(_) | DimCut::Other(_),
                DimCut::Chunks { .. } | DimCut::Sizes(_) | DimCut::Other(_),
            ) => {
                return false;
            }
        };
        let piece = len.div_ceil(pieces).max(1);
        let nests = |m: usize| {
            let c = m.div_ceil(ranks);
            c.is_multiple_of(next_ranks) || m <= c
        };
        nests(piece)
            && nests(len % piece)
            && self.places(len).into_iter().all(|i| {
                let share = chunk(piece, ranks, i).len;
                let left = self.len(len, i);
                left == 0 || left.div_ceil(next_pieces) == share
            })
    }

    /// Which elements rank `i` of the axis keeps of a list, in order.
    pub fn keep(&self, list: &[Interval], i: usize, dim: usize) -> Result<Intervals, Error> {
        let total: usize = list.iter().map(|x| x.len).sum();
        let mut taker = Taker { list, at: 0, before: 0 };
        let mut kept = Intervals::new();
        match self {
            DimCut::Chunks { pieces, ranks } => {
                let c = total.div_ceil(*pieces);
                if c == 0 {
                    return Ok(kept);
                }
                let pieces = total.div_ceil(c);
                if pieces > MAX_PIECES {
                    return Err(Error::TooFragmented { dim, pieces, limit: MAX_PIECES });
                }
                for piece in 0..pieces {
                    let start = piece * c;
                    let mine = chunk(c.min(total - start), *ranks, i);
                    taker.take(start + mine.start, mine.len, &mut kept);
                }
                if kept.len() > MAX_PIECES {
                    return Err(Error::TooFragmented { dim, pieces: kept.len(), limit: MAX_PIECES });
                }
            }
            DimCut::Sizes(sizes) => {
                let start = sizes[..i].iter().sum();
                // Made for this length only; elsewhere it keeps what there is.
                taker.take(start, sizes[i].min(total.saturating_sub(start)), &mut kept);
            }
            DimCut::Other(made) => {
                for x in made.of(total, i) {
                    taker.take(x.start, x.len, &mut kept);
                }
                if kept.len() > MAX_PIECES {
                    return Err(Error::TooFragmented { dim, pieces: kept.len(), limit: MAX_PIECES });
                }
            }
        }
        Ok(kept)
    }
}

/// Takes ranges of the concatenation of a list, from the left to the right.
struct Taker<'a> {
    list: &'a [Interval],
    at: usize,
    /// Elements before `list[at]`.
    before: usize,
}

impl Taker<'_> {
    fn take(&mut self, mut start: usize, mut len: usize, out: &mut Intervals) {
        while len > 0 {
            let x = self.list[self.at];
            if start >= self.before + x.len {
                self.before += x.len;
                self.at += 1;
                continue;
            }
            let skip = start - self.before;
            let n = len.min(x.len - skip);
            push(out, Interval { start: x.start + skip, len: n });
            start += n;
            len -= n;
        }
    }
}
