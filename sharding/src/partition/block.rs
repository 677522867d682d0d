//! Blocks of a given length, independent of the number of ranks.

use core::num::NonZeroUsize;
use std::sync::Arc;

use super::{DimPartition, RankRanges};
use crate::Error;

/// `BL(d,m)`: rank `i` keeps the indices `[i m, (i+1) m)` of the dim, the last ones fewer or none.
///
/// The chunk length of `Shard` depends on the part that earlier axes left; a block has the same length on
/// every rank. So flat chunks over several axes, as in XLA's tiles, are a sequence of blocks: of `N` over `a`
/// times `b` ranks, with `c = ceil(N / ab)`,
///
/// ```text
/// chunk(N, ab)_(i b + j)  =  [(i b + j) c, (i b + j + 1) c)  =  block j of c of  block i of b c
/// ```
///
/// ```
/// use reshard_sharding::{Mesh, Sharding};
/// let mesh: Mesh = "a=2,b=4".parse()?;
/// let s = Sharding::from_hlo(&mesh, &[11], &"{devices=[8]<=[8]}".parse()?)?;
/// assert_eq!(s.to_string(), "BL(0,8),BL(0,2)");
/// assert_eq!(s.global_indices(5)?, [10]); // of 8..11 by nested chunks it would be 9
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
///
/// A length that exceeds the blocks of all ranks is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(pub NonZeroUsize);

impl Block {
    /// Parses a block from the arguments after the dim.
    pub(super) fn read(arguments: &str) -> Result<Arc<dyn DimPartition>, Error> {
        let digits = !arguments.is_empty() && arguments.bytes().all(|b| b.is_ascii_digit());
        let len = arguments.parse().ok().filter(|_| digits);
        let len = len.ok_or_else(|| Error::Placement {
            reason: format!("BL takes the length of a block, at least 1, after the dim, not {arguments:?}"),
        })?;
        Ok(Arc::new(Block(len)))
    }
}

impl DimPartition for Block {
    fn name(&self) -> &'static str {
        "BL"
    }

    fn arguments(&self) -> String {
        self.0.to_string()
    }

    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
        let len = self.0.get();
        if len.saturating_mul(ranks) < extent {
            return Err(Error::Placement {
                reason: format!(
                    "{ranks} blocks of {len} do not cover {extent} indices; use blocks of at least {}",
                    extent.div_ceil(ranks)
                ),
            });
        }
        let mut pieces = RankRanges::new(ranks);
        for rank in 0..ranks.min(extent.div_ceil(len)) {
            pieces.add(rank, rank * len..((rank + 1).saturating_mul(len)).min(extent))?;
        }
        Ok(pieces)
    }
}
