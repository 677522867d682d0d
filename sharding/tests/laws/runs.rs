//! Regions as runs of row-major indices.

use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Random;

/// The row-major indices of a region by its definition: coordinate by coordinate, the last fastest.
fn indices(sharding: &Sharding, rank: usize) -> Vec<u64> {
    let region = sharding.region(rank).unwrap();
    let mut all = vec![0u64];
    for (dim, &extent) in sharding.shape().iter().enumerate() {
        let next: Vec<usize> = region.indices(dim).unwrap().collect();
        all = all.iter().flat_map(|at| next.iter().map(move |i| at * extent as u64 + *i as u64)).collect();
    }
    all
}

#[test]
fn runs_are_the_indices_of_the_region_in_local_order() {
    let mut random = Random(11);
    let (mut compared, mut strided, mut many) = (0, 0, 0);
    for _ in 0..3000 {
        let mesh: Mesh = (*random.pick(&["x=2", "x=3", "x=2,y=3", "x=4,y=2,z=2"])).parse().unwrap();
        let dims = random.below(4);
        let shape: Vec<usize> = (0..dims).map(|_| random.below(8)).collect();
        let placements: Vec<String> = (mesh.axes().iter())
            .map(|_| match (random.below(5), dims) {
                (_, 0) | (0, _) => "R".to_owned(),
                (1, _) => format!("SS({},{})", random.below(dims), 1 + random.below(3)),
                (2, _) => format!("Z({})", random.below(dims)),
                _ => format!("S({})", random.below(dims)),
            })
            .collect();
        let Ok(sharding) = Sharding::parse(&mesh, &shape, &placements.join(",")) else { continue };
        for rank in mesh.ranks() {
            let runs: Vec<_> = sharding.region(rank).unwrap().runs(&shape).unwrap().collect();
            let listed: Vec<u64> = runs.iter().flat_map(|run| run.indices()).collect();
            assert_eq!(listed, indices(&sharding, rank), "{shape:?} {sharding} {rank}");
            assert!(runs.iter().all(|run| run.len > 0));
            compared += 1;
            strided += usize::from(runs.iter().any(|run| run.stride > 1 && run.len > 1));
            many += usize::from(runs.len() > 2);
        }
    }
    assert!(compared > 5000 && strided > 100 && many > 1000, "{compared} {strided} {many}");
}

/// Whole dims at the end form one run with the split dim before them, and a column is one run.
#[test]
fn runs_are_as_long_as_they_can_be() {
    let runs = |shape: &[usize], placements: &str| -> Vec<(u64, u64, u64)> {
        let mesh: Mesh = "x=2".parse().unwrap();
        let sharding = Sharding::parse(&mesh, shape, placements).unwrap();
        let region = sharding.region(1).unwrap();
        region.runs(shape).unwrap().map(|run| (run.start, run.len, run.stride)).collect()
    };
    assert_eq!(runs(&[], "R"), [(0, 1, 1)]);
    assert_eq!(runs(&[6, 4, 5], "R"), [(0, 120, 1)]);
    assert_eq!(runs(&[6, 4, 5], "S(0)"), [(60, 60, 1)]);
    assert_eq!(runs(&[3, 4, 5], "S(1)"), [(10, 10, 1), (30, 10, 1), (50, 10, 1)]);
    assert_eq!(runs(&[1000, 2], "S(1)"), [(1, 1000, 2)]);
    assert_eq!(runs(&[2, 3, 2], "S(2)"), [(1, 3, 2), (7, 3, 2)]);
    assert_eq!(runs(&[0, 5], "S(1)"), []);
    assert_eq!(runs(&[3, 0], "S(0)"), []);
}

#[test]
fn a_region_of_another_tensor_is_refused() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let region = Sharding::parse(&mesh, &[4, 6], "S(1)").unwrap().region(1).unwrap();
    for shape in [&[4][..], &[4, 5], &[3, 6], &[4, 6, 1], &[usize::MAX, usize::MAX]] {
        assert!(region.runs(shape).is_err(), "{shape:?}");
    }
}
