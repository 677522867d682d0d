//! Block-cyclic shards, `BC(dim,b)`: blocks of `b` indices are dealt round, as `ScaLAPACK` distributes matrices.
//!
//! Everything that the library does with its own placements it does with this one: texts, stored shardings and plans, plans
//! on any engine, ops.

use std::num::NonZeroUsize;
use std::sync::Arc;

use reshard_sharding::{DimPartition, PartitionRegistry, RankRanges};
use reshard_sharding::{Error, Placement};

/// Blocks of a fixed number of indices, dealt to the ranks in turn.
#[derive(Clone, Copy, Debug)]
pub struct BlockCyclic {
    block: NonZeroUsize,
}

impl BlockCyclic {
    /// Blocks of this many indices.
    pub fn new(block: NonZeroUsize) -> BlockCyclic {
        BlockCyclic { block }
    }

    /// The placement of a dim.
    pub fn of(self, dim: usize) -> Result<Placement, Error> {
        Placement::custom(dim, Arc::new(self))
    }
}

impl DimPartition for BlockCyclic {
    fn name(&self) -> &'static str {
        "BC"
    }

    fn arguments(&self) -> String {
        self.block.to_string()
    }

    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
        let mut pieces = RankRanges::new(ranks);
        // `add` rejects too many blocks, so that no extent makes this loop long.
        for (i, start) in (0..extent).step_by(self.block.get()).enumerate() {
            let end = start.saturating_add(self.block.get()).min(extent);
            pieces.add(i % ranks, start..end)?;
        }
        Ok(pieces)
    }
}

/// Returns a registry with `BC` and the library's own dim partitions.
pub fn registry() -> Result<PartitionRegistry, Error> {
    PartitionRegistry::new().with("BC", |arguments| match arguments.parse() {
        Ok(block) => Ok(Arc::new(BlockCyclic::new(block))),
        Err(_) => Err(Error::Placement {
            reason: format!(
                "invalid block size {arguments:?} in BC(dim,b); expected an integer of at least 1"
            ),
        }),
    })
}
