//! Custom dim partitions are validated, never trusted.

use std::sync::Arc;

use reshard_sharding::{DimPartition, NamedPartition, PartitionRegistry, check_partition};
use reshard_sharding::{Mesh, Placement, Sharding};

use super::brought::{Bad, BlockCyclic, Called, Fickle, Wrong, block_cyclic};

/// An invalid partition is rejected with the wrong values, by the checker and when a sharding is made.
#[test]
fn what_is_no_partition_is_refused() {
    let mesh: Mesh = "x=3".parse().unwrap();
    for (wrong, says) in [
        (Wrong::Overlap, "ranks 0 and 2 both have index 5"),
        (Wrong::Gap, "no rank has index 5"),
        (Wrong::Beyond, "rank 0 has 0..11, beyond the end"),
        (Wrong::Descending, "rank 0 has 5..10 and then 0..5"),
        (Wrong::OtherRanks, "its ranges are for 4 ranks"),
        (Wrong::NoSuchRank, "rank 3 has 0..10, but ranks must be below 3"),
        (Wrong::Refuses, "10 is not supported here"),
    ] {
        let p = Placement::custom(0, Arc::new(Bad(wrong))).unwrap();
        let e = Sharding::new(&mesh, &[10], &[p]).unwrap_err();
        assert_eq!(e.code(), "placement", "{e}");
        assert!(e.to_string().contains(says), "{wrong:?}: {e}");
        let e = check_partition(&Bad(wrong), 10..=10, 3..=3).unwrap_err();
        assert!(e.to_string().contains(says), "{wrong:?}: {e}");
    }
    let e = check_partition(&Fickle::default(), 10..=10, 3..=3).unwrap_err();
    assert!(e.to_string().contains("returns different ranges on each call"), "{e}");
}

/// Memory and time do not grow with the extents that a text names.
#[test]
fn no_more_pieces_are_made_than_are_listed() {
    let mesh: Mesh = "x=3".parse().unwrap();
    let p = Placement::custom(0, Arc::new(Bad(Wrong::TooMany))).unwrap();
    let e = Sharding::new(&mesh, &[1 << 60], &[p]).unwrap_err();
    assert!(e.to_string().contains("more than 16777216 ranges"), "{e}");
    let e = Sharding::new(&mesh, &[1 << 60], &[block_cyclic(0, 1)]).unwrap_err();
    assert!(e.to_string().contains("more than 16777216 ranges"), "{e}");
    // Zigzag has two ranges a rank, whatever the extent.
    let s = Sharding::new(&mesh, &[1 << 62], &[Placement::zigzag(0)]).unwrap();
    assert_eq!(s.region(1).unwrap().dims[0].len(), 2);
    let huge: Mesh = "x=1099511627776".parse().unwrap();
    let e = Sharding::parse(&huge, &[1 << 60], "Z(0)").unwrap_err();
    assert!(e.to_string().contains("at most 1048576 ranks"), "{e}");
}

/// A nondeterministic partition still makes shardings, each of which is fixed when it is made.
#[test]
fn a_sharding_keeps_what_its_cut_said() {
    let mesh: Mesh = "x=3".parse().unwrap();
    let cut: Arc<dyn DimPartition> = Arc::new(Fickle::default());
    let p = Placement::custom(0, cut).unwrap();
    let a = Sharding::new(&mesh, &[10], std::slice::from_ref(&p)).unwrap();
    let before: Vec<_> = mesh.ranks().map(|r| a.global_indices(r).unwrap()).collect();
    let b = Sharding::new(&mesh, &[10], &[p]).unwrap();
    assert_ne!(a, b, "equal names, other ranges");
    assert_eq!(before, mesh.ranks().map(|r| a.global_indices(r).unwrap()).collect::<Vec<_>>());
    assert_eq!(a.clone(), a);
}

#[test]
fn names_and_arguments_are_such_as_read_back() {
    for name in [
        "",
        "1A",
        "a b",
        "Ä",
        "S",
        "Shard",
        "R",
        "P",
        "RG",
        "RS",
        "PSx",
        "R_",
        "PartitionSpecial",
        "Z",
        "Zigzag",
        "BL",
        "CN",
        "Counts",
        "RO",
        "Rolled",
        "A-B",
    ] {
        let e = NamedPartition::new(Arc::new(Called(name, ""))).unwrap_err();
        assert!(e.to_string().starts_with("a partition cannot be named"), "{name}: {e}");
        assert!(PartitionRegistry::new().with(name, |_| Ok(Arc::new(BlockCyclic(1)))).is_err(), "{name}");
    }
    for arguments in ["(", ")", "[)", " 1", "1 ", "a\nb", "a}"] {
        let e = NamedPartition::new(Arc::new(Called("A", arguments))).unwrap_err();
        assert!(e.to_string().contains("balanced brackets"), "{arguments:?}: {e}");
        assert!(check_partition(&Called("A", arguments), 0..1, 1..2).is_err(), "{arguments:?}");
    }
    for (name, arguments) in [("A", ""), ("aB_9", "1"), ("Perm", "[1,(2)],{a:3}"), ("Rx", "ä, b")] {
        let cut: Arc<dyn DimPartition> = Arc::new(Called(name, arguments));
        check_partition(&*cut, 0..=9, 1..=4).unwrap();
        let cuts =
            PartitionRegistry::new().with(name, move |_| Ok(Arc::new(Called(name, arguments)))).unwrap();
        let p = Placement::custom(3, cut).unwrap();
        assert_eq!(Placement::parse_with(&cuts, &p.to_string()).as_ref(), Ok(&p));
        assert!(cuts.with(name, |_| Ok(Arc::new(BlockCyclic(1)))).is_err(), "{name} twice");
    }
    let other = PartitionRegistry::new().with("A", |_| Ok(Arc::new(Called("B", "")))).unwrap();
    let e = Placement::parse_with(&other, "A(0)").unwrap_err();
    assert!(e.to_string().contains("named B"), "{e}");
}
