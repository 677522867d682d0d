//! The ranges of a dim partition: an ascending list per rank, with a check that all of them are a partition.

use core::ops::Range;

use super::{MAX_PIECES, chunk};
use crate::Error;
use crate::region::{Interval, Intervals};

/// Maximum number of ranks of a partition that is not chunks or sizes.
pub(super) const MOST_RANKS: usize = 1 << 20;

/// The indices of a dim that each rank keeps, in ascending order.
///
/// Adjacent ranges are merged, and none is empty.
///
/// ```
/// use reshard_sharding::RankRanges;
/// let mut pieces = RankRanges::new(2);
/// pieces.add(1, 0..3)?;
/// pieces.add(0, 3..5)?;
/// pieces.add(1, 5..5)?;
/// pieces.add(0, 5..6)?;
/// assert_eq!(pieces.of(0), [reshard_sharding::Interval { start: 3, len: 3 }]);
/// assert!(pieces.add(1, 2..4).unwrap_err().to_string().starts_with("rank 1 has 0..3 and then 2..4"));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankRanges {
    ranks: usize,
    /// One list per rank, up to the last rank that has indices.
    lists: Vec<Intervals>,
    count: usize,
}

impl RankRanges {
    /// Returns an empty list for each of `ranks` ranks.
    pub fn new(ranks: usize) -> RankRanges {
        RankRanges { ranks, lists: Vec::new(), count: 0 }
    }

    /// Appends indices to those of a rank.
    ///
    /// Fails with `placement` for indices that do not follow the earlier ones, for a rank that does not
    /// exist, and for more than 2^24 ranges or 2^20 ranks in all.
    pub fn add(&mut self, rank: usize, indices: Range<usize>) -> Result<(), Error> {
        let bad = |reason: String| Err(Error::Placement { reason });
        if rank >= self.ranks {
            return bad(format!("rank {rank} has {indices:?}, but ranks must be below {}", self.ranks));
        }
        if rank >= MOST_RANKS {
            return bad(format!(
                "a partition by ranges is limited to {MOST_RANKS} ranks, not {}",
                self.ranks
            ));
        }
        if indices.start > indices.end {
            return bad(format!("rank {rank} has {indices:?}, which ends before it starts"));
        }
        if indices.is_empty() {
            return Ok(());
        }
        if self.lists.len() <= rank {
            self.lists.resize(rank + 1, Intervals::new());
        }
        let list = &mut self.lists[rank];
        match list.last_mut() {
            Some(last) if indices.start < last.start + last.len => {
                let last = last.start..last.start + last.len;
                bad(format!("rank {rank} has {last:?} and then {indices:?}; give indices in ascending order"))
            }
            Some(last) if indices.start == last.start + last.len => {
                last.len += indices.len();
                Ok(())
            }
            Some(_) | None if self.count == MAX_PIECES => bad(format!(
                "more than {MAX_PIECES} ranges, the last of them {indices:?} of rank {rank}; split the dim more \
                 coarsely"
            )),
            Some(_) | None => {
                list.push(Interval { start: indices.start, len: indices.len() });
                self.count += 1;
                Ok(())
            }
        }
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the ranges of a rank.
    pub fn of(&self, rank: usize) -> &[Interval] {
        self.lists.get(rank).map_or(&[], |list| list)
    }

    /// Returns the number of ranges of all ranks.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of indices that a rank keeps.
    pub(super) fn len(&self, rank: usize) -> usize {
        self.of(rank).iter().map(|x| x.len).sum()
    }

    /// Returns ranks that have, between them, every length that some rank keeps.
    pub(super) fn places(&self) -> Vec<usize> {
        let ranks = (self.lists.len() + 1).min(self.ranks);
        let mut places: Vec<usize> = (0..ranks).collect();
        places.sort_by_cached_key(|&i| self.len(i));
        places.dedup_by_key(|i| self.len(*i));
        places.sort_unstable();
        places
    }

    /// Returns the reason why these ranges are not a partition of `0..extent` among `ranks` ranks.
    ///
    /// Returns `None` if they are.
    pub(super) fn fault(&self, extent: usize, ranks: usize) -> Option<String> {
        if self.ranks != ranks {
            return Some(format!("its ranges are for {} ranks", self.ranks));
        }
        let mut all: Vec<(Interval, usize)> = Vec::with_capacity(self.count);
        for (rank, list) in self.lists.iter().enumerate() {
            all.extend(list.iter().map(|&x| (x, rank)));
        }
        all.sort_unstable_by_key(|(x, _)| x.start);
        let (mut end, mut before) = (0, 0);
        for &(x, rank) in &all {
            if x.start > end && end < extent {
                return Some(format!("no rank has index {end}"));
            }
            if x.start < end && x.start < extent {
                return Some(format!("ranks {before} and {rank} both have index {}", x.start));
            }
            if x.start + x.len > extent {
                return Some(format!("rank {rank} has {:?}, beyond the end", x.start..x.start + x.len));
            }
            (end, before) = (x.start + x.len, rank);
        }
        (end < extent).then(|| format!("no rank has index {end}"))
    }

    /// Returns the first-level chunk length of `0..extent`, if these ranges could be chunks of chunks.
    ///
    /// Requires a partition among two ranks or more, and an index. Rank 0 has the start of every chunk, of
    /// which it keeps less than the whole unless that is one index.
    pub(super) fn piece_len(&self, extent: usize) -> usize {
        match self.of(0) {
            [_, second, ..] => second.start,
            [Interval { start: 0, len }] if *len == extent => 1,
            [_] | [] => extent,
        }
    }

    /// Returns `true` if these are chunks of `piece` indices, each chunked over the ranks.
    ///
    /// Each step of the check finds one range, so the number of ranges bounds the work.
    pub(super) fn are_chunks(&self, extent: usize, piece: usize) -> bool {
        if piece <= 1 {
            return self.len(0) == extent;
        }
        let mut next = vec![0; self.lists.len()];
        let mut found = 0;
        for start in (0..extent).step_by(piece) {
            let len = piece.min(extent - start);
            for rank in 0..self.ranks {
                let mine = chunk(len, self.ranks, rank);
                if mine.len == 0 {
                    break;
                }
                let wanted = Interval { start: start + mine.start, len: mine.len };
                if next.get(rank).and_then(|&i| self.of(rank).get(i)) != Some(&wanted) {
                    return false;
                }
                next[rank] += 1;
                found += 1;
            }
        }
        found == self.count
    }
}
