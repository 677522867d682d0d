//! Zigzag: the first of a rank's two chunks is from the front, the second from the back.

use std::sync::Arc;

use super::{DimPartition, RankRanges, chunk};
use crate::Error;

/// `Z(d)`: the dim is split into `2n` chunks for `n` ranks.
///
/// Rank `r` keeps the chunks `r` and `2n - 1 - r`.
///
/// Under causal attention, where later positions cost more, all ranks of a context-parallel axis then have
/// equal work. The chunks are those of `torch.chunk`: `ceil(N/2n)` indices each, the last ones short or
/// empty.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding};
/// let mesh: Mesh = "cp=2".parse()?;
/// let s = Sharding::parse(&mesh, &[8], "Z(0)")?;
/// assert_eq!(s.global_indices(0)?, [0, 1, 6, 7]);
/// assert_eq!(s.global_indices(1)?, [2, 3, 4, 5]);
/// assert_eq!(s.layout(), None); // between its ranges, rank 0 steps by 6 and rank 1 by 2: no single stride is both
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zigzag;

impl Zigzag {
    /// Parses a zigzag, which takes no arguments after the dim.
    pub(super) fn read(arguments: &str) -> Result<Arc<dyn DimPartition>, Error> {
        if arguments.is_empty() {
            return Ok(Arc::new(Zigzag));
        }
        Err(Error::Placement { reason: format!("Z takes only a dim, not {arguments:?}") })
    }
}

impl DimPartition for Zigzag {
    fn name(&self) -> &'static str {
        "Z"
    }

    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
        let mut pieces = RankRanges::new(ranks);
        let twice = ranks.saturating_mul(2);
        for rank in 0..ranks {
            for i in [rank, twice - 1 - rank] {
                let x = chunk(extent, twice, i);
                pieces.add(rank, x.start..x.start + x.len)?;
            }
        }
        Ok(pieces)
    }
}
