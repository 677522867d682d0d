//! Every pair of placements: plan, execute on threads, compare the global tensor, and compare the transferred
//! bytes with those that the plan promised.

use crate::pair::{Item, check_pair, shards, to_bytes};
use reshard_collectives::BufferLayout;
use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Placement, Placements, ReduceOp, Sharding};
use reshard_test_support::{Sweep, every};

const PER_AXIS: [Placement; 6] = [
    Placement::Replicate,
    Placement::Shard(0),
    Placement::Shard(1),
    Placement::StridedShard { dim: 0, split_factor: 2 },
    Placement::StridedShard { dim: 1, split_factor: 3 },
    Placement::Partial(ReduceOp::Sum),
];

/// Returns all lists of placements for a mesh whose dims the shape has.
fn all_placements(axes: usize, dims: usize) -> Vec<Vec<Placement>> {
    let fits = |placement: &Placement| {
        let (Placement::Shard(dim) | Placement::StridedShard { dim, .. }) = *placement else { return true };
        dim < dims
    };
    every(&PER_AXIS.iter().filter(|p| fits(p)).cloned().collect::<Vec<_>>(), axes)
}

/// Checks a subset of the pairs; one in `n` is a fair sample if `n` is coprime to the number of pairs.
fn check_mesh<T: Item>(mesh: &[usize], shapes: &[&[usize]], takes: impl Fn(usize) -> bool) -> usize {
    let mesh = Mesh::new(mesh.iter().enumerate().map(|(i, n)| (["x", "y", "z"][i], *n))).unwrap();
    let mut world = World::new(mesh.size()).unwrap();
    let mut done = 0;
    for shape in shapes {
        let lists = all_placements(mesh.axes().len(), shape.len());
        for (i, from) in lists.iter().enumerate() {
            let source = Sharding::new(&mesh, shape, from).unwrap();
            let data = shards::<T>(&source, from);
            for (j, to) in lists.iter().enumerate() {
                if takes(i * lists.len() + j) {
                    check_pair(
                        &mut world,
                        &Planner::new(),
                        &source,
                        &Sharding::new(&mesh, shape, to).unwrap(),
                        &data,
                    );
                    done += 1;
                }
            }
        }
    }
    done
}

const SHAPES: [&[usize]; 6] = [&[12, 12], &[24, 6], &[7, 5], &[], &[0, 5], &[1]];

#[test]
fn all_pairs_on_one_axis() {
    assert!(check_mesh::<i64>(&[2], &SHAPES, |_| true) > 100);
    assert!(check_mesh::<i64>(&[3], &SHAPES, |_| true) > 100);
}

#[test]
fn all_pairs_on_two_by_two() {
    let sweep = Sweep::asked();
    assert!(check_mesh::<i64>(&[2, 2], &SHAPES, |n| sweep.picks(16, n)) as u64 > sweep.least(300, 5000));
}

#[test]
fn all_pairs_on_two_by_three() {
    let sweep = Sweep::asked();
    assert!(check_mesh::<i64>(&[2, 3], &SHAPES, |n| sweep.picks(16, n)) as u64 > sweep.least(300, 5000));
}

#[test]
fn all_pairs_on_four_by_two() {
    let sweep = Sweep::asked();
    assert!(check_mesh::<i64>(&[4, 2], &SHAPES, |n| sweep.picks(24, n)) as u64 > sweep.least(150, 5000));
}

#[test]
fn a_sample_of_pairs_on_two_by_two_by_two() {
    let sweep = Sweep::asked();
    let takes = |n: usize| n.is_multiple_of(61) && sweep.picks(8, n);
    assert!(check_mesh::<i64>(&[2, 2, 2], &[&[16, 24], &[7, 5]], takes) as u64 > sweep.least(120, 1000));
}

