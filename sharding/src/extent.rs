//! Extents that do not divide: the arithmetic of `torch.chunk`.
//!
//! `chunk(N, n)` cuts `0..N` into pieces of `c = ceil(N/n)`: piece `i` is `[min(i*c, N), min((i+1)*c, N))`, so the last
//! ones are short or empty. `StridedShard(k)` over `n` ranks chunks into `k` pieces, chunks each over the ranks, and
//! gives rank `i` the `i`-th piece of every piece.

//! A ragged cut has its own sizes: piece `i` is `[s_0 + .. + s_(i-1), s_0 + .. + s_i)` of a length that all sizes make.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Error;
use crate::region::{Interval, Intervals};

/// The most pieces of one dim that are listed.
pub(crate) const MAX_PIECES: usize = 1 << 24;

/// Piece `i` of `n` of a length.
pub(crate) fn chunk(len: usize, n: usize, i: usize) -> Interval {
    let c = len.div_ceil(n);
    // i * c may leave usize only where it is past the end anyway.
    let start = i.saturating_mul(c).min(len);
    Interval { start, len: c.min(len - start) }
}

/// One cut of a dim by an axis of `n` ranks: `Shard` where `split_factor` is 1, else `StridedShard`; `Ragged` where there
/// are sizes (then the split factor is 1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cut {
    pub(crate) split_factor: usize,
    pub(crate) n: usize,
    pub(crate) sizes: Option<Arc<[usize]>>,
}

impl Cut {
    /// Chunks of `split_factor` pieces over `n` ranks.
    pub(crate) fn chunks(split_factor: usize, n: usize) -> Cut {
        Cut { split_factor, n, sizes: None }
    }

    /// These sizes, which become plain chunks where that is what they are.
    ///
    /// Requires that their sum fits.
    pub(crate) fn ragged(sizes: &Arc<[usize]>) -> Cut {
        let (n, total) = (sizes.len(), sizes.iter().sum());
        let plain = sizes.iter().enumerate().all(|(i, &s)| s == chunk(total, n, i).len);
        Cut { split_factor: 1, n, sizes: (!plain).then(|| sizes.clone()) }
    }

    /// The only length that a ragged cut cuts.
    pub(crate) fn total(&self) -> Option<usize> {
        self.sizes.as_ref().map(|s| s.iter().sum())
    }

    /// How many elements rank `i` of the axis keeps of `len`.
    pub(crate) fn len(&self, len: usize, i: usize) -> usize {
        if let Some(sizes) = &self.sizes {
            return sizes[i];
        }
        if self.split_factor == 1 {
            return chunk(len, self.n, i).len;
        }
        let c = len.div_ceil(self.split_factor);
        if c == 0 {
            return 0;
        }
        (len / c) * chunk(c, self.n, i).len + chunk(len % c, self.n, i).len
    }

    /// Ranks of the axis among which every length is that some rank keeps of `len`.
    ///
    /// `chunk` gives full pieces up to index `floor(len / piece)`, one short piece there, and nothing after it, so the
    /// lengths can change only at those places of its two parts.
    pub(crate) fn places(&self, len: usize) -> SmallVec<[usize; 8]> {
        if self.sizes.is_some() {
            return (0..self.n).collect();
        }
        let c = len.div_ceil(self.split_factor).max(1);
        let mut at: SmallVec<[usize; 8]> = SmallVec::from_slice(&[0, self.n - 1]);
        for part in [c, len % c] {
            let full = part / part.div_ceil(self.n).max(1);
            at.extend([full.saturating_sub(1), full, full + 1].map(|i| i.min(self.n - 1)));
        }
        at
    }

    /// Every length that some rank of the axis keeps of `len`, in few candidates.
    pub(crate) fn lens(&self, len: usize) -> SmallVec<[usize; 8]> {
        self.places(len).into_iter().map(|i| self.len(len, i)).collect()
    }

    /// Whether this cut and then the next one, of what it leaves, are one cut of this split factor over both.
    ///
    /// A piece of `m` gives `c = ceil(m/n)` each, and then `ceil(c/n')` each. Over both at once it gives
    /// `ceil(m/(n n')) = ceil(c/n')` each, so the places are the same if `n'` divides `c`, or if nothing is left for the
    /// second rank. The next cut must cut every share for itself.
    pub(crate) fn goes_on(&self, next: &Cut, len: usize) -> bool {
        if self.sizes.is_some() || next.sizes.is_some() {
            return false;
        }
        let piece = len.div_ceil(self.split_factor).max(1);
        let nests = |m: usize| {
            let c = m.div_ceil(self.n);
            c.is_multiple_of(next.n) || m <= c
        };
        nests(piece)
            && nests(len % piece)
            && self.places(len).into_iter().all(|i| {
                let share = chunk(piece, self.n, i).len;
                let left = self.len(len, i);
                left == 0 || left.div_ceil(next.split_factor) == share
            })
    }

    /// Which elements rank `i` of the axis keeps of a list, in order.
    pub(crate) fn keep(&self, list: &[Interval], i: usize, dim: usize) -> Result<Intervals, Error> {
        let total: usize = list.iter().map(|x| x.len).sum();
        let mut kept = Intervals::new();
        if let Some(sizes) = &self.sizes {
            let start = sizes[..i].iter().sum();
            // Made for this length only; elsewhere it keeps what there is.
            let len = sizes[i].min(total.saturating_sub(start));
            Taker { list, at: 0, before: 0 }.take(start, len, &mut kept);
            return Ok(kept);
        }
        let c = total.div_ceil(self.split_factor);
        if c == 0 {
            return Ok(kept);
        }
        let pieces = total.div_ceil(c);
        if pieces > MAX_PIECES {
            return Err(Error::TooFragmented { dim, pieces, limit: MAX_PIECES });
        }
        let mut taker = Taker { list, at: 0, before: 0 };
        for piece in 0..pieces {
            let start = piece * c;
            let mine = chunk(c.min(total - start), self.n, i);
            taker.take(start + mine.start, mine.len, &mut kept);
        }
        if kept.len() > MAX_PIECES {
            return Err(Error::TooFragmented { dim, pieces: kept.len(), limit: MAX_PIECES });
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

/// Appends an interval, joined to the last one where they touch.
pub(crate) fn push(out: &mut SmallVec<[Interval; 2]>, x: Interval) {
    if x.len == 0 {
        return;
    }
    match out.last_mut() {
        Some(last) if last.start + last.len == x.start => last.len += x.len,
        _ => out.push(x),
    }
}
