//! Calls of the library with invalid arguments: errors, and no allocation as large as the arguments declare.

use reshard::collectives::threads::World;
use reshard::sharding::{GroupPattern, Mesh, Sharding};

#[test]
fn shards_of_no_elements_are_none_however_long_the_other_dims_are() {
    let mesh: Mesh = "x=2".parse().unwrap();
    for shape in [[1 << 32, 0], [0, 1 << 32]] {
        let s = Sharding::parse(&mesh, &shape, "S(0)").unwrap();
        let shards = s.shard_all(&[], 0_i64).unwrap();
        assert!(shards.len() == 2 && shards.iter().all(Vec::is_empty));
        assert!(s.assemble(&shards).unwrap().is_empty());
    }
}

#[test]
fn what_a_shape_says_is_checked_before_it_is_made() {
    let one: Mesh = "x=1".parse().unwrap();
    let s = Sharding::parse(&one, &[1 << 61], "R").unwrap();
    assert_eq!(s.assemble(&[vec![1_i64]]).unwrap_err().code(), "meaningless");
    let many: Mesh = "x=1099511627776".parse().unwrap();
    let s = Sharding::parse(&many, &[0], "R").unwrap();
    assert_eq!(s.shard_all(&[], 0_i64).unwrap_err().code(), "meaningless");
}

#[test]
fn a_world_of_more_threads_than_any_machine_runs_is_refused() {
    for ranks in [(1 << 16) + 1, 1 << 40, usize::MAX] {
        assert_eq!(World::new(ranks).err().unwrap().code(), "threads");
    }
}

#[test]
fn groups_end_where_ranks_do() {
    let pattern: GroupPattern = "4:1".parse().unwrap();
    assert_eq!(pattern.members(usize::MAX - 1).collect::<Vec<_>>(), [usize::MAX - 1, usize::MAX]);
}
