//! All small shardings, and networks for small tensors.

use reshard_planner::{Level, Topology};
use reshard_sharding::{Mesh, Sharding};

use crate::every;

/// Returns all placements on `axes` axes, as text: `R,S(0)`.
pub fn placements(choices: &[&str], axes: usize) -> Vec<String> {
    every(choices, axes).iter().map(|list| list.join(",")).collect()
}

/// Returns all shardings of a shape by these placements, without the invalid ones.
pub fn shardings(mesh: &Mesh, shape: &[usize], choices: &[&str]) -> Vec<Sharding> {
    let all = placements(choices, mesh.axes().len());
    all.iter().filter_map(|text| Sharding::parse(mesh, shape, text).ok()).collect()
}

/// Returns the same network with links slower by a factor.
///
/// A tensor then costs as much as one larger by that factor.
///
/// # Panics
///
/// If the result is not a valid network, as with `by` 0.
pub fn slower(topology: &Topology, by: usize) -> Topology {
    let level = |level: &Level| Level { gbytes_per_s: level.gbytes_per_s / by as f64, ..*level };
    let levels: Vec<Level> = topology.levels().iter().map(level).collect();
    Topology::new(topology.launch_us(), topology.message_us(), &levels).expect("a network")
}
