//! The distribution of elements over ranks.

use reshard_sharding::{Block, DimPartition, Rolled, Zigzag, check_partition};
use reshard_sharding::{Mesh, Placement, Sharding};
use reshard_test_support::{Arbitrary, Gen, property};

use super::brought::{BlockCyclic, block_cyclic, registry};
use super::definition::{elements, indices, lists};

fn one_axis(n: usize) -> Mesh {
    Mesh::new([("x", n)]).unwrap()
}

/// Checks that everything that a sharding states of its ranks agrees with the definition.
fn is_as_defined(mesh: &Mesh, shape: &[usize], placements: &[Placement]) -> Sharding {
    let s =
        Sharding::new(mesh, shape, placements).unwrap_or_else(|e| panic!("{placements:?} {shape:?}: {e}"));
    let what = format!("{placements:?} of {shape:?} on {mesh}");
    let mut most = 0;
    for rank in mesh.ranks() {
        let dims = indices(mesh, shape, placements, rank);
        let region = s.region(rank).unwrap();
        for (dim, list) in dims.iter().enumerate() {
            assert_eq!(&region.indices(dim).unwrap().collect::<Vec<_>>(), list, "{what}, rank {rank}");
            let intervals = &region.dims[dim];
            assert!(intervals.iter().all(|x| x.len > 0), "{what}, rank {rank}");
            assert!(intervals.windows(2).all(|w| w[0].start + w[0].len < w[1].start), "{what}, rank {rank}");
        }
        let local: Vec<usize> = dims.iter().map(Vec::len).collect();
        assert_eq!(s.local_shape(rank).unwrap().as_slice(), local, "{what}, rank {rank}");
        assert_eq!(
            s.global_indices(rank).unwrap(),
            elements(mesh, shape, placements, rank),
            "{what}, rank {rank}"
        );
        most = most.max(local.iter().product());
    }
    assert_eq!(s.max_local_numel(), most, "{what}");
    let whole: Vec<i64> = (0..s.numel() as i64).map(|e| e * 31 + 7).collect();
    assert_eq!(s.assemble(&s.shard_all(&whole, 0).unwrap()).unwrap(), whole, "{what}");
    assert_eq!(Sharding::parse_with(&registry(), mesh, shape, &s.to_string()).as_ref(), Ok(&s), "{what}");
    s
}

#[test]
fn the_shipped_cut_and_a_good_one_keep_the_laws() {
    check_partition(&Zigzag, 0..=40, 1..=9).unwrap();
    for (block, ranks) in (1..=6).flat_map(|block| (1..=9).map(move |ranks| (block, ranks))) {
        // More than the blocks hold is rejected.
        let cut = Block(block.try_into().unwrap());
        check_partition(&cut, 0..=block * ranks, ranks..=ranks).unwrap();
        assert!(cut.ranges(block * ranks + 1, ranks).is_err());
    }
    for (by, ranks) in (0..=9).flat_map(|by| (1..=9).map(move |ranks| (by, ranks))) {
        // More indices than ranks are rejected.
        check_partition(&Rolled(by), 0..=ranks, ranks..=ranks).unwrap();
        assert!(Rolled(by).ranges(ranks + 1, ranks).is_err());
    }
    for block in 1..=5 {
        check_partition(&BlockCyclic(block), 0..=40, 1..=9).unwrap();
    }
}

#[test]
fn regions_are_what_the_definition_gives_on_one_axis() {
    for n in 1..=6 {
        for extent in 0..=24 {
            for list in lists(&one_axis(n), extent) {
                is_as_defined(&one_axis(n), &[extent], &list);
            }
        }
    }
}

#[test]
fn regions_are_what_the_definition_gives_on_two_axes() {
    for mesh in ["x=2,y=2", "x=2,y=3", "x=3,y=2", "x=1,y=4", "x=4,y=1", "x=6,y=2"] {
        let mesh: Mesh = mesh.parse().unwrap();
        for extent in 0..=24 {
            for list in lists(&mesh, extent) {
                is_as_defined(&mesh, &[extent], &list);
            }
        }
    }
}