#[test]
fn floats_whose_sums_depend_on_the_order_leave_equal_replicas() {
    let sweep = Sweep::asked();
    assert!(check_mesh::<f32>(&[3], &[&[12, 12], &[7, 5]], |_| true) > 70);
    for mesh in [&[2, 2], &[2, 3], &[4, 2]] {
        let done = check_mesh::<f32>(mesh, &[&[12, 12], &[7, 5]], |n| sweep.picks(24, n));
        assert!(done as u64 > sweep.least(75, 2500));
    }
    let takes = |n: usize| n.is_multiple_of(97) && sweep.picks(8, n);
    assert!(check_mesh::<f32>(&[2, 2, 2], &[&[16, 24]], takes) as u64 > sweep.least(45, 450));
}

#[test]
fn two_meshes_and_other_world_sizes() {
    let meshes = ["dp=2,tp=4", "tp=8", "cp=3,tp=2", "dp=2,tp=2@4", "dp=2:1,tp=2:2", "x=5@1"];
    let texts = |axes: usize| {
        if axes == 1 { vec!["S(0)", "R", "SS(1,3)"] } else { vec!["S(0),S(1)", "R,S(0)", "S(1),SS(1,2)"] }
    };
    let mut world = World::new(8).unwrap();
    let mut cases = Sweep::asked().picking(8);
    for shape in [&[16, 24][..], &[7, 5], &[0, 5]] {
        for from in meshes {
            for to in meshes {
                let (from, to): (Mesh, Mesh) = (from.parse().unwrap(), to.parse().unwrap());
                for before in texts(from.axes().len()) {
                    let source = Sharding::parse(&from, shape, before).unwrap();
                    let data = shards::<i64>(&source, &[]);
                    for after in texts(to.axes().len()) {
                        if !cases.picks_next() {
                            continue;
                        }
                        check_pair(
                            &mut world,
                            &Planner::new(),
                            &source,
                            &Sharding::parse(&to, shape, after).unwrap(),
                            &data,
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn zigzag_goes_everywhere_and_back() {
    for (mesh, texts) in [
        ("x=4", &["Z(0)", "Z(1)", "BL(0,7)", "S(0)", "S(1)", "SS(0,3)", "R", "P"][..]),
        (
            "x=2,y=3",
            &[
                "Z(0),S(0)",
                "S(0),Z(0)",
                "Z(0),Z(0)",
                "Z(1),Z(0)",
                "R,Z(0)",
                "P,Z(0)",
                "Z(0),P",
                "BL(0,14),BL(0,5)",
                "R,R",
                "S(1),S(0)",
            ],
        ),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let mut world = World::new(mesh.size()).unwrap();
        let mut cases = Sweep::asked().picking(8);
        for shape in [&[24, 6][..], &[16, 5], &[7, 13], &[0, 5], &[1, 2]] {
            for from in texts {
                let placements: Placements = from.parse().unwrap();
                let source = Sharding::new(&mesh, shape, &placements).unwrap();
                let data = shards::<i64>(&source, &placements);
                for to in texts {
                    if !cases.picks_next() {
                        continue;
                    }
                    let target = Sharding::parse(&mesh, shape, to).unwrap();
                    check_pair(&mut world, &Planner::new(), &source, &target, &data);
                }
            }
        }
    }
}

#[test]
fn partial_sources_go_to_other_meshes() {
    let mut world = World::new(8).unwrap();
    let from: Mesh = "dp=2,tp=4".parse().unwrap();
    for placements in [
        [Placement::Partial(ReduceOp::Sum), Placement::Shard(0)],
        [Placement::Shard(1), Placement::Partial(ReduceOp::Max)],
        [Placement::Partial(ReduceOp::Sum), Placement::Partial(ReduceOp::Sum)],
    ] {
        for to in ["tp=8", "cp=3,tp=2", "dp=2,tp=2@4"] {
            let to: Mesh = to.parse().unwrap();
            for shape in [&[16, 24][..], &[7, 5]] {
                let source = Sharding::new(&from, shape, &placements).unwrap();
                let data = shards::<i64>(&source, &placements);
                let text = if to.axes().len() == 1 { "S(0)" } else { "R,S(1)" };
                check_pair(
                    &mut world,
                    &Planner::new(),
                    &source,
                    &Sharding::parse(&to, shape, text).unwrap(),
                    &data,
                );
            }
        }
    }
}

#[test]
fn every_reduction_agrees() {
    let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    let mut world = World::new(6).unwrap();
    for op in [ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
        let per_axis = [Placement::Replicate, Placement::Shard(0), Placement::Partial(op)];
        let lists: Vec<[Placement; 2]> =
            per_axis.iter().flat_map(|a| per_axis.iter().map(|b| [a.clone(), b.clone()])).collect();
        for shape in [&[12, 6][..], &[7, 5]] {
            for from in &lists {
                for to in &lists {
                    let source = Sharding::new(&mesh, shape, from).unwrap();
                    let target = Sharding::new(&mesh, shape, to).unwrap();
                    check_pair(&mut world, &Planner::new(), &source, &target, &shards::<i64>(&source, from));
                }
            }
        }
    }
    // Averages, and sums mixed with averages, in floats that represent the results exactly enough.
    for from in ["P(avg),R", "P(avg),P(avg)", "P(sum),P(avg)", "P(avg),S(0)"] {
        for to in ["R,R", "S(0),R", "R,S(1)", "S(0),S(0)"] {
            let source = Sharding::parse(&mesh, &[7, 5], from).unwrap();
            let placements = source.placements().unwrap();
            let data = shards::<f32>(&source, placements.as_ref());
            check_pair(
                &mut world,
                &Planner::new(),
                &source,
                &Sharding::parse(&mesh, &[7, 5], to).unwrap(),
                &data,
            );
        }
    }
}

#[test]
fn buffers_of_any_memory_layout() {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let mut world = World::new(4).unwrap();
    let texts = ["S(0),S(1)", "S(1),S(0)", "R,S(2)", "S(0),S(0)", "SS(1,2),R", "P,S(2)", "P,P", "R,R"];
    let orders = [vec![0, 1, 2], vec![2, 0, 1], vec![2, 1, 0], vec![0, 2, 1]];
    for shape in [[8, 12, 4], [3, 5, 7]] {
        for from in texts {
            for to in texts {
                let (source, target) = (
                    Sharding::parse(&mesh, &shape, from).unwrap(),
                    Sharding::parse(&mesh, &shape, to).unwrap(),
                );
                let plan = Planner::new().plan(&source, &target, DType::I64).unwrap();
                let data = to_bytes(&shards::<i64>(&source, source.placements().unwrap().as_ref()));
                let (want, _) = world.redistribute(&plan, &data).unwrap();
                for (a, b) in [(1, 2), (3, 0), (0, 1), (2, 2)] {
                    let (here, there) =
                        (BufferLayout::Order(orders[a].clone()), BufferLayout::Order(orders[b].clone()));
                    let moved = permute(&source, &data, &BufferLayout::RowMajor, &here);
                    let (got, _) = world.redistribute_layouts(&plan, &moved, &here, &there).unwrap();
                    assert!(
                        permute(&target, &got, &there, &BufferLayout::RowMajor) == want,
                        "{from} -> {to} of {shape:?}"
                    );
                }
            }
        }
    }
}

/// Returns every shard, converted from one memory layout to another.
fn permute(sharding: &Sharding, shards: &[Vec<u8>], from: &BufferLayout, to: &BufferLayout) -> Vec<Vec<u8>> {
    let one = |(rank, shard): (usize, &Vec<u8>)| {
        let shape = sharding.local_shape(rank).unwrap();
        let extents: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
        if shape.contains(&0) {
            return Vec::new();
        }
        let layout = |memory: &BufferLayout| {
            let given = memory.layout(rank, &shape).unwrap();
            given.unwrap_or_else(|| {
                let orders: Vec<usize> = (0..extents.len()).collect();
                BufferLayout::Order(orders).layout(rank, &shape).unwrap().unwrap()
            })
        };
        let mut result = vec![0; shard.len()];
        reshard_kernels::reference::copy(&mut result, &layout(to), shard, &layout(from), 8);
        result
    };
    sharding.mesh().ranks().zip(shards).map(one).collect()
}
