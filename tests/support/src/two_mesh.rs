//! Facts of trainers and servers: pairs of shardings on two meshes, from the peers' tests and mappings.

use reshard_kernels::DType;
use reshard_planner::{Plan, Planner, Topology};
use reshard_sharding::{Mesh, Sharding};

use crate::slower;

/// A pair of shardings of one tensor, on a network.
pub struct TwoMeshFact {
    /// A unique name, which begins with its source.
    pub name: &'static str,
    /// The source.
    pub from: Sharding,
    /// The target, on another mesh.
    pub to: Sharding,
    /// The same of a small shape with the same divisibility.
    pub small: [Sharding; 2],
    /// The type of the elements.
    pub dtype: DType,
    /// The network.
    pub topology: Topology,
}

impl TwoMeshFact {
    /// Returns the plan of the small shape, on a network so slow that it costs as much as the large one.
    ///
    /// # Panics
    ///
    /// If there is no plan.
    pub fn small_plan(&self, dtype: DType) -> Plan {
        let [from, to] = &self.small;
        let by = self.from.numel() / from.numel().max(1);
        let planner = Planner::new().topology(slower(&self.topology, by.max(1)));
        planner.plan(from, to, dtype).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// Returns the number of ranks that an engine needs to run it.
    pub fn world(&self) -> usize {
        self.from.mesh().world_size().max(self.to.mesh().world_size())
    }
}

/// Returns all facts.
///
/// # Panics
///
/// If the table of facts is invalid.
pub fn two_mesh_facts() -> Vec<TwoMeshFact> {
    include_str!("two_mesh.tsv").lines().filter(|line| !line.starts_with('#')).map(fact).collect()
}

fn fact(line: &'static str) -> TwoMeshFact {
    let cells: Vec<&str> = line.split('\t').collect();
    let [name, mesh, from, to_mesh, to, shape, small, dtype, topology, ..] = cells[..] else {
        panic!("{line}");
    };
    let numbers = |text: &str| -> Vec<usize> {
        text.split(',').map(|n| n.parse().unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    };
    let sharding = |mesh: &str, shape: &str, text: &str| {
        let mesh: Mesh = mesh.parse().unwrap_or_else(|e| panic!("{e}: {line}"));
        Sharding::parse(&mesh, &numbers(shape), text).unwrap_or_else(|e| panic!("{e}: {line}"))
    };
    TwoMeshFact {
        name,
        from: sharding(mesh, shape, from),
        to: sharding(to_mesh, shape, to),
        small: [sharding(mesh, small, from), sharding(to_mesh, small, to)],
        dtype: dtype.parse().unwrap_or_else(|e| panic!("{e}: {line}")),
        topology: topology.parse().unwrap_or_else(|e| panic!("{e}: {line}")),
    }
}
