//! A dim split into the regions of a sharding: finds the owner of each index without examining every region.
//!
//! The regions of one dim (one for every value of the sub-axes that shard it) are disjoint and cover it.
//! Their ranges, sorted by start, are a map from index to owner. The indices that a list of intervals shares
//! with each region are then found by a walk over the ranges that it touches, for any number of regions.

use std::collections::BTreeMap;

use crate::Error;
use reshard_sharding::Interval;
use reshard_sharding::Intervals;
use reshard_sharding::internal::{Run, append};

/// The runs that a dim of one rank shares with each region of the other side: (region, runs).
pub(crate) type Shares = Vec<(usize, Vec<Run>)>;

/// The side of a copy on which the regions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The regions are sent from.
    Source,
    /// The regions are received into.
    Target,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    at: Interval,
    region: usize,
    /// Local index of the first element, in the region.
    local: usize,
}

/// The ranges of all regions of one dim, by start.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pieces: Vec<Piece>,
}

impl Partition {
    /// Returns the partition into `regions` regions, each an ascending list.
    pub(crate) fn new(
        regions: usize,
        intervals: impl Fn(usize) -> Result<Intervals, Error>,
    ) -> Result<Partition, Error> {
        let mut pieces = Vec::with_capacity(regions);
        for region in 0..regions {
            let mut local = 0;
            for at in intervals(region)? {
                pieces.push(Piece { at, region, local });
                local += at.len;
            }
        }
        pieces.sort_unstable_by_key(|p| p.at.start);
        Ok(Partition { pieces })
    }

    /// Returns the ranges that an interval touches.
    fn touched(&self, x: Interval) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.partition_point(|p| p.at.start + p.at.len <= x.start);
        self.pieces[first..].iter().take_while(move |p| p.at.start < x.start + x.len)
    }

    /// Returns the runs that an ascending list shares with each region it overlaps, regions ascending.
    pub(crate) fn shares(&self, list: &[Interval], side: Side) -> Shares {
        let mut shares: BTreeMap<usize, Vec<Run>> = BTreeMap::new();
        let mut before = 0;
        for &x in list {
            for p in self.touched(x) {
                let low = x.start.max(p.at.start);
                let high = (x.start + x.len).min(p.at.start + p.at.len);
                let (mine, theirs) = (before + low - x.start, p.local + low - p.at.start);
                let runs = shares.entry(p.region).or_default();
                match side {
                    Side::Source => append(runs, theirs, mine, high - low),
                    Side::Target => append(runs, mine, theirs, high - low),
                }
            }
            before += x.len;
        }
        shares.into_iter().collect()
    }

    /// Returns the regions that an ascending list overlaps, ascending, with the number of shared indices.
    pub(crate) fn met(&self, list: &[Interval]) -> Vec<(usize, usize)> {
        let mut met: Vec<(usize, usize)> = Vec::new();
        for &x in list {
            for p in self.touched(x) {
                let shared = (x.start + x.len).min(p.at.start + p.at.len) - x.start.max(p.at.start);
                match met.last_mut() {
                    Some(last) if last.0 == p.region => last.1 += shared,
                    Some(_) | None => met.push((p.region, shared)),
                }
            }
        }
        met.sort_unstable_by_key(|m| m.0);
        met.dedup_by(|b, a| {
            let same = a.0 == b.0;
            a.1 += if same { b.1 } else { 0 };
            same
        });
        met
    }
}
