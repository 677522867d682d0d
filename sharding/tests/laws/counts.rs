//! Counts of the rows from sources to ranks: ownership matches the definition, and a table round-trips.

use reshard_sharding::{Counts, Mesh, Placement, Sharding};
use reshard_test_support::{Arbitrary, Gen, property};

/// For each of up to five sources and up to five ranks a count, often none.
#[derive(Clone, Debug)]
struct Table(Vec<Vec<usize>>);

impl Arbitrary for Table {
    fn arbitrary(g: &mut Gen) -> Table {
        let (sources, ranks) = (1 + usize::arbitrary(g) % 5, 1 + usize::arbitrary(g) % 5);
        let mut count = || usize::arbitrary(g) % 7 * usize::from(bool::arbitrary(g));
        Table((0..sources).map(|_| (0..ranks).map(|_| count()).collect()).collect())
    }
}

#[test]
fn of_each_source_a_rank_keeps_what_is_counted_for_it() {
    fn law(Table(rows): Table) -> bool {
        let counts = Counts::new(&rows).unwrap();
        // The owner and the source of each index: a mark for each index.
        let mut owners: Vec<(usize, usize)> = Vec::new();
        for (source, row) in rows.iter().enumerate() {
            for (rank, &n) in row.iter().enumerate() {
                owners.extend((0..n).map(|_| (source, rank)));
            }
        }
        let of = |keeps: &dyn Fn(&(usize, usize)) -> bool| -> Vec<usize> {
            owners.iter().enumerate().filter(|(_, owner)| keeps(owner)).map(|(i, _)| i).collect()
        };
        let over = |n: usize, p: Placement| {
            let mesh = Mesh::new([("ep", n)]).unwrap();
            let s = Sharding::new(&mesh, &[owners.len()], &[p]).unwrap();
            assert_eq!(Sharding::parse(&mesh, s.shape(), &s.to_string()).as_ref(), Ok(&s));
            s
        };
        let received = counts.target_placement(0);
        assert_eq!(received.to_string().parse::<Placement>().as_ref(), Ok(&received));
        let (before, after) = (over(rows.len(), counts.source_placement(0)), over(rows[0].len(), received));
        let most = (0..counts.ranks()).map(|rank| counts.receives(rank)).max().unwrap();
        assert_eq!(counts.clone().within(most).as_ref(), Ok(&counts));
        assert!(most == 0 || counts.clone().within(most - 1).is_err());
        (0..counts.sources()).all(|rank| before.global_indices(rank) == Ok(of(&|owner| owner.0 == rank)))
            && (0..counts.ranks()).all(|rank| {
                let keeps = of(&|owner| owner.1 == rank);
                counts.receives(rank) == keeps.len() && after.global_indices(rank) == Ok(keeps)
            })
    }
    property!().tests(2_000).holds(law as fn(Table) -> bool);
}

#[test]
fn tables_that_are_none_are_refused() {
    let mesh: Mesh = "ep=2".parse().unwrap();
    for (text, says) in [
        ("CN(0)", "a list of counts per source"),
        ("CN(0,[])", "a list of counts per source"),
        ("CN(0,[[]])", "a list of counts per source"),
        ("CN(0,[[1,2],[3]])", "source 1 are for 1 ranks, and those of source 0 for 2"),
        ("CN(0,[[1,2][3,4]])", "a list of counts per source"),
        ("CN(0,[[1,-2]])", "a list of counts per source"),
        ("CN(0,[[1,2,1]])", "counts of 4 indices for 3 ranks do not match a dim of 4 over 2 ranks"),
        ("CN(0,[[1,2]])", "counts of 3 indices for 2 ranks do not match a dim of 4 over 2 ranks"),
        ("CN(0,[[18446744073709551615,1]])", "add up to more than"),
    ] {
        let error = Sharding::parse(&mesh, &[4], text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let error = Counts::new(&[vec![5, 1], vec![2, 1]]).unwrap().within(6).unwrap_err().to_string();
    assert!(error.contains("rank 0 receives 7 indices, and its capacity is 6; send it 1 fewer"), "{error}");
}
