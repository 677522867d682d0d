//! Splits of a dim among the ranks of a mesh axis.
//!
//! A split takes a length and gives each of `n` ranks its part. Nothing is padded: where the length is not
//! divisible, some ranks keep fewer elements than others, or none.
//!
//! **Chunks** are those of `torch.chunk`: `chunk(N, n)` splits `0..N` into chunks of `c = ceil(N/n)`, and
//! chunk `i` is `[min(i c, N), min((i+1) c, N))`, so the last ones are short or empty. `Shard` gives rank `i`
//! the `i`-th chunk. `StridedShard(k)` first splits the length into `k` chunks and then chunks each of those
//! over the ranks. Rank `i` concatenates the `i`-th part of every chunk; `Shard` is `k = 1`:
//!
//! ```text
//! c = ceil(N/k)      rank i keeps  floor(N/c) |chunk(c, n)_i| + |chunk(N mod c, n)_i|  of N
//! ```
//!
//! **Sizes** `s_0, .., s_(n-1)` (`Ragged`) are for the one length that they add up to, of which rank `i`
//! keeps `[s_0 + .. + s_(i-1), s_0 + .. + s_i)`.
//!
//! **Any other split** is a custom dim partition, a [`DimPartition`], which returns the indices that each rank keeps
//! for a length and a number of ranks: [`Zigzag`], [`Block`], [`Counts`], [`Rolled`], or one added by the
//! user ([`PartitionRegistry`]). It is called when a sharding is created, once for each length that the earlier
//! splits leave. The result is checked and stored, so it is then a list like any other. If the list equals
//! chunks, it is stored as chunks. Over one rank the list is everything, so there is nothing to split.
//!
//! Only this module and the comparison of uneven views match on the three variants; all other callers use
//! methods. A further variant (ragged splits over a prefix of the dims, sizes in relative units) therefore
//! needs no change to callers.

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

/// Maximum number of listed ranges of one dim.
pub(crate) const MAX_PIECES: usize = 1 << 24;

/// Returns chunk `i` of `n` chunks of a length.
pub fn chunk(len: usize, n: usize, i: usize) -> Interval {
    let c = len.div_ceil(n);
    // i * c may leave usize only where it is past the end anyway.
    let start = i.saturating_mul(c).min(len);
    Interval { start, len: c.min(len - start) }
}

/// The split of a dim among the ranks of an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DimCut {
    /// `pieces` chunks, each chunked again over the ranks; rank `i` keeps the `i`-th part of every chunk.
    Chunks {
        /// The split factor.
        pieces: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// A size for each rank.
    Sizes(Arc<[usize]>),
    /// The evaluated ranges of a custom dim partition.
    Other(Arc<Made>),
}

impl DimCut {
    /// Returns a split into `pieces` chunks over `ranks`; `pieces = 1` is plain chunks.
    pub fn chunks(pieces: usize, ranks: usize) -> DimCut {
        DimCut::Chunks { pieces, ranks }
    }

    /// Returns the split with these sizes, as plain chunks if the sizes equal plain chunks.
    ///
    /// Requires that their sum fits.
    pub fn ragged(sizes: &Arc<[usize]>) -> DimCut {
        let (n, total) = (sizes.len(), sizes.iter().sum());
        let plain = sizes.iter().enumerate().all(|(i, &s)| s == chunk(total, n, i).len);
        if plain { DimCut::chunks(1, n) } else { DimCut::Sizes(Arc::clone(sizes)) }
    }

    /// Returns this split, as plain chunks if its sizes equal plain chunks.
    #[must_use]
    pub fn simplest(self) -> DimCut {
        match self {
            DimCut::Chunks { .. } | DimCut::Other(_) => self,
            DimCut::Sizes(sizes) => DimCut::ragged(&sizes),
        }
    }

    /// Returns this split without a split factor: plain chunks over the same number of ranks, or these sizes.
    #[must_use]
    pub fn in_one_piece(self) -> DimCut {
        match self {
            DimCut::Chunks { ranks, .. } => DimCut::chunks(1, ranks),
            DimCut::Sizes(_) | DimCut::Other(_) => self,
        }
    }

    /// Returns the same split of `len` with the split factor reduced to the number of non-empty chunks.
    ///
    /// Requires `len > 0`.
    #[must_use]
    pub fn without_empty_pieces(&self, len: usize) -> DimCut {
        match self {
            DimCut::Chunks { pieces, ranks } => DimCut::chunks(len.div_ceil(len.div_ceil(*pieces)), *ranks),
            DimCut::Sizes(_) | DimCut::Other(_) => self.clone(),
        }
    }

