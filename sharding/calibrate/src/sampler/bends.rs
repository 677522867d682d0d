//! Further sizes where a curve bends or jumps.

use std::collections::BTreeMap;

use super::SampleOptions;
use super::point::{PointKey, whole};
use super::series::Outcome;

/// The relative distance of a time from the line of its neighbours above which the sizes between are measured.
const BEND: f64 = 0.1;

/// The sizes of a curve, ascending, with their times if those are settled.
type Curve = Vec<(u64, Option<f64>)>;

/// Returns the sizes in the middle of two, of which one is far from the line of its neighbours.
pub(super) fn blocks(done: &BTreeMap<PointKey, Outcome>, options: &SampleOptions) -> Vec<Vec<PointKey>> {
    let mut curves: BTreeMap<(usize, usize, usize), Curve> = BTreeMap::new();
    for (key, outcome) in done {
        // A time that is not settled proves no bend: noise would add sizes.
        let us = outcome.median_us().filter(|_| outcome.cause.is_none());
        curves.entry((key.collective, key.nodes, key.ranks)).or_default().push((key.bytes, us));
    }
    let mut blocks: BTreeMap<(u64, usize), Vec<PointKey>> = BTreeMap::new();
    for ((collective, nodes, ranks), curve) in curves {
        let mut bends = vec![false; curve.len()];
        for (bends, three) in bends.iter_mut().skip(1).zip(curve.windows(3)) {
            let [(low, Some(before)), (size, Some(us)), (high, Some(after))] = [three[0], three[1], three[2]]
            else {
                continue;
            };
            let line = before + (after - before) * (size - low) as f64 / (high - low) as f64;
            *bends = (us / line - 1.0).abs() > BEND;
        }
        for (bends, two) in bends.windows(2).zip(curve.windows(2)) {
            let [low, high] = [two[0].0, two[1].0];
            let bytes = whole(low.midpoint(high), ranks, options);
            if bends.contains(&true) && low < bytes && bytes < high {
                // One block for all groups, as of the other sizes.
                let block = blocks.entry((bytes, collective)).or_default();
                block.push(PointKey { collective, nodes, ranks, bytes });
            }
        }
    }
    blocks.into_values().collect()
}
