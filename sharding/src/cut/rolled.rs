//! Rolled: chunks of a dim whose indices are rolled, as where each rank works on what another has.

use std::sync::Arc;

use super::{Cut, Pieces, chunk};
use crate::Error;

/// `RO(d,s)`: where [`Shard`](crate::Placement::Shard) gives a rank the indices `i`, it keeps `(i - s) mod N` of the dim.
///
/// So what is a shard of `x` placed so is a shard of `roll(x, s)` placed by `S(d)`, and a ring's step is the move from the one to the
/// other. A part that would wrap from the last index to the first within a rank is refused.
///
/// ```
/// use reshard_sharding::{Mesh, Sharding, meaning::held};
/// let mesh: Mesh = "cp=4".parse()?;
/// let s = Sharding::parse(&mesh, &[8], "RO(0,2)")?;
/// assert_eq!(held(&s, 0)?, [6, 7]);
/// assert_eq!(held(&s, 1)?, [0, 1]);
/// let refused = Sharding::parse(&mesh, &[8], "RO(0,1)").unwrap_err().to_string();
/// assert!(refused.ends_with("rank 0 would keep 7..8 and then 0..1: roll by a multiple of 2"), "{refused}");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rolled(pub usize);

impl Rolled {
    /// Chunks that are rolled by what stands behind the dim.
    pub(super) fn read(arguments: &str) -> Result<Arc<dyn Cut>, Error> {
        let digits = !arguments.is_empty() && arguments.bytes().all(|b| b.is_ascii_digit());
        let by = arguments.parse().ok().filter(|_| digits);
        let by = by.ok_or_else(|| Error::Placement {
            reason: format!("RO takes behind the dim by how many indices it is rolled, not {arguments:?}"),
        })?;
        Ok(Arc::new(Rolled(by)))
    }
}

impl Cut for Rolled {
    fn name(&self) -> &'static str {
        "RO"
    }

    fn arguments(&self) -> String {
        self.0.to_string()
    }

    fn pieces(&self, extent: usize, ranks: usize) -> Result<Pieces, Error> {
        let mut pieces = Pieces::new(ranks);
        let by = self.0.checked_rem(extent).unwrap_or(0);
        for rank in 0..ranks {
            let own = chunk(extent, ranks, rank);
            if own.len == 0 {
                continue;
            }
            let start = (own.start + (extent - by)) % extent;
            let end = start + own.len;
            if end > extent {
                return Err(Error::Placement {
                    reason: format!(
                        "{extent} indices over {ranks} ranks rolled by {}: rank {rank} would keep {start}..{extent} and then 0..{}: roll by a multiple of {}",
                        self.0,
                        end - extent,
                        extent.div_ceil(ranks)
                    ),
                });
            }
            pieces.add(rank, start..end)?;
        }
        Ok(pieces)
    }
}