    /// Returns the split of `part` in which every rank keeps the same indices.
    ///
    /// Returns `None` unless `part` consists of whole chunks of `len`.
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
                // The chunk length must stay the same for the narrowed extent.
                (whole && part.len().div_ceil(pieces) == piece).then(|| DimCut::chunks(pieces, ranks))
            }
            DimCut::Sizes(_) | DimCut::Other(_) => None,
        }
    }

    /// Returns the number of ranks of the axis.
    pub fn ranks(&self) -> usize {
        match self {
            DimCut::Chunks { ranks, .. } => *ranks,
            DimCut::Sizes(sizes) => sizes.len(),
            DimCut::Other(made) => made.ranks(),
        }
    }

    /// Returns the split factor: the number of chunks that are each distributed over all ranks.
    ///
    /// It is 1 for other variants.
    pub fn pieces(&self) -> usize {
        match self {
            DimCut::Chunks { pieces, .. } => *pieces,
            DimCut::Sizes(_) | DimCut::Other(_) => 1,
        }
    }

    /// Returns the sizes per rank, or `None` for the other variants.
    pub fn sizes(&self) -> Option<&Arc<[usize]>> {
        match self {
            DimCut::Chunks { .. } | DimCut::Other(_) => None,
            DimCut::Sizes(sizes) => Some(sizes),
        }
    }

    /// Returns the evaluated custom partition, or `None` for the other variants.
    pub fn other(&self) -> Option<&Arc<Made>> {
        match self {
            DimCut::Chunks { .. } | DimCut::Sizes(_) => None,
            DimCut::Other(made) => Some(made),
        }
    }

    /// Returns the split for the lengths that earlier splits leave, ascending.
    ///
    /// Evaluates a custom partition for each length.
    pub fn of_lens(self, lens: &[usize]) -> Result<DimCut, Error> {
        match self {
            DimCut::Chunks { .. } | DimCut::Sizes(_) => Ok(self),
            DimCut::Other(made) => made.of_lens(lens),
        }
    }

    /// Returns `true` for chunks, which are defined for every length.
    #[inline]
    pub fn is_chunks(&self) -> bool {
        match self {
            DimCut::Chunks { .. } => true,
            DimCut::Sizes(_) | DimCut::Other(_) => false,
        }
    }

    /// Returns the split by a custom partition, not yet evaluated for any length.
    #[inline(never)]
    pub fn by(cut: &NamedPartition, ranks: usize) -> DimCut {
        DimCut::Other(Arc::new(Made::new(cut, ranks)))
    }

    /// Returns `true` for plain chunks.
    pub fn is_plain(&self) -> bool {
        match self {
            DimCut::Chunks { pieces, .. } => *pieces == 1,
            DimCut::Sizes(_) | DimCut::Other(_) => false,
        }
    }

    /// Returns the only length that this splits, or `None` if it is defined for any length.
    pub fn total(&self) -> Option<usize> {
        self.sizes().map(|sizes| sizes.iter().sum())
    }

    /// Returns the number of non-empty chunks of `len` if all are equal and divide evenly among the ranks.
    ///
    /// Requires `len > 0`. Returns `None` for all variants but chunks.
    pub fn even_pieces(&self, len: usize) -> Option<usize> {
        match *self {
            DimCut::Chunks { pieces, ranks } => {
                let piece = len.div_ceil(pieces);
                (len.is_multiple_of(piece) && piece.is_multiple_of(ranks)).then(|| len / piece)
            }
            DimCut::Sizes(_) | DimCut::Other(_) => None,
        }
    }

    /// Returns the number of elements of `len` that rank `i` of the axis keeps.
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

    /// Returns ranks of the axis that have, between them, every length that some rank keeps of `len`.
    ///
    /// `chunk` gives full chunks up to index `floor(len / piece)`, one short chunk there, and nothing after
    /// it. So the lengths can change only at those indices of its two parts.
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

    /// Returns every length that some rank of the axis keeps of `len`, in few candidates.
    pub fn lens(&self, len: usize) -> SmallVec<[usize; 8]> {
        self.places(len).into_iter().map(|i| self.len(len, i)).collect()
    }

    /// Returns `true` if this split followed by `next` equals one split over both sets of ranks.
    ///
    /// That split has the split factor of this one.
    ///
    /// A chunk of `m` gives `c = ceil(m/n)` each, and then `ceil(c/n')` each. Over both at once it gives
    /// `ceil(m/(n n')) = ceil(c/n')` each, so the offsets are equal if `n'` divides `c`, or if nothing is
    /// left for the second rank. The next split must chunk every share separately.
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

    /// Returns the elements of a list that rank `i` of the axis keeps, in order.
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
                // Sizes are defined for this length only; for any other length, keep the available elements.
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
    /// The number of elements before `list[at]`.
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
