//! The boxes of a region: one for every choice of an interval in each dim.

use reshard_sharding::{Interval, Region};

/// Calls `found` with the intervals of every box, in row-major order, until it fails.
pub(crate) fn each_box<E>(
    region: &Region,
    found: &mut impl FnMut(&[Interval]) -> Result<(), E>,
) -> Result<(), E> {
    below(region, &mut Vec::with_capacity(region.dims.len()), found)
}

fn below<E>(
    region: &Region,
    chosen: &mut Vec<Interval>,
    found: &mut impl FnMut(&[Interval]) -> Result<(), E>,
) -> Result<(), E> {
    let Some(dim) = region.dims.get(chosen.len()) else { return found(chosen) };
    for interval in dim {
        chosen.push(*interval);
        below(region, chosen, found)?;
        chosen.pop();
    }
    Ok(())
}

/// Returns the region that is one box.
pub(crate) fn of_box(intervals: &[Interval]) -> Region {
    Region { dims: intervals.iter().map(|one| [*one].into_iter().collect()).collect() }
}
