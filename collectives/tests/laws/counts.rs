//! Token dispatch by counts and back: one exchange of exactly those rows, for all counts.

use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_sharding::{Counts, Mesh, Placement, Sharding};
use reshard_test_support::{Arbitrary, Gen, property};

use crate::pair::{check_pair, shards};

/// The rows from each of 2 to 5 ranks for each, the numbers per row, and copies along another axis.
#[derive(Clone, Debug)]
struct Routes {
    rows: Vec<Vec<usize>>,
    width: usize,
    copies: usize,
}

impl Arbitrary for Routes {
    fn arbitrary(g: &mut Gen) -> Routes {
        let ranks = 2 + usize::arbitrary(g) % 4;
        let mut count = || usize::arbitrary(g) % 9 * usize::from(u8::arbitrary(g) % 4 > 0);
        let rows = (0..ranks).map(|_| (0..ranks).map(|_| count()).collect()).collect();
        Routes { rows, width: 1 + usize::arbitrary(g) % 3, copies: 1 + usize::arbitrary(g) % 2 }
    }
}

#[test]
fn an_exchange_of_counts_receives_what_is_counted_and_no_more() {
    fn law(Routes { rows, width, copies }: Routes) -> bool {
        let counts = Counts::new(&rows).unwrap();
        let ranks = rows.len();
        let mesh = Mesh::new([("dp", copies), ("ep", ranks)]).unwrap();
        let shape = [counts.total(), width];
        let of = |p: Placement| Sharding::new(&mesh, &shape, &[Placement::Replicate, p]).unwrap();
        let (before, after) = (of(counts.source_placement(0)), of(counts.target_placement(0)));
        let mut world = World::new(mesh.size()).unwrap();
        let planner = Planner::new();
        let bytes = |count: &dyn Fn(usize, usize) -> usize| -> u64 {
            let of = |me: usize| (0..ranks).filter(|&other| other != me).map(|other| count(me, other)).sum();
            ((0..ranks).map(of).max().unwrap_or(0) * width * 8) as u64
        };
        let dispatched = bytes(&|me, other| rows[other][me]);
        let combined = bytes(&|me, other| rows[me][other]);
        // Copies may serve each other if that is less for the worst rank; without copies there is one plan.
        for (from, to, counted) in [(&before, &after, dispatched), (&after, &before, combined)] {
            check_pair(&mut world, &planner, from, to, &shards::<i64>(from, &[]));
            let plan = planner.plan(from, to, DType::I64).unwrap();
            assert!(plan.received_bytes() <= counted, "{plan}");
            assert!(copies > 1 || plan.received_bytes() == counted, "{plan}");
            assert!(plan.steps().len() <= 1 || copies > 1, "{plan}");
        }
        // Gradients of the experts' values return by the transposed exchange.
        let back = planner.plan(&before, &after, DType::I64).unwrap().transposed().unwrap();
        assert_eq!((back.from(), back.to()), (&after.cotangent().unwrap(), &before.cotangent().unwrap()));
        assert!(back.received_bytes() <= combined, "{back}");
        true
    }
    property!().tests(300).holds(law as fn(Routes) -> bool);
}
