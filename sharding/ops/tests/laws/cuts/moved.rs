//! Plans, views and ops.

use reshard_kernels::DType;
use reshard_ops::propagate::{Operand, Propagator};
use reshard_ops::rules::{Op, Rule};
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Mesh, Placement, ReduceOp, Sharding};
use reshard_test_support::{Arbitrary, Gen, Sweep, property, shards_of};

use super::brought::registry;
use super::definition::lists;
use reshard_test_support::interpreter::{bound_by_regions, run};

fn sharding(mesh: &Mesh, shape: &[usize], text: &str) -> Sharding {
    Sharding::parse_with(&registry(), mesh, shape, text)
        .unwrap_or_else(|e| panic!("{text} of {shape:?}: {e}"))
}

/// Plans and executes a redistribution, which keeps the global tensor.
///
/// Without partial values the worst rank receives exactly its missing bytes.
fn is_carried_out(from: &Sharding, to: &Sharding, seed: u64) {
    let what = format!("{from} -> {to} of {:?} on {} and {}", from.shape(), from.mesh(), to.mesh());
    let plan = Planner::new()
        .objective(Objective::Bytes)
        .plan(from, to, DType::F32)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    let shards = shards_of(from, seed);
    let world = from.mesh().world_size().max(to.mesh().world_size());
    let (result, received) = run(&plan, world, &shards);
    assert_eq!(to.assemble(&result).unwrap(), from.assemble(&shards).unwrap(), "{what}\n{plan}");
    assert_eq!(received, plan.received_bytes(), "{what}\n{plan}");
    if !from.is_partial() && !to.is_partial() {
        assert_eq!(received, 4 * bound_by_regions(from, to), "{what}\n{plan}");
    }
    Planner::new().plan(from, to, DType::F32).unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// Every list of placements of dim 0 over a mesh, one that shards another dim, and partial values.
fn everything(mesh: &Mesh, shape: &[usize]) -> Vec<Sharding> {
    let replicated = vec![Placement::Replicate; mesh.axes().len()];
    let last = |p: Placement| {
        let mut list = replicated.clone();
        list.pop();
        [list, vec![p]].concat()
    };
    let mut all = lists(mesh, shape[0]);
    all.extend([
        last(Placement::Shard(1)),
        last(Placement::Partial(ReduceOp::Sum)),
        last(Placement::zigzag(1)),
    ]);
    all.iter().map(|list| Sharding::new(mesh, shape, list).unwrap()).collect()
}

fn all_pairs_are_carried_out(mesh: &str, extents: impl IntoIterator<Item = usize>) {
    let mesh: Mesh = mesh.parse().unwrap();
    let mut cases = Sweep::asked().picking(16);
    for extent in extents {
        let all = everything(&mesh, &[extent, 3]);
        for from in &all {
            for to in &all {
                if cases.picks_next() {
                    is_carried_out(from, to, extent as u64);
                }
            }
        }
    }
}

#[test]
fn all_pairs_on_one_axis_are_carried_out() {
    for n in 1..=6 {
        all_pairs_are_carried_out(&format!("x={n}"), 0..=24);
    }
}

#[test]
fn all_pairs_on_two_by_two_are_carried_out() {
    all_pairs_are_carried_out("x=2,y=2", [0, 1, 5, 8, 13]);
}

#[test]
fn all_pairs_on_two_by_three_are_carried_out() {
    all_pairs_are_carried_out("x=2,y=3", [12, 19]);
}

#[test]
fn reductions_by_any_op_go_into_cuts() {
    for n in 2..=4 {
        let mesh: Mesh = format!("x={n}").parse().unwrap();
        let s = |text| sharding(&mesh, &[9, 3], text);
        for op in ["P", "P(max)", "P(min)", "P(avg)"] {
            is_carried_out(&s(op), &s("Z(0)"), 5);
            // A shard is not a partial value of an average.
            if op != "P(avg)" {
                is_carried_out(&s("Z(0)"), &s(op), 5);
            }
        }
    }
}

#[test]
fn meshes_may_differ() {
    let meshes: Vec<Mesh> = ["x=4", "x=2,y=3", "x=3@2"].iter().map(|m| m.parse().unwrap()).collect();
    for (a, from) in [(0, "Z(0)"), (1, "Z(0),S(0)"), (1, "S(1),Z(0)"), (2, "Z(0)")] {
        for (b, to) in [(0, "Z(0)"), (0, "S(0)"), (1, "S(0),Z(0)"), (1, "R,Z(1)"), (2, "BC(0,3)")] {
            let (from, to) = (sharding(&meshes[a], &[17, 5], from), sharding(&meshes[b], &[17, 5], to));
            is_carried_out(&from, &to, 3);
        }
    }
}

/// A gather of all ranks' ranges restores the order of elements.
#[test]
fn a_gather_puts_the_pieces_in_order() {
    let mesh: Mesh = "cp=4".parse().unwrap();
    for extent in [16, 13] {
        let (from, to) = (sharding(&mesh, &[extent], "Z(0)"), sharding(&mesh, &[extent], "R"));
        let plan = Planner::new().plan(&from, &to, DType::F32).unwrap();
        let whole: Vec<i64> = (0..extent as i64).collect();
        let shards = from.shard_all(&whole, 0).unwrap();
        assert_eq!(run(&plan, 4, &shards).0, vec![whole; 4], "{plan}");
    }
}

#[derive(Clone, Debug)]
struct Pair(Mesh, Vec<usize>, [Vec<String>; 2]);

impl Arbitrary for Pair {
    fn arbitrary(g: &mut Gen) -> Pair {
        let mesh: Mesh =
            (*g.choose(&["x=5", "x=2,y=3", "x=4,y=2", "x=2,y=2,z=2", "x=1,y=6"]).unwrap()).parse().unwrap();
        let shape = vec![usize::arbitrary(g) % 30, usize::arbitrary(g) % 9];
        let side = |g: &mut Gen| {
            let one = |_| {
                let dim = usize::arbitrary(g) % 2;
                match usize::arbitrary(g) % 10 {
                    8 | 9 => format!("BL({dim},{})", 15 + usize::arbitrary(g) % 4),
                    0 => "R".to_owned(),
                    1 => "P".to_owned(),
                    2 => format!("S({dim})"),
                    3 => format!("SS({dim},{})", 1 + usize::arbitrary(g) % 4),
                    4 => format!("BC({dim},{})", 1 + usize::arbitrary(g) % 4),
                    _ => format!("Z({dim})"),
                }
            };
            mesh.axes().iter().map(one).collect()
        };
        let sides = [side(g), side(g)];
        Pair(mesh.clone(), shape, sides)
    }
}

#[test]
fn random_pairs_are_carried_out() {
    #[allow(clippy::needless_pass_by_value, reason = "quickcheck passes arguments by value")]
    fn law(pair: Pair, seed: u64) -> bool {
        let Pair(mesh, shape, [from, to]) = pair;
        let s = |list: &[String]| sharding(&mesh, &shape, &list.join(","));
        is_carried_out(&s(&from), &s(&to), seed);
        true
    }
    property!().tests(1_500).holds(law as fn(Pair, u64) -> bool);
}

/// A view of a partitioned dim has each rank's elements in order, or the error names a valid sharding.
#[test]
fn views_hold_the_same_or_are_refused() {
    let mesh: Mesh = "x=2,y=3".parse().unwrap();
    let mut free = 0;
    for shape in [&[12, 4][..], &[1, 12], &[13, 2], &[6, 2, 2], &[0, 4], &[25]] {
        for text in ["Z(0),R", "Z(0),S(0)", "S(0),Z(0)", "R,Z(1)", "Z(0),Z(1)", "BC(0,2),S(1)", "S(1),Z(0)"] {
            let Ok(s) = Sharding::parse_with(&registry(), &mesh, shape, text) else { continue };
            let same = |t: &Sharding| {
                mesh.ranks().all(|r| s.global_indices(r).unwrap() == t.global_indices(r).unwrap())
            };
            let others: [&[usize]; 12] = [
                &[12, 4],
                &[48],
                &[12, 2, 2],
                &[1, 12],
                &[12],
                &[12, 1],
                &[26],
                &[6, 4],
                &[24],
                &[0],
                &[2, 0],
                &[5, 5],
            ];
            for to in others.iter().filter(|o| o.iter().product::<usize>() == s.numel()) {
                match s.view(to) {
                    Ok(t) => {
                        assert!(same(&t), "{s} of {shape:?} as {to:?}: {t}");
                        free += usize::from(*to != shape);
                    }
                    Err(e) => assert_eq!(e.code(), "needs_redistribute", "{s} of {shape:?} as {to:?}: {e}"),
                }
            }
            for (dim, &n) in shape.iter().enumerate() {
                for (start, len) in [(0, n), (0, n / 2), (n / 2, n - n / 2), (n, 0)] {
                    let Ok(t) = s.narrow(dim, start..start + len) else { continue };
                    for r in mesh.ranks() {
                        let (old, new) = (s.region(r).unwrap(), t.region(r).unwrap());
                        let part = |i: &usize| (start..start + len).contains(i);
                        let want: Vec<usize> =
                            old.indices(dim).unwrap().filter(part).map(|i| i - start).collect();
                        assert_eq!(
                            new.indices(dim).unwrap().collect::<Vec<_>>(),
                            want,
                            "{s} narrow {dim} {start} {len}"
                        );
                    }
                }
                let order: Vec<usize> = (0..shape.len()).rev().collect();
                let t = s.permute(&order).unwrap();
                let u = s.unsqueeze(dim).unwrap();
                for r in mesh.ranks() {
                    let (old, new) = (s.region(r).unwrap(), t.region(r).unwrap());
                    assert_eq!(old.dims[dim], new.dims[shape.len() - 1 - dim]);
                    let new = u.region(r).unwrap();
                    assert_eq!(old.dims[dim], new.dims[dim + 1]);
                }
            }
        }
    }
    let s = sharding(&mesh, &[1, 12], "R,Z(1)");
    assert_eq!(s.squeeze(0).unwrap().to_string(), "R,Z(0)");
    assert!(free > 10, "{free}");
}

fn choose(mesh: &Mesh, rule: &str, inputs: &[(&[usize], &str)]) -> (f64, String) {
    let shapes: Vec<&[usize]> = inputs.iter().map(|i| i.0).collect();
    let operands: Vec<Operand> =
        inputs.iter().map(|(s, p)| Operand::new(DType::F32, sharding(mesh, s, p))).collect();
    let op = Op::new("op", &rule.parse::<Rule>().unwrap(), &shapes).unwrap();
    let c = Propagator::new().propagate(&op, mesh, &operands, &[]).unwrap();
    for (o, shape) in c.outputs.iter().zip(op.outputs()) {
        assert_eq!(o.shape(), shape.as_slice());
    }
    (c.cost_us, c.outputs[0].to_string())
}

/// A factor that passes takes any dim partition, equal on all operands; other factors require a gather.
#[test]
fn batch_factors_take_any_cut() {
    let mesh: Mesh = "x=2,y=3".parse().unwrap();
    for text in ["Z(0),R", "R,BC(0,2)", "Z(0),BC(0,2)", "S(0),Z(0)", "Z(0),S(0)", "Z(0),S(1)"] {
        for n in [24, 25, 26] {
            let add = "...,...->...";
            let (cost, out) = choose(&mesh, add, &[(&[n, 6], text), (&[n, 6], text)]);
            let made = sharding(&mesh, &[n, 6], text).to_string();
            assert_eq!((cost, out), (0.0, made), "{text} of {n}");
        }
    }
    let (cost, out) = choose(&mesh, "mk,kn->mn", &[(&[25, 4], "Z(0),R"), (&[4, 5], "R,R")]);
    assert_eq!((cost, out.as_str()), (0.0, "Z(0),R"));
    // Both operands of a contraction have one order: for any order, the partial sums add up.
    let (cost, out) = choose(&mesh, "mk,kn->mn", &[(&[4, 25], "Z(1),R"), (&[25, 5], "Z(0),R")]);
    assert_eq!((cost, out.as_str()), (0.0, "P(sum),R"));
    for other in ["S(0),R", "R,Z(0)", "BC(0,2),R"] {
        let (cost, _) = choose(&mesh, "mk,kn->mn", &[(&[4, 25], "Z(1),R"), (&[25, 5], other)]);
        assert!(cost > 0.0, "{other}");
    }
    // A replica is sliced for nothing.
    let (cost, out) = choose(&mesh, "...,...->...", &[(&[25, 4], "Z(0),R"), (&[25, 4], "R,R")]);
    assert_eq!((cost, out.as_str()), (0.0, "Z(0),R"));
}

/// One strategy of an op run on each rank's shards, for a factor in a separate dim and in a dim with others.
#[test]
fn a_cut_of_a_compound_dim_is_not_that_of_its_first_factor() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let flat = |text: &str| choose(&mesh, "(ab)c->abc {a:4}", &[(&[24, 3], text)]);
    let of = |t: &Sharding| mesh.ranks().map(|r| t.global_indices(r).unwrap()).collect::<Vec<_>>();
    for text in ["Z(0)", "BC(0,2)", "BC(0,5)"] {
        let (cost, out) = flat(text);
        let (from, to) = (sharding(&mesh, &[24, 3], text), sharding(&mesh, &[4, 6, 3], &out));
        assert!(cost > 0.0 || of(&from) == of(&to), "{text} to {out} for nothing");
    }
}

#[test]
fn rules_may_name_a_cut() {
    let rule = "R->R; Z(0)->Z(0)";
    let mesh: Mesh = "x=2".parse().unwrap();
    let shapes: [&[usize]; 1] = [&[9]];
    let op = Op::with_outputs("op", &rule.parse().unwrap(), &shapes, &[&[9]]).unwrap();
    let operand = Operand::new(DType::F32, sharding(&mesh, &[9], "Z(0)"));
    let c = Propagator::new().propagate(&op, &mesh, &[operand], &[]).unwrap();
    assert_eq!((c.cost_us, c.outputs[0].to_string()), (0.0, "Z(0)".to_owned()));
}

#[test]
fn terms_go_into_any_cut() {
    let mesh: Mesh = "x=2,y=3".parse().unwrap();
    let placements = [Placement::Partial(ReduceOp::Sum), Placement::zigzag(0)];
    let from = Sharding::new(&mesh, &[25, 4], &placements).unwrap();
    for to in ["Z(0),R", "R,Z(0)", "S(0),Z(0)", "Z(0),S(1)", "P,R", "R,R", "S(1),BC(0,3)"] {
        is_carried_out(&from, &sharding(&mesh, &[25, 4], to), 9);
    }
}
