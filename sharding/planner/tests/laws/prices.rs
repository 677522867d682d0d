//! The prices of equivalent problems: where digits nest, the order of the dims does not matter.

use reshard_kernels::DType;
use reshard_planner::internal::{Ask, Price, Prices};
use reshard_planner::{Arithmetic, Planner, SearchBudget, Topology};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::{Random, Sweep, shardings};

/// Checks that cached prices of equivalent problems are exact.
///
/// One cache serves all shapes of a mesh and a planner.
///
/// Returns the number of prices, of problems, and of those for which the budget ran out.
fn compare(
    planner: &Planner,
    mesh: &Mesh,
    shapes: &[&[usize]],
    choices: &[&str],
    every: usize,
) -> [usize; 3] {
    let (mut known, mut asked, mut exhausted) = (Prices::default(), 0, 0);
    let mut r = Random(29);
    for shape in shapes {
        let all: Vec<Sharding> = shardings(mesh, shape, choices);
        for from in &all {
            for to in &all {
                if r.below(every) > 0 {
                    continue;
                }
                let own = planner.price(from, to, DType::F32, Ask::Within(u64::MAX));
                exhausted += usize::from(own.as_ref().is_ok_and(|(_, effort)| effort.exhausted));
                let own = own.map(|(price, _)| match price {
                    Price::Exactly(picoseconds) => picoseconds,
                    Price::AtMost(_) | Price::MoreThan(_) => panic!("{from} -> {to}: {price:?}"),
                });
                let once = planner.price_once(from, to, DType::F32, &mut known);
                assert_eq!(once, own, "{from} -> {to} of {shape:?} on {mesh}");
                asked += 1;
            }
        }
    }
    [known.len(), asked, exhausted]
}

const SHARDS: [&str; 6] = ["R", "S(0)", "S(1)", "SS(0,2)", "P", "P(max)"];

#[test]
fn alike_questions_have_one_price() {
    let (mut kept, mut asked, mut exhausted) = (0, 0, 0);
    let few = &["R", "S(0)", "S(1)", "P"][..];
    for (mesh, shapes, choices, every) in [
        ("x=2,y=2", &[&[64, 64][..], &[4096, 1], &[1, 4096], &[2, 2048], &[64, 128]][..], &SHARDS[..], 4),
        ("x=2,y=4", &[&[64, 64], &[8, 512], &[512, 8], &[4, 2, 512], &[2, 2048]], &SHARDS, 8),
        // Shapes with unused positions that fit one digit, both, or none.
        ("x=4", &[&[36, 1], &[4, 9], &[6, 6], &[2, 2, 9], &[3, 12]], few, 1),
        ("x=4,y=2", &[&[2, 3, 6], &[6, 6]], few, 1),
        ("x=2,y=4", &[&[72, 1], &[8, 9], &[6, 6, 2], &[4, 18], &[2, 36]], few, 1),
        ("x=3,y=2", &[&[36, 36], &[6, 216], &[216, 6], &[4, 324], &[9, 144]], few, 2),
        // Small parts are not equal.
        ("x=2,y=4", &[&[4096, 4096], &[8, 8, 8, 8, 8, 8, 8, 8], &[8, 8, 64, 4096]], few, 1),
        (
            "x=8,y=2",
            &[&[4096, 32, 64], &[8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]],
            &["S(0)", "S(1)", "S(2)", "P"],
            1,
        ),
        ("x=2,y=2,z=2", &[&[4096, 4096], &[2, 8_388_608], &[128, 131_072]], few, 16),
        ("x=2,y=2@[3,1,0,2]", &[&[64, 64], &[2, 2048]], few, 1),
        ("x=5,y=2", &[&[5, 7], &[7, 5], &[35, 1]], &["R", "S(0)", "S(1)", "P", "P(avg)"], 2),
    ] {
        // Nodes of two ranks, with the figures of `h100`: small meshes have two levels.
        let pairs = "launch=6.6;message=0.2;level=2:2:370;level=*:8:45".parse().unwrap();
        let networks = [Topology::uniform(), pairs];
        for topology in networks.into_iter().skip(usize::from(!Sweep::asked().is_exhaustive())) {
            let planner = Planner::new().topology(topology);
            let mesh = mesh.parse().unwrap();
            let [k, n, _] = compare(&planner, &mesh, shapes, choices, every);
            (kept, asked) = (kept + k, asked + n);
            for budget in [0, 2_000, 20_000] {
                let little =
                    planner.clone().arithmetic(Arithmetic::Framework).budget(SearchBudget::new(budget));
                exhausted += compare(&little, &mesh, shapes, choices, 4 * every)[2];
            }
        }
    }
    assert!(exhausted > if Sweep::asked().is_exhaustive() { 1_000 } else { 400 }, "{exhausted} ran out");
    assert!(4 * kept < asked, "too few are equal: {kept} of {asked}");
}
