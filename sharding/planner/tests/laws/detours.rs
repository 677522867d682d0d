//! No intermediate sharding saves bytes: `bytes(S, U) <= bytes(S, T) + bytes(T, U)` over all triples of small
//! meshes, for objective bytes.

use reshard_kernels::DType;
use reshard_planner::{CandidateSource, Objective, Planner};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::{Sweep, shardings};

/// Returns the triples that violate the inequality, as text, and the number of all triples.
fn broken(mesh: &str, shape: &[usize], choices: &[&str]) -> (Vec<String>, usize) {
    let of: Mesh = mesh.parse().unwrap();
    let all = shardings(&of, shape, choices);
    let planner = Planner::new().objective(Objective::Bytes);
    let n = all.len();
    let bytes = |s: usize, t: usize| planner.plan(&all[s], &all[t], DType::F32).unwrap().received_bytes();
    let b: Vec<Vec<u64>> = (0..n).map(|s| (0..n).map(|t| bytes(s, t)).collect()).collect();
    let mut broken = Vec::new();
    for s in 0..n {
        for t in 0..n {
            for u in 0..n {
                if b[s][u] > b[s][t] + b[t][u] {
                    let (x, y, z) = (&all[s], &all[t], &all[u]);
                    broken.push(format!("{x} -> {y} -> {z}: {} > {} + {}", b[s][u], b[s][t], b[t][u]));
                }
            }
        }
    }
    (broken, n * n * n)
}

/// Returns the number of triples, none of which violates the inequality.
fn none_of(mesh: &str, shape: &[usize], choices: &[&str]) -> usize {
    let (broken, n) = broken(mesh, shape, choices);
    let first = broken[..broken.len().min(12)].join("\n");
    assert!(broken.is_empty(), "{} of {n} on {mesh} {shape:?}:\n{first}", broken.len());
    n
}

/// Returns all placements of a small axis.
fn choices(shape: &[usize]) -> &'static [&'static str] {
    if shape.len() == 1 { &["R", "S(0)", "P"] } else { &["R", "S(0)", "S(1)", "P"] }
}

#[test]
fn no_detour_saves_bytes() {
    let mut n = none_of("x=2,y=2", &[16, 8], &["R", "S(0)", "S(1)", "SS(0,2)", "P"]);
    n += none_of("x=4,y=2", &[16, 16], &["R", "S(0)", "S(1)", "P"]);
    n += none_of("x=3,y=2", &[36, 6], &["R", "S(0)", "S(1)", "P"]);
    n += none_of("x=2,y=2,z=2", &[16, 8], &["R", "S(0)", "S(1)"]);
    println!("{n} triples");
}

#[test]
fn no_detour_saves_bytes_of_uneven_terms_on_two_axes() {
    let (mut n, mut case) = (0, 0);
    for mesh in ["x=2,y=2", "x=2,y=3", "x=2,y=4", "x=3,y=2"] {
        for shape in [&[3][..], &[5], &[6], &[7], &[9], &[10], &[4, 5], &[5, 3], &[5, 7]] {
            if Sweep::asked().takes_one_in(11, case) {
                n += none_of(mesh, shape, choices(shape));
            }
            case += 1;
        }
    }
    println!("{n} triples");
}

#[test]
fn no_detour_saves_bytes_of_uneven_terms_on_three_axes() {
    let mut n = 0;
    let uneven = ["x=2,y=2,z=2", "x=2,y=3,z=2"].into_iter().flat_map(|mesh| [3, 5, 7].map(|n| (mesh, n)));
    for (case, (mesh, extent)) in uneven.chain([("x=3,y=3,z=2", 3)]).enumerate() {
        if Sweep::asked().takes_one_in(7, case) {
            n += none_of(mesh, &[extent], choices(&[extent]));
        }
    }
    println!("{n} triples");
}

#[test]
fn terms_that_may_stay_are_reduced_where_that_saves_bytes() {
    let mesh: Mesh = "x=2,y=4".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[7], text).unwrap();
    let (from, to) = (of("P,S(0)"), of("P,R"));
    let seen = Planner::new().objective(Objective::Bytes).explain(&from, &to, DType::F64).unwrap();
    assert_eq!(seen.plan.received_bytes(), 32);
    assert_eq!(seen.candidates.last().unwrap().origin, CandidateSource::Detour);
    // For objective time, nothing is added.
    assert!(
        Planner::new().plan(&from, &to, DType::F64).unwrap().steps().iter().all(|s| s.reduce().is_none())
    );
}
