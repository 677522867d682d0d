//! Shardings without replicas: the axes that replicate a tensor split it instead, within its existing splits.
//!
//! So each element belongs to one of the ranks that hold it, which reads it or writes it for all of them.

use reshard_sharding::{Axis, Sharding};

/// The largest number of combinations; all choices are tried for the first axes, the rest replicate.
const MOST_WAYS: usize = 128;

/// The largest mesh for which combinations are tried.
const MOST_RANKS: usize = 1 << 16;

/// Returns the shardings in which replicating axes split a dim, within existing splits, in all combinations.
pub(crate) fn ways(wanted: &Sharding) -> Vec<Sharding> {
    let text = wanted.to_string();
    let placements = apart(&text);
    let axes = wanted.mesh().axes();
    if placements.len() != axes.len() || wanted.mesh().size() > MOST_RANKS {
        return Vec::new();
    }
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    for (axis, placement) in placements.iter().enumerate() {
        let mut choices = vec![(*placement).to_owned()];
        if replicates(placement, &axes[axis]) {
            let dims = (0..wanted.shape().len()).filter(|dim| wanted.shape()[*dim] > 1);
            choices.extend(dims.map(|dim| split(&placements, axes, axis, dim)));
        }
        if all.len() * choices.len() > MOST_WAYS {
            choices.truncate(1);
        }
        let with = |before: Vec<String>| {
            choices
                .iter()
                .map(move |choice| [&before[..], std::slice::from_ref(choice)].concat())
                .collect::<Vec<_>>()
        };
        all = all.into_iter().flat_map(with).collect();
    }
    // Invalid combinations are skipped, such as a strided split of a dim that is split into blocks.
    all.iter().skip(1).filter_map(|placements| parsed(wanted, placements)).collect()
}

/// Returns the sharding in which each replicating axis splits the longest dim of a shard that is long enough.
///
/// An axis for which there is none still replicates. `None` if no axis splits anything.
pub(crate) fn once(wanted: &Sharding) -> Option<Sharding> {
    let text = wanted.to_string();
    let axes = wanted.mesh().axes();
    let mut placements: Vec<String> = apart(&text).into_iter().map(str::to_owned).collect();
    if placements.len() != axes.len() {
        return None;
    }
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
            let listed: Vec<&str> = placements.iter().map(String::as_str).collect();
            let mut next = placements.clone();
            next[axis] = split(&listed, axes, axis, dim);
            if let Some(sharding) = parsed(wanted, &next) {
                (placements, stored) = (next, Some(sharding));
                break;
            }
        }
    }
    stored
}

fn replicates(placement: &str, axis: &Axis) -> bool {
    placement == "R" && axis.size() > 1
}

/// Returns the placement by which an axis splits a dim within the splits of the other axes.
fn split(placements: &[&str], axes: &[Axis], axis: usize, dim: usize) -> String {
    let of_dim = |text: &str| text.split(['(', ',', ')']).nth(1) == Some(&dim.to_string()[..]);
    let inside: usize = (axis + 1..axes.len())
        .filter(|other| of_dim(placements[*other]))
        .map(|other| axes[other].size())
        .product();
    if inside > 1 { format!("SS({dim},{inside})") } else { format!("S({dim})") }
}

fn parsed(wanted: &Sharding, placements: &[String]) -> Option<Sharding> {
    Sharding::parse(wanted.mesh(), wanted.shape(), &placements.join(",")).ok()
}

/// Splits a text into its placements, at commas outside of parentheses.
fn apart(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        depth += i32::from(c == '(' || c == '[') - i32::from(c == ')' || c == ']');
        c == ',' && depth == 0
    })
    .collect()
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
