//! The pieces of a cut: of every rank an ascending list, and whether all of them are a partition.

use core::ops::Range;

use super::{MAX_PIECES, chunk};
use crate::Error;
use crate::region::{Interval, Intervals};

/// The most ranks among which a cut that is not chunks or sizes shares out.
pub(super) const MOST_RANKS: usize = 1 << 20;

/// Which indices of a dim each rank keeps, in ascending order; pieces that touch are one, and none is empty.
///
/// ```
/// use reshard_sharding::Pieces;
/// let mut pieces = Pieces::new(2);
/// pieces.add(1, 0..3)?;
/// pieces.add(0, 3..5)?;
/// pieces.add(1, 5..5)?;
/// pieces.add(0, 5..6)?;
/// assert_eq!(pieces.of(0), [reshard_sharding::Interval { start: 3, len: 3 }]);
/// assert!(pieces.add(1, 2..4).unwrap_err().to_string().starts_with("rank 1 keeps 0..3 and then 2..4"));
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankRanges {
    ranks: usize,
    /// As far as ranks were given something.
    lists: Vec<Intervals>,
    count: usize,
}

impl RankRanges {
    /// Nothing yet, for so many ranks.
    pub fn new(ranks: usize) -> RankRanges {
        RankRanges { ranks, lists: Vec::new(), count: 0 }
    }

    /// Gives a rank some indices, behind those that it has.
    ///
    /// Fails with `placement` for indices that are not behind them, for a rank that is not there, and for more than 2^24
    /// pieces or 2^20 ranks in all.
    pub fn add(&mut self, rank: usize, indices: Range<usize>) -> Result<(), Error> {
        let bad = |reason: String| Err(Error::Placement { reason });
        if rank >= self.ranks {
            return bad(format!("rank {rank} gets {indices:?}, and ranks are below {}", self.ranks));
        }
        if rank >= MOST_RANKS {
            return bad(format!("a cut by pieces is over at most {MOST_RANKS} ranks, not {}", self.ranks));
        }
        if indices.start > indices.end {
            return bad(format!("rank {rank} gets {indices:?}, which ends before it starts"));
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
                bad(format!(
                    "rank {rank} keeps {last:?} and then {indices:?}: indices are given in ascending order"
                ))
            }
            Some(last) if indices.start == last.start + last.len => {
                last.len += indices.len();
                Ok(())
            }
            Some(_) | None if self.count == MAX_PIECES => bad(format!(
                "more than {MAX_PIECES} pieces, the last of them {indices:?} of rank {rank}: cut the dim more coarsely"
            )),
            Some(_) | None => {
                list.push(Interval { start: indices.start, len: indices.len() });
                self.count += 1;
                Ok(())
            }
        }
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// What a rank keeps.
    pub fn of(&self, rank: usize) -> &[Interval] {
        self.lists.get(rank).map_or(&[], |list| list)
    }

    /// How many pieces there are in all.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// How many indices a rank keeps.
    pub(super) fn len(&self, rank: usize) -> usize {
        self.of(rank).iter().map(|x| x.len).sum()
    }

    /// Ranks among which every length is that some rank keeps.
    pub(super) fn places(&self) -> Vec<usize> {
        let ranks = (self.lists.len() + 1).min(self.ranks);
        let mut places: Vec<usize> = (0..ranks).collect();
        places.sort_by_cached_key(|&i| self.len(i));
        places.dedup_by_key(|i| self.len(*i));
        places.sort_unstable();
        places
    }

    /// Why these are no partition of `0..extent` among so many ranks.
    pub(super) fn fault(&self, extent: usize, ranks: usize) -> Option<String> {
        if self.ranks != ranks {
            return Some(format!("its pieces are for {} ranks", self.ranks));
        }
        let mut all: Vec<(Interval, usize)> = Vec::with_capacity(self.count);
        for (rank, list) in self.lists.iter().enumerate() {
            all.extend(list.iter().map(|&x| (x, rank)));
        }
        all.sort_unstable_by_key(|(x, _)| x.start);
        let (mut end, mut before) = (0, 0);
        for &(x, rank) in &all {
            if x.start > end && end < extent {
                return Some(format!("no rank keeps index {end}"));
            }
            if x.start < end && x.start < extent {
                return Some(format!("ranks {before} and {rank} both keep index {}", x.start));
            }
            if x.start + x.len > extent {
                return Some(format!("rank {rank} keeps {:?}", x.start..x.start + x.len));
            }
            (end, before) = (x.start + x.len, rank);
        }
        (end < extent).then(|| format!("no rank keeps index {end}"))
    }

    /// How long the pieces are that chunks would first cut `0..extent` into, if these could be chunks of chunks.
    ///
    /// Requires a partition among two ranks or more, and an index. Rank 0 has the start of every piece, of which it keeps
    /// less than the whole unless that is one index.
    pub(super) fn piece_len(&self, extent: usize) -> usize {
        match self.of(0) {
            [_, second, ..] => second.start,
            [Interval { start: 0, len }] if *len == extent => 1,
            [_] | [] => extent,
        }
    }

    /// Whether these are pieces of `piece` indices, each chunked over the ranks; every step finds one of these pieces.
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
