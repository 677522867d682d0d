//! All small shardings, and networks for small tensors.

use reshard_planner::{Level, Topology};
use reshard_sharding::{Mesh, Sharding};

use crate::every;

/// All placements on so many axes, as text: `R,S(0)`.
pub fn placements(choices: &[&str], axes: usize) -> Vec<String> {
    every(choices, axes).iter().map(|list| list.join(",")).collect()
}

/// All shardings of a shape by these placements, without those that are none.
pub fn shardings(mesh: &Mesh, shape: &[usize], choices: &[&str]) -> Vec<Sharding> {
    let all = placements(choices, mesh.axes().len());
    all.iter().filter_map(|text| Sharding::parse(mesh, shape, text).ok()).collect()
}

/// The same network with wires so many times slower: a tensor costs what one so many times larger does.
///
/// # Panics
///
/// If the network is none any more, as with `by` 0.
pub fn slower(topology: &Topology, by: usize) -> Topology {
    let level = |level: &Level| Level { gbytes_per_s: level.gbytes_per_s / by as f64, ..*level };
    let levels: Vec<Level> = topology.levels().iter().map(level).collect();
    Topology::new(topology.launch_us(), topology.message_us(), &levels).expect("a network")
}
