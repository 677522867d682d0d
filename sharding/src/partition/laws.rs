//! The properties of a dim partition, as a test for custom ones.

use super::DimPartition;
use super::own::check_text;
use crate::Error;

/// Checks that a dim partition has the properties of [`DimPartition`] for these extents and numbers of ranks.
///
/// The error names the first property that it violates, with the numbers.
///
/// ```text
/// ranges(N, n)     an ascending list per rank, which jointly have each of 0..N once
/// name, arguments  an identifier, and one line that round-trips; equal ones give equal ranges on each call
/// ```
///
/// ```
/// use reshard_sharding::{Zigzag, check_partition};
/// check_partition(&Zigzag, 0..=24, 1..=6)?;
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
                return broken(format!(
                    "{name} of {extent} indices over {n} ranks is not a partition: {fault}"
                ));
            }
            if cut.ranges(extent, n)? != pieces {
                return broken(format!(
                    "{name} of {extent} indices over {n} ranks returns different ranges on each call"
                ));
            }
        }
    }
    Ok(())
}
