//! Shardings without replicas: the axes that replicate a tensor split it instead, within its existing splits.
//!
//! So each element belongs to one of the ranks that hold it, which reads it or writes it for all of them.

use reshard_sharding::{Axis, Placement, Placements, Sharding};

/// The largest number of combinations; all choices are tried for the first axes, the rest replicate.
const MOST_WAYS: usize = 128;

/// The largest mesh for which combinations are tried.
const MOST_RANKS: usize = 1 << 16;

/// Returns the shardings in which replicating axes split a dim, within existing splits, in all combinations.
pub(crate) fn ways(wanted: &Sharding) -> Vec<Sharding> {
    let Some(placements) = placements(wanted).filter(|_| wanted.mesh().size() <= MOST_RANKS) else {
        return Vec::new();
    };
    let axes = wanted.mesh().axes();
    let mut all: Vec<Vec<Placement>> = vec![Vec::new()];
    for (axis, placement) in placements.iter().enumerate() {
        let mut choices = vec![placement.clone()];
        if replicates(placement, &axes[axis]) {
            let dims = (0..wanted.shape().len()).filter(|dim| wanted.shape()[*dim] > 1);
            choices.extend(dims.map(|dim| split(&placements, axes, axis, dim)));
        }
        if all.len() * choices.len() > MOST_WAYS {
            choices.truncate(1);
        }
        let extended = |before: Vec<Placement>| {
            choices
                .iter()
                .map(move |choice| [&before[..], std::slice::from_ref(choice)].concat())
                .collect::<Vec<_>>()
        };
        all = all.into_iter().flat_map(extended).collect();
    }
    // Invalid combinations are skipped, such as a strided split of a dim that is split into blocks.
    all.iter().skip(1).filter_map(|placements| with(wanted, placements)).collect()
}

/// Returns the sharding in which each replicating axis splits the longest dim of a shard that is long enough.
///
/// An axis for which there is none still replicates. `None` if no axis splits anything.
pub(crate) fn once(wanted: &Sharding) -> Option<Sharding> {
    let mut placements = placements(wanted)?;
    let axes = wanted.mesh().axes();
    let mut stored: Option<Sharding> = None;
    for axis in 0..axes.len() {
        if !replicates(&placements[axis], &axes[axis]) {
            continue;
        }
        let sharding = stored.as_ref().unwrap_or(wanted);
        let extents = sharding.local_shape(sharding.mesh().ranks().next()?).ok()?;
        let mut dims: Vec<usize> =
            (0..extents.len()).filter(|dim| extents[*dim] >= axes[axis].size()).collect();
        dims.sort_by_key(|dim| (usize::MAX - extents[*dim], *dim));
        for dim in dims {
            let mut next = placements.clone();
            next[axis] = split(&placements, axes, axis, dim);
            if let Some(sharding) = with(wanted, &next) {
                (placements, stored) = (next, Some(sharding));
                break;
            }
        }
    }
    stored
}

/// Returns the placement of each axis; `None` if the sharding is not made of placements.
fn placements(of: &Sharding) -> Option<Vec<Placement>> {
    let placements: Placements = of.to_string().parse().ok()?;
    (placements.len() == of.mesh().axes().len()).then(|| placements.to_vec())
}

fn replicates(placement: &Placement, axis: &Axis) -> bool {
    *placement == Placement::Replicate && axis.size() > 1
}

/// Returns the placement by which an axis splits a dim within the splits of the other axes.
fn split(placements: &[Placement], axes: &[Axis], axis: usize, dim: usize) -> Placement {
    let inside: usize = (axis + 1..axes.len())
        .filter(|other| placements[*other].dim() == Some(dim))
        .map(|other| axes[other].size())
        .product();
    if inside > 1 { Placement::StridedShard { dim, split_factor: inside } } else { Placement::Shard(dim) }
}

fn with(wanted: &Sharding, placements: &[Placement]) -> Option<Sharding> {
    Sharding::new(wanted.mesh(), wanted.shape(), placements).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use reshard_sharding::{Mesh, Sharding};

    use super::once;

    #[test]
    fn each_element_belongs_to_one_of_its_holders() {
        for (mesh, shape, wanted, stored) in [
            ("dp=4", &[10, 3][..], "R", Some("S(0)")),
            ("dp=4", &[3, 10], "R", Some("S(1)")),
            ("dp=4", &[3, 3], "R", None),
            ("dp=4", &[], "R", None),
            ("dp=2,tp=2", &[8, 6], "R,S(0)", Some("S(1),S(0)")),
            ("dp=2,tp=2", &[16, 6], "R,S(0)", Some("SS(0,2),S(0)")),
            ("dp=2,tp=2", &[8, 8], "R,R", Some("S(0),S(1)")),
            ("dp=2,tp=3", &[8, 2], "S(1),R", Some("S(1),S(0)")),
            ("dp=2,tp=2", &[8, 6], "S(0),S(1)", None),
        ] {
            let mesh: Mesh = mesh.parse().unwrap();
            let wanted = Sharding::parse(&mesh, shape, wanted).unwrap();
            let found = once(&wanted);
            assert_eq!(found.as_ref().map(ToString::to_string).as_deref(), stored, "{wanted} of {shape:?}");
            let Some(stored) = found else { continue };
            let mut seen = HashSet::new();
            let indices = |sharding: &Sharding, rank: usize| -> Vec<u64> {
                let region = sharding.region(rank).unwrap();
                region.runs(shape).unwrap().flat_map(|run| run.indices().collect::<Vec<_>>()).collect()
            };
            for rank in mesh.ranks() {
                let held: HashSet<u64> = indices(&wanted, rank).into_iter().collect();
                for index in indices(&stored, rank) {
                    assert!(held.contains(&index) && seen.insert(index), "{stored}: {index} of rank {rank}");
                }
            }
            assert_eq!(seen.len(), shape.iter().product::<usize>());
        }
    }
}
