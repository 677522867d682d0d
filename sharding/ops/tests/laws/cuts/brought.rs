//! Custom dim partitions, valid and invalid.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reshard_sharding::{DimPartition, PartitionRegistry, RankRanges};
use reshard_sharding::{Error, Placement};

/// Block-cyclic: blocks of the given number of indices are dealt round-robin.
#[derive(Debug)]
pub(crate) struct BlockCyclic(pub(crate) usize);

impl DimPartition for BlockCyclic {
    fn name(&self) -> &'static str {
        "BC"
    }
    fn arguments(&self) -> String {
        self.0.to_string()
    }
    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
        let mut pieces = RankRanges::new(ranks);
        let mut start = 0;
        let mut rank = 0;
        while start < extent {
            let end = extent.min(start.saturating_add(self.0));
            pieces.add(rank, start..end)?;
            (start, rank) = (end, (rank + 1) % ranks);
        }
        Ok(pieces)
    }
}

pub(crate) fn block_cyclic(dim: usize, block: usize) -> Placement {
    Placement::custom(dim, Arc::new(BlockCyclic(block))).unwrap()
}

/// The registry that knows it.
pub(crate) fn registry() -> PartitionRegistry {
    let make = |arguments: &str| -> Result<Arc<dyn DimPartition>, Error> {
        match arguments.parse() {
            Ok(block) if block > 0 => Ok(Arc::new(BlockCyclic(block))),
            Ok(_) | Err(_) => {
                Err(Error::Placement { reason: format!("blocks of at least 1, not {arguments:?}") })
            }
        }
    };
    PartitionRegistry::new().with("BC", make).unwrap()
}

/// The defect of an invalid partition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrong {
    Overlap,
    Gap,
    Beyond,
    Descending,
    OtherRanks,
    NoSuchRank,
    TooMany,
    Refuses,
}

/// An invalid partition.
#[derive(Debug)]
pub(crate) struct Bad(pub(crate) Wrong);

impl DimPartition for Bad {
    fn name(&self) -> &'static str {
        "Bad"
    }
    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
        let mut pieces = RankRanges::new(ranks);
        let half = extent / 2;
        match self.0 {
            Wrong::Overlap => {
                pieces.add(0, 0..half + 1)?;
                pieces.add(ranks - 1, half..extent)?;
            }
            Wrong::Gap => {
                pieces.add(0, 0..half)?;
                pieces.add(ranks - 1, half + 1..extent)?;
            }
            Wrong::Beyond => pieces.add(0, 0..extent + 1)?,
            Wrong::Descending => {
                pieces.add(0, half..extent)?;
                pieces.add(0, 0..half)?;
            }
            Wrong::OtherRanks => {
                pieces = RankRanges::new(ranks + 1);
                pieces.add(ranks, 0..extent)?;
            }
            Wrong::NoSuchRank => pieces.add(ranks, 0..extent)?,
            Wrong::TooMany => {
                for i in 0..extent {
                    pieces.add(i % ranks, i..i + 1)?;
                }
            }
            Wrong::Refuses => {
                return Err(Error::Placement { reason: format!("{extent} is not supported here") });
            }
        }
        Ok(pieces)
    }
}

/// Returns another partition on each call, under one name.
#[derive(Debug, Default)]
pub(crate) struct Fickle(AtomicUsize);

impl DimPartition for Fickle {
    fn name(&self) -> &'static str {
        "Fickle"
    }
    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
        let turn = self.0.fetch_add(1, Ordering::Relaxed);
        let mut pieces = RankRanges::new(ranks);
        for i in 0..extent {
            pieces.add((i * i + turn) % ranks, i..i + 1)?;
        }
        Ok(pieces)
    }
}

/// A partition of any name and arguments.
#[derive(Debug)]
pub(crate) struct Called(pub(crate) &'static str, pub(crate) &'static str);

impl DimPartition for Called {
    fn name(&self) -> &str {
        self.0
    }
    fn arguments(&self) -> String {
        self.1.to_owned()
    }
    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
        let mut pieces = RankRanges::new(ranks);
        pieces.add(ranks - 1, 0..extent)?;
        Ok(pieces)
    }
}
