//! The tensors of shards with shapes larger than memory: an answer for empty shards, and an error otherwise.

use reshard_sharding::{Mesh, Sharding};

const HUGE: usize = 1 << 63;

#[test]
fn a_tensor_of_no_elements_is_scattered_and_means_itself_however_long_its_other_dims_are() {
    for text in
        ["R,R", "S(0),S(1)", "S(1),S(0)", "S(0),S(0)", "P,S(1)", "SS(0,2),S(0)", "Z(0),R", "BL(1,3),R"]
    {
        let mesh: Mesh = "x=2,y=2".parse().unwrap();
        for shape in [[1 << 32, 0], [0, 1 << 32], [0, (1 << 62) + 1], [0, 0]] {
            let Ok(s) = Sharding::parse(&mesh, &shape, text) else { continue };
            let shards = s.shard_all(&[], 0_i64).unwrap();
            assert!(shards.len() == 4 && shards.iter().all(Vec::is_empty), "{s}");
            assert_eq!(s.assemble(&shards), Ok(Vec::new()), "{s}");
            assert!((0..4).all(|rank| s.global_indices(rank) == Ok(Vec::new())), "{s}");
        }
    }
}

#[test]
fn dims_that_no_index_counts_are_refused_where_a_sharding_is_made() {
    let mesh: Mesh = "x=2".parse().unwrap();
    for shape in [&[0, HUGE, HUGE][..], &[HUGE, 0], &[1 << 32, 1 << 32, 0], &[HUGE], &[usize::MAX, 0]] {
        for text in ["R", "S(0)", "P", "SS(0,2)", "Z(0)"] {
            let error = Sharding::parse(&mesh, shape, text).unwrap_err();
            assert_eq!(error.code(), "overflow", "{text} of {shape:?}: {error}");
        }
    }
}

#[test]
fn what_is_too_much_to_list_is_refused_before_it_is_made() {
    let one: Mesh = "x=1".parse().unwrap();
    let s = Sharding::parse(&one, &[1 << 31], "R").unwrap();
    assert_eq!(s.global_indices(0).unwrap_err().code(), "meaningless");
    let many: Mesh = "x=1048576".parse().unwrap();
    let s = Sharding::parse(&many, &[1 << 13], "R").unwrap();
    assert_eq!(s.shard_all(&[0_u8; 1 << 13], 0).unwrap_err().code(), "meaningless");
    assert_eq!(s.shard(7, &[3_u8; 1 << 13], 0), Ok(vec![3; 1 << 13]));
}

#[test]
fn one_ranks_shard_is_its_part_of_all_shards() {
    let mesh: Mesh = "x=2,y=3".parse().unwrap();
    let whole: Vec<i32> = (0..35).collect();
    for text in ["R,R", "S(0),S(1)", "P,S(0)", "P,P", "S(1),S(0)", "Z(0),R"] {
        let s = Sharding::parse(&mesh, &[5, 7], text).unwrap();
        let all = s.shard_all(&whole, 0).unwrap();
        for (rank, all) in mesh.ranks().zip(all) {
            assert_eq!(s.shard(rank, &whole, 0), Ok(all), "{text}, rank {rank}");
        }
        assert_eq!(s.shard(6, &whole, 0).unwrap_err().code(), s.global_indices(6).unwrap_err().code());
        assert_eq!(s.shard(0, &whole[1..], 0).unwrap_err().code(), "meaningless");
    }
}
