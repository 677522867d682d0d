//! Zigzag: the first of a rank's two chunks from the front, the second from the back.

use std::sync::Arc;

use super::{DimPartition, RankRanges, chunk};
use crate::Error;

/// `Z(d)`: the dim is chunked into `2n` pieces for `n` ranks, and rank `r` keeps the pieces `r` and `2n - 1 - r`.
///
/// Under causal attention, where later positions look at more, all ranks of a context-parallel axis then have as much to do.
/// The pieces are those of `torch.chunk`: `ceil(N/2n)` indices each, the last ones short or empty.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding, meaning::held};
/// let mesh: Mesh = "cp=2".parse()?;
/// let s = Sharding::parse(&mesh, &[8], "Z(0)")?;
/// assert_eq!(held(&s, 0)?, [0, 1, 6, 7]);
/// assert_eq!(held(&s, 1)?, [2, 3, 4, 5]);
/// assert_eq!(s.layout(), None); // from piece to piece, rank 0 goes on by 6 and rank 1 by 2: no one stride is both
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zigzag;

impl Zigzag {
    /// A zigzag from what stands behind the dim.
    pub(super) fn read(arguments: &str) -> Result<Arc<dyn DimPartition>, Error> {
        if arguments.is_empty() {
            return Ok(Arc::new(Zigzag));
        }
        Err(Error::Placement { reason: format!("Z takes a dim alone, not {arguments:?}") })
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
