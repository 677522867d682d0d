//! Rolled: an index of a dim for each rank, but that of another, as where each rank works on what another has.

use std::sync::Arc;

use super::{DimPartition, RankRanges};
use crate::Error;

/// `RO(d,s)`: where [`Shard`](crate::Placement::Shard) gives a rank the indices `i`, it keeps `(i - s) mod N` of the dim.
///
/// So what is a shard of `x` placed so is a shard of `roll(x, s)` placed by `S(d)`, and a ring's step is the move from the one to the
/// other. A rank has at most one index, so that nothing is rolled within it; more indices than ranks are refused.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding, meaning::held};
/// let mesh: Mesh = "cp=4".parse()?;
/// let s = Sharding::parse(&mesh, &[4], "RO(0,1)")?;
/// assert_eq!(held(&s, 0)?, [3]);
/// assert_eq!(held(&s, 1)?, [0]);
/// let refused = Sharding::parse(&mesh, &[8], "RO(0,1)").unwrap_err().to_string();
/// assert!(refused.ends_with("a rank has at most one: make the ranks' parts a dim of their own"), "{refused}");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rolled(pub usize);

impl Rolled {
    /// Chunks that are rolled by what stands behind the dim.
    pub(super) fn read(arguments: &str) -> Result<Arc<dyn DimPartition>, Error> {
        let digits = !arguments.is_empty() && arguments.bytes().all(|b| b.is_ascii_digit());
        let by = arguments.parse().ok().filter(|_| digits);
        let by = by.ok_or_else(|| Error::Placement {
            reason: format!("RO takes behind the dim by how many indices it is rolled, not {arguments:?}"),
        })?;
        Ok(Arc::new(Rolled(by)))
    }
}

impl DimPartition for Rolled {
    fn name(&self) -> &'static str {
        "RO"
    }

    fn arguments(&self) -> String {
        self.0.to_string()
    }

    fn ranges(&self, extent: usize, ranks: usize) -> Result<RankRanges, Error> {
        if extent > ranks {
            return Err(Error::Placement {
                reason: format!(
                    "{extent} indices over {ranks} ranks, rolled by {}: a rank has at most one: make the ranks' parts a dim of their own",
                    self.0
                ),
            });
        }
        let mut pieces = RankRanges::new(ranks);
        let by = self.0.checked_rem(extent).unwrap_or(0);
        for rank in 0..extent {
            let index = (rank + (extent - by)) % extent;
            pieces.add(rank, index..index + 1)?;
        }
        Ok(pieces)
    }
}
