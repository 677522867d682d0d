//! Plans on meshes whose ranks are in any order, run on threads.

use crate::pair::{check_pair, shards};
use reshard_collectives::threads::World;
use reshard_planner::{Planner, Topology};
use reshard_sharding::{Mesh, Placements, Sharding};
use reshard_test_support::{Sweep, every};

const ORDERS: [&str; 5] = [
    "x=4@[1,2,3,0]",
    "x=2,y=2@[0,1,3,2]",
    "x=2,y=3@[0,1,3,2,4,5]",
    "x=2,y=2,z=2@[5,1,0,7,2,6,4,3]",
    "x=2,y=2@[2,7,1,4]",
];

/// Returns all placements of a mesh of these axes.
fn all(mesh: &Mesh, shape: &[usize]) -> Vec<(Sharding, Placements)> {
    let lists = every(&["R", "S(0)", "S(1)", "P"], mesh.axes().len());
    let read = |list: &Vec<&str>| {
        let placements: Placements = list.join(",").parse().unwrap();
        Some((Sharding::new(mesh, shape, &placements).ok()?, placements))
    };
    lists.iter().filter_map(read).collect()
}

#[test]
fn every_pair_in_any_order_means_the_tensor() {
    for (i, text) in ORDERS.iter().enumerate() {
        let mesh: Mesh = text.parse().unwrap();
        let mut world = World::new(mesh.world_size()).unwrap();
        let step = if mesh.axes().len() == 3 { 17 } else { 1 };
        for shape in [[12, 6], [7, 5]] {
            let all = all(&mesh, &shape);
            let pairs = all.iter().flat_map(|a| all.iter().map(move |b| (a, b)));
            for (n, ((from, placements), (to, _))) in pairs.skip(i).step_by(step).enumerate() {
                if !Sweep::asked().picks(16, n) {
                    continue;
                }
                let data = shards::<i64>(from, placements);
                check_pair(&mut world, &Planner::new(), from, to, &data);
            }
        }
        let planner = Planner::new().topology(Topology::h100());
        let all = all(&mesh, &[12, 6]);
        for ((from, placements), (to, _)) in all.iter().zip(all.iter().rev()) {
            check_pair(&mut world, &planner, from, to, &shards::<i64>(from, placements));
        }
    }
}

#[test]
fn pairs_of_meshes_in_different_orders_mean_the_tensor() {
    let mut world = World::new(8).unwrap();
    for a in ORDERS {
        for b in ORDERS {
            let [a, b]: [Mesh; 2] = [a.parse().unwrap(), b.parse().unwrap()];
            let (sources, targets) = (all(&a, &[7, 5]), all(&b, &[7, 5]));
            for ((from, placements), (to, _)) in sources.iter().zip(targets.iter().rev()).step_by(3) {
                check_pair(&mut world, &Planner::new(), from, to, &shards::<i64>(from, placements));
            }
        }
    }
}
