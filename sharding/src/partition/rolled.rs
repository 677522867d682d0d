//! Rolled: one index of a dim per rank, shifted cyclically, as where each rank works on the data of another.

use std::sync::Arc;

use super::{DimPartition, RankRanges};
use crate::Error;

/// `RO(d,s)`: a rank with the indices `i` under [`Shard`](crate::Placement::Shard) keeps `(i - s) mod N`.
///
/// A shard of `x` with this placement is a shard of `roll(x, s)` with `S(d)`, and a ring step is the
/// redistribution from one to the other. A rank has at most one index, so that nothing is rolled within it;
/// more indices than ranks are rejected.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding};
/// let mesh: Mesh = "cp=4".parse()?;
/// let s = Sharding::parse(&mesh, &[4], "RO(0,1)")?;
/// assert_eq!(s.global_indices(0)?, [3]);
/// assert_eq!(s.global_indices(1)?, [0]);
/// let refused = Sharding::parse(&mesh, &[8], "RO(0,1)").unwrap_err().to_string();
/// assert!(refused.ends_with("a rank can have at most one; make the ranks' parts a separate dim"), "{refused}");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rolled(pub usize);

impl Rolled {
    /// Parses the shift from the arguments after the dim.
    pub(super) fn read(arguments: &str) -> Result<Arc<dyn DimPartition>, Error> {
        let digits = !arguments.is_empty() && arguments.bytes().all(|b| b.is_ascii_digit());
        let by = arguments.parse().ok().filter(|_| digits);
        let by = by.ok_or_else(|| Error::Placement {
            reason: format!("RO takes the shift, in indices, after the dim, not {arguments:?}"),
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
                    "{extent} indices over {ranks} ranks, rolled by {}: a rank can have at most one; make the ranks' \
                     parts a separate dim",
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
