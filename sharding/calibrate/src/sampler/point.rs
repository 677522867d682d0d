//! The points that are measured: collectives, groups of ranks, and sizes.

use std::collections::BTreeSet;

use reshard_planner::internal::MEASURED;

use crate::error::{Error, SampleFault};

use super::SampleOptions;

/// Sizes double between these two: there libraries change their protocols.
const DOUBLED: core::ops::Range<u64> = 256 << 10..32 << 20;

/// The greatest size: 1 TiB.
const MOST_BYTES: u64 = 1 << 40;

/// A point: one collective over one spread at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PointKey {
    /// The index of the collective in [`MEASURED`].
    pub(crate) collective: usize,
    pub(crate) nodes: usize,
    /// The number of ranks in all.
    pub(crate) ranks: usize,
    pub(crate) bytes: u64,
}

impl PointKey {
    /// Returns the first ranks of the first nodes.
    ///
    /// One group is measured at a time, as in tables of nccl-tests: others next to it would share its links.
    pub(crate) fn members(&self, node_ranks: usize) -> Vec<usize> {
        let of_node = |node: usize| (0..self.ranks / self.nodes).map(move |rank| node * node_ranks + rank);
        (0..self.nodes).flat_map(of_node).collect()
    }
}

/// Returns the points in the order in which they are measured: ascending sizes, and for each size all collectives.
pub(crate) fn blocks(options: &SampleOptions) -> Result<Vec<Vec<PointKey>>, Error> {
    let SampleOptions { world, node_ranks, most_bytes, .. } = *options;
    let fault = |fault| Err(Error::Samples(fault));
    if world < 2 || node_ranks == 0 || world % node_ranks != 0 {
        return fault(SampleFault::Ranks { world, node_ranks });
    }
    if !(1..=MOST_BYTES).contains(&most_bytes) {
        return fault(SampleFault::Bytes(most_bytes));
    }
    let is_time = |us: f64| us > 0.0 && us <= 1e15;
    let times = [options.sample_us, options.point_us, options.total_us, options.tolerance];
    if !times.into_iter().all(is_time) {
        return fault(SampleFault::Limits);
    }
    let places: Option<Vec<usize>> =
        options.collectives.iter().map(|of| MEASURED.iter().position(|op| op == of)).collect();
    let Some(places) = places.filter(|places| !places.is_empty()) else {
        return fault(SampleFault::Collectives);
    };
    if options.dtype.element_bytes().is_err() {
        return fault(SampleFault::DType(options.dtype));
    }
    let nodes = world / node_ranks;
    let spreads = if options.only_whole { vec![(nodes, world)] } else { spreads(nodes, node_ranks) };
    let mut blocks = Vec::new();
    for size in sizes(most_bytes) {
        for &collective in &places {
            let key = |&(nodes, ranks): &(usize, usize)| PointKey {
                collective,
                nodes,
                ranks,
                bytes: whole(size, ranks, options),
            };
            blocks.push(spreads.iter().map(key).collect());
        }
    }
    // Groups of many ranks have one least size for several small ones.
    let mut known = BTreeSet::new();
    for block in &mut blocks {
        let block: &mut Vec<PointKey> = block;
        block.retain(|key| known.insert(*key));
    }
    blocks.retain(|block| !block.is_empty());
    Ok(blocks)
}

/// Returns groups as nodes and ranks in all: parts of a node, one rank of each of some nodes, whole nodes.
fn spreads(nodes: usize, node_ranks: usize) -> Vec<(usize, usize)> {
    let inside = doubling(node_ranks).map(|ranks| (1, ranks));
    let single = doubling(nodes).map(|nodes| (nodes, nodes));
    let whole = doubling(nodes).map(|nodes| (nodes, nodes * node_ranks)).filter(|_| node_ranks > 1);
    inside.chain(single).chain(whole).collect()
}

/// Returns 2, 4, 8 .. and the number itself.
fn doubling(most: usize) -> impl Iterator<Item = usize> {
    let powers = core::iter::successors(Some(2_usize), |n| n.checked_mul(2));
    powers.take_while(move |&n| n < most).chain((most > 1).then_some(most))
}

/// Returns 512 B to the most: by 4, where protocols change by 2.
fn sizes(most: u64) -> Vec<u64> {
    let next = |&size: &u64| size.checked_mul(if DOUBLED.contains(&size) { 2 } else { 4 });
    let below = core::iter::successors(Some(512), next).take_while(|&size| size < most);
    // 128 KiB by 4 is 512 KiB.
    let mut sizes: Vec<u64> = below.chain([DOUBLED.start].into_iter().filter(|&size| size < most)).collect();
    sizes.push(most);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns the size, rounded up to a whole number of elements for each rank.
pub(super) fn whole(size: u64, ranks: usize, options: &SampleOptions) -> u64 {
    let element = options.dtype.element_bytes().unwrap_or(1);
    size.next_multiple_of((element * ranks) as u64)
}

#[cfg(test)]
mod tests {
    use super::{sizes, spreads};

    #[test]
    fn sizes_ascend_by_four_and_by_two_where_protocols_change() {
        let shifts = |most| -> Vec<u32> { sizes(most).into_iter().map(u64::trailing_zeros).collect() };
        assert_eq!(shifts(64 << 20), [9, 11, 13, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26]);
        assert_eq!(shifts(1 << 29), [9, 11, 13, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 27, 29]);
        assert_eq!((sizes(1000), sizes(100)), (vec![512, 1000], vec![100]));
    }

    #[test]
    fn groups_are_parts_of_a_node_and_of_nodes() {
        assert_eq!(spreads(1, 2), [(1, 2)]);
        assert_eq!(spreads(1, 6), [(1, 2), (1, 4), (1, 6)]);
        assert_eq!(spreads(4, 1), [(2, 2), (4, 4)]);
        assert_eq!(spreads(4, 8), [(1, 2), (1, 4), (1, 8), (2, 2), (4, 4), (2, 16), (4, 32)]);
    }
}
