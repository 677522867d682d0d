//! The laws of a cut, to test anybody's.

use super::DimPartition;
use super::own::check_text;
use crate::Error;

/// Whether a cut keeps the laws of [`Cut`] for these extents over these numbers of ranks; the error is the first law that it
/// breaks, with the numbers.
///
/// ```text
/// pieces(N, n)     of every rank an ascending list, and all together each of 0..N once
/// name, arguments  a word, and one line that reads back; the same ones mean the same pieces, each time
/// ```
///
/// ```
/// use reshard_sharding::{Zigzag, check_cut};
/// check_cut(&Zigzag, 0..=24, 1..=6)?;
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
pub fn check_partition(
    cut: &dyn DimPartition,
    extents: impl IntoIterator<Item = usize>,
    ranks: impl IntoIterator<Item = usize>,
) -> Result<(), Error> {
    check_text(cut)?;
    let ranks: Vec<usize> = ranks.into_iter().collect();
    let name = cut.name();
    let broken = |reason: String| Err(Error::Placement { reason });
    for extent in extents {
        for &n in &ranks {
            let pieces = cut.ranges(extent, n)?;
            if let Some(fault) = pieces.fault(extent, n) {
                return broken(format!("the cut {name} of {extent} over {n} ranks is no partition: {fault}"));
            }
            if cut.ranges(extent, n)? != pieces {
                return broken(format!(
                    "the cut {name} of {extent} over {n} ranks has other pieces each time it is asked"
                ));
            }
        }
    }
    Ok(())
}