/// A partition is chunks exactly where some chunks, plain or strided, give every rank the same.
#[test]
fn what_chunks_give_is_chunks() {
    let mut found = [0, 0];
    for n in 1..=6 {
        let mesh = one_axis(n);
        for extent in 0..=24usize {
            let cuts = (1..=6).map(|block| block_cyclic(0, block)).chain([Placement::zigzag(0)]);
            for p in cuts {
                let what = format!("{p} of {extent} over {n}");
                let s = Sharding::new(&mesh, &[extent], std::slice::from_ref(&p)).unwrap();
                let mine: Vec<Vec<usize>> =
                    mesh.ranks().map(|r| elements(&mesh, &[extent], std::slice::from_ref(&p), r)).collect();
                let same = (1..=extent.max(1)).find(|&split_factor| {
                    let chunks = [Placement::StridedShard { dim: 0, split_factor }];
                    mesh.ranks().zip(&mine).all(|(r, e)| *e == elements(&mesh, &[extent], &chunks, r))
                });
                let is_cut = matches!(s.placements().unwrap()[0], Placement::Custom { .. });
                assert_eq!(is_cut, same.is_none(), "{what}: {s}");
                if let Some(split_factor) = same {
                    let chunks = [Placement::StridedShard { dim: 0, split_factor }];
                    assert_eq!(s, Sharding::new(&mesh, &[extent], &chunks).unwrap(), "{what}");
                } else {
                    assert_eq!((s.layout(), s.ownership()), (None, None), "{what}");
                }
                found[usize::from(is_cut)] += 1;
            }
        }
    }
    assert!(found[0] > 300 && found[1] > 300, "{found:?}");
    let replicated = Sharding::replicated(&one_axis(1), &[8]).unwrap();
    assert_eq!(Sharding::new(&one_axis(1), &[8], &[Placement::zigzag(0)]).unwrap(), replicated);
}

/// Equal shardings of one mesh and shape hold the same elements.
#[test]
fn equal_shardings_hold_the_same() {
    for (mesh, extents) in [("x=4", 0..=17), ("x=2,y=2", 0..=13)] {
        let mesh: Mesh = mesh.parse().unwrap();
        for extent in extents {
            let all: Vec<(Sharding, Vec<Vec<usize>>)> = lists(&mesh, extent)
                .iter()
                .map(|list| {
                    let held = mesh.ranks().map(|r| elements(&mesh, &[extent], list, r)).collect();
                    (Sharding::new(&mesh, &[extent], list).unwrap(), held)
                })
                .collect();
            for (a, held_a) in &all {
                for (b, held_b) in &all {
                    assert!(a != b || held_a == held_b, "{a} and {b} of {extent}");
                    assert!(a != b || a.to_string() == b.to_string(), "{a} and {b} of {extent}");
                }
            }
        }
    }
}

/// Placements of two dims on up to three axes in any order of strides.
#[derive(Clone, Debug)]
struct Case {
    mesh: Mesh,
    shape: Vec<usize>,
    placements: Vec<Placement>,
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Case {
        let sizes: Vec<usize> = (0..=usize::arbitrary(g) % 3).map(|_| 1 + usize::arbitrary(g) % 4).collect();
        let axes = ["a", "b", "c"].iter().zip(&sizes);
        let text: Vec<String> = axes.map(|(name, n)| format!("{name}={n}")).collect();
        let mesh: Mesh = text.join(",").parse().unwrap();
        let shape: Vec<usize> = (0..2).map(|_| usize::arbitrary(g) % 40).collect();
        let placements = sizes
            .iter()
            .map(|_| {
                let dim = usize::arbitrary(g) % shape.len();
                match usize::arbitrary(g) % 7 {
                    0 => Placement::Replicate,
                    1 => Placement::Shard(dim),
                    2 => Placement::StridedShard { dim, split_factor: 1 + usize::arbitrary(g) % 6 },
                    3 => block_cyclic(dim, 1 + usize::arbitrary(g) % 6),
                    _ => Placement::zigzag(dim),
                }
            })
            .collect();
        Case { mesh, shape, placements }
    }
}

#[test]
fn random_shardings_are_what_the_definition_gives() {
    #[allow(clippy::needless_pass_by_value, reason = "quickcheck passes arguments by value")]
    fn law(case: Case) -> bool {
        let Case { mesh, shape, placements } = case;
        let s = is_as_defined(&mesh, &shape, &placements);
        s.layout().is_none() || s.ownership().is_some()
    }
    property!().tests(3_000).holds(law as fn(Case) -> bool);
}
