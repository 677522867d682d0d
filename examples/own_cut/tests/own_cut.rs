//! Tests of a custom dim partition.
#![allow(missing_docs, reason = "tests")]

use std::num::NonZeroUsize;

use own_cut::{BlockCyclic, registry};
use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_planner::{Plan, Planner};
use reshard_sharding::check_partition;
use reshard_sharding::{Mesh, Sharding};

fn block_cyclic(block: usize) -> BlockCyclic {
    BlockCyclic::new(NonZeroUsize::new(block).unwrap())
}

fn sharding(mesh: &Mesh, shape: &[usize], text: &str) -> Sharding {
    Sharding::parse_with(&registry().unwrap(), mesh, shape, text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn it_keeps_the_laws() {
    for block in 1..=7 {
        check_partition(&block_cyclic(block), 0..=40, 1..=8).unwrap();
    }
}

/// Index `i` belongs to rank `i / b mod n`.
#[test]
fn every_index_goes_to_its_rank() {
    for n in 1..=6 {
        let mesh = Mesh::new([("x", n)]).unwrap();
        for extent in 0..=24 {
            for block in 1..=5 {
                let s = Sharding::new(&mesh, &[extent], &[block_cyclic(block).of(0).unwrap()]).unwrap();
                for rank in mesh.ranks() {
                    let mine: Vec<usize> = (0..extent).filter(|i| i / block % n == rank).collect();
                    assert_eq!(s.global_indices(rank).unwrap(), mine, "{s} of {extent}, rank {rank}");
                }
            }
        }
    }
}

/// Whole rounds form a strided shard, which has a layout.
///
/// A short last round is dealt in blocks, not in equal chunks.
#[test]
fn whole_rounds_are_strided_shards() {
    let mesh: Mesh = "x=3".parse().unwrap();
    assert_eq!(sharding(&mesh, &[24], "BC(0,2)"), sharding(&mesh, &[24], "SS(0,4)"));
    assert_eq!(sharding(&mesh, &[24], "BC(0,8)"), sharding(&mesh, &[24], "S(0)"));
    assert_eq!(sharding(&mesh, &[26], "BC(0,2)").to_string(), "BC(0,2)");
}

#[test]
fn texts_and_what_is_stored_read_back_with_the_registry() {
    let mesh: Mesh = "x=3,y=2".parse().unwrap();
    let (from, to) = (sharding(&mesh, &[26, 4], "BC(0,2),Z(0)"), sharding(&mesh, &[26, 4], "S(1),BC(0,3)"));
    assert_eq!(from, sharding(&mesh, &[26, 4], &from.to_string()));
    let plan = Planner::new().plan(&from, &to, DType::F64).unwrap();
    let stored = serde_json::to_string(&plan).unwrap();
    let refused = serde_json::from_str::<Plan>(&stored).unwrap_err().to_string();
    assert!(refused.contains("register a custom partition BC before parsing"), "{refused}");
    let mut json = serde_json::Deserializer::from_str(&stored);
    let again = Plan::deserialize_with(&registry().unwrap(), &mut json).unwrap();
    assert_eq!((again.from(), again.to()), (&from, &to));
    assert_eq!(again.to_string(), plan.to_string());
}

/// Plans between it and all other placements put every element at its offset, on threads.
#[test]
fn plans_are_carried_out() {
    let mesh: Mesh = "x=3,y=2".parse().unwrap();
    let mut world = World::new(6).unwrap();
    let all =
        ["BC(0,2),R", "BC(0,3),S(0)", "S(0),BC(0,1)", "Z(0),BC(1,1)", "S(0),S(1)", "R,R", "BC(0,2),BC(0,3)"];
    for shape in [[24, 5], [26, 4], [3, 1], [0, 2]] {
        for from in all {
            for to in all {
                let (from, to) = (sharding(&mesh, &shape, from), sharding(&mesh, &shape, to));
                let whole: Vec<i64> = (0i64..).map(|e| e * 7 + 1).take(from.numel()).collect();
                let bytes = |shard: &Vec<i64>| shard.iter().flat_map(|x| x.to_ne_bytes()).collect();
                let shards: Vec<Vec<u8>> = from.shard_all(&whole, 0).unwrap().iter().map(bytes).collect();
                let plan = Planner::new().plan(&from, &to, DType::F64).unwrap();
                let (result, _) = world.redistribute(&plan, &shards).unwrap();
                let item = |x: &[u8]| i64::from_ne_bytes(x.try_into().unwrap());
                let result: Vec<Vec<i64>> =
                    result.iter().map(|s| s.chunks_exact(8).map(item).collect()).collect();
                assert_eq!(to.assemble(&result).unwrap(), whole, "{from} -> {to} of {shape:?}");
            }
        }
    }
}

#[test]
fn wrong_arguments_are_one_sentence() {
    let mesh: Mesh = "x=3".parse().unwrap();
    for text in ["BC(0)", "BC(0,0)", "BC(0,x)", "BC(0,99999999999999999999999)"] {
        let e = Sharding::parse_with(&registry().unwrap(), &mesh, &[9], text).unwrap_err();
        assert!(e.to_string().contains("in BC(dim,b); expected an integer of at least 1"), "{text}: {e}");
    }
    // No memory and no time is spent on a list that is too long.
    let e = Sharding::parse_with(&registry().unwrap(), &mesh, &[1 << 60], "BC(0,1)").unwrap_err();
    assert!(e.to_string().contains("more than 16777216 ranges"), "{e}");
}
