//! Plans of all pairs of placements, executed by a small interpreter of phases, and compared by global
//! tensor.

use reshard_kernels::DType;
use reshard_planner::{Objective, Plan, Planner, Step, StepOp, Topology};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::interpreter::{bound_by_regions, run};
use reshard_test_support::{Random, Sweep, placements, shards_of};

/// A source sharding, shards of it, and their global tensor.
struct Source<'a> {
    sharding: &'a Sharding,
    shards: Vec<Vec<i64>>,
    means: Vec<i64>,
}

impl Source<'_> {
    fn of(sharding: &Sharding) -> Source<'_> {
        let shards = shards_of(sharding, 12345);
        let means = sharding.assemble(&shards).unwrap();
        Source { sharding, shards, means }
    }
}

fn check(from: &Sharding, to: &Sharding, objective: Objective) -> Plan {
    check_from(&Source::of(from), to, objective)
}

fn check_from(source: &Source<'_>, to: &Sharding, objective: Objective) -> Plan {
    let from = source.sharding;
    let plan = Planner::new()
        .objective(objective)
        .plan(from, to, DType::F64)
        .unwrap_or_else(|e| panic!("{from} -> {to}: {e}"));
    let world = from.mesh().world_size().max(to.mesh().world_size());
    let (got, received) = run(&plan, world, &source.shards);
    let got = to.assemble(&got).unwrap_or_else(|e| panic!("{e}: {plan}"));
    assert_eq!(got, source.means, "{plan}");
    assert_eq!(received, plan.received_bytes(), "{plan}");
    if let Some(bound) = plan.lower_bound_bytes() {
        assert!(received >= bound, "below the bound: {plan}");
        if !from.is_partial() {
            let truth = bound_by_regions(from, to) * 8;
            assert_eq!(truth, bound, "{plan}");
            // Less memory may take more bytes.
            assert!(received == truth || objective == Objective::Peak, "{plan}");
        }
    }
    plan
}

fn all_pairs(mesh: &str, shapes: &[&[usize]], choices: &[&str]) -> usize {
    let mesh: Mesh = mesh.parse().unwrap();
    let mut n = 0;
    for &shape in shapes {
        let shardings: Vec<Sharding> = placements(choices, mesh.axes().len())
            .iter()
            .filter_map(|p| Sharding::parse(&mesh, shape, p).ok())
            .collect();
        for from in &shardings {
            let source = Source::of(from);
            for to in &shardings {
                for objective in [Objective::Time, Objective::Bytes] {
                    if Sweep::asked().picks(16, n) {
                        check_from(&source, to, objective);
                    }
                    n += 1;
                }
            }
        }
    }
    n
}

const CHOICES: [&str; 6] = ["R", "S(0)", "S(1)", "SS(0,2)", "SS(1,3)", "P"];

#[test]
fn all_pairs_on_one_axis() {
    for mesh in ["x=1", "x=2", "x=3", "x=4"] {
        all_pairs(mesh, &[&[12, 6], &[5, 7], &[8, 12], &[], &[0, 5], &[1], &[6]], &CHOICES);
    }
}

#[test]
fn all_pairs_on_two_axes() {
    for mesh in ["x=2,y=2", "x=2,y=3", "x=4,y=2"] {
        all_pairs(mesh, &[&[24, 12], &[5, 7], &[12, 8], &[], &[0, 5], &[1]], &CHOICES);
    }
}

#[test]
fn sub_axes_that_are_not_digits_of_one_number() {
    for (mesh, shape, texts) in [
        ("x=6", &[12, 6], ["[{x:(1)2},{}]", "[{x:(3)2},{}]", "[{},{x:(2)3}]", "[{x:(1)3},{}]"]),
        (
            "x=12",
            &[24, 12],
            ["[{x:(3)4},{}]", "[{x:(1)2},{}]", "[{},{x:(6)2}]", "[{x:(4)3},{}] unreduced={x:(1)2}"],
        ),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let all = texts.map(|t| Sharding::parse(&mesh, shape, t).unwrap());
        for from in &all {
            for to in &all {
                for objective in [Objective::Time, Objective::Bytes] {
                    check(from, to, objective);
                }
            }
        }
    }
}

#[test]
fn sub_axes_beside_dims_that_do_not_divide() {
    let mesh: Mesh = "x=2,y=4".parse().unwrap();
    let texts = [
        "[{},{}]",
        "[{x},{y}]",
        "[{y},{x}]",
        "[{x},{y:(1)2}]",
        "[{y:(1)2},{y:(2)2,x}]",
        "[{y:(2)2},{y:(1)2}]",
        "[{y:(2)2},{2,x,y:(1)2}]",
        "[{x},{y:(1)2}] unreduced={y:(2)2}",
        "[{},{x,y:(2)2}] unreduced={y:(1)2}",
        "[{y:(1)2},{}] unreduced={x,y:(2)2}",
        "SS(0,2),S(0)",
        "RG(0,[4,1]),S(1)",
    ];
    let all: Vec<Sharding> = texts.iter().map(|t| Sharding::parse(&mesh, &[5, 16], t).unwrap()).collect();
    for (from, text) in all.iter().zip(texts) {
        assert_eq!(Sharding::parse(&mesh, &[5, 16], &from.to_string()).as_ref(), Ok(from), "{text}");
        for to in &all {
            for objective in [Objective::Time, Objective::Bytes, Objective::Peak] {
                check(from, to, objective);
            }
        }
    }
}

#[test]
fn all_ops_on_two_axes() {
    let mut n = 0;
    for op in ["sum", "avg", "prod", "min", "max"] {
        let p = format!("P({op})");
        for mesh in ["x=2,y=2", "x=3,y=2"] {
            let mesh: Mesh = mesh.parse().unwrap();
            for shape in [&[12, 6][..], &[5, 3]] {
                for a in placements(&["R", "S(0)", &p, "P(max)"], 2) {
                    for b in placements(&["R", "S(0)", &p, "P(sum)"], 2) {
                        let (Ok(from), Ok(to)) =
                            (Sharding::parse(&mesh, shape, &a), Sharding::parse(&mesh, shape, &b))
                        else {
                            continue;
                        };
                        if Planner::new().plan(&from, &to, DType::F64).is_err() {
                            assert!(b.contains("avg"), "{from} -> {to}");
                            continue;
                        }
                        n += 1;
                        if Sweep::asked().picks(8, n) {
                            check(&from, &to, Objective::Time);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_sample_on_three_axes() {
    let mesh: Mesh = "x=2,y=2,z=2".parse().unwrap();
    let all = placements(&CHOICES, 3);
    let mut random = Random(7);
    for shape in [&[24, 24][..], &[7, 5], &[8, 3]] {
        for _ in 0..Sweep::asked().count(150, 1500) {
            let (a, b) = (random.pick(&all), random.pick(&all));
            let from = Sharding::parse(&mesh, shape, a).unwrap();
            let to = Sharding::parse(&mesh, shape, b).unwrap();
            check(&from, &to, Objective::Time);
        }
    }
}

#[test]
fn two_meshes_and_other_world_sizes() {
    let mut n = 0;
    let meshes = ["x=2,y=2", "x=4", "x=6", "x=2,y=2@4", "x=3@1", "a=2:1,b=2:2", "x=1@9", "y=4:2"];
    for a in meshes {
        for b in meshes {
            let (a, b): (Mesh, Mesh) = (a.parse().unwrap(), b.parse().unwrap());
            for shape in [&[12, 6][..], &[5, 7], &[]] {
                for p in placements(&["R", "S(0)", "SS(1,3)", "P"], a.axes().len()) {
                    for q in placements(&["R", "S(1)", "P"], b.axes().len()) {
                        let (Ok(from), Ok(to)) =
                            (Sharding::parse(&a, shape, &p), Sharding::parse(&b, shape, &q))
                        else {
                            continue;
                        };
                        n += 1;
                        if Sweep::asked().picks(8, n) {
                            check(&from, &to, Objective::Time);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn plans_and_shardings_can_be_stored() {
    let mesh: Mesh = "x=2,y=4@8".parse().unwrap();
    let from = Sharding::parse(&mesh, &[16, 6], "SS(0,4),S(0)").unwrap();
    let to = Sharding::parse(&mesh, &[16, 6], "P(max),S(1)").unwrap();
    let plan = Planner::new().plan(&from, &to, DType::BF16).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    let back: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(back.to_string(), plan.to_string());
    assert_eq!(serde_json::from_str::<Sharding>(&serde_json::to_string(&from).unwrap()).unwrap(), from);
    is_send_and_sync(&plan);
    // Partial values of a norm keep their exponent.
    for p in ["2", "2.5", "inf"] {
        let of = |text: &str| Sharding::parse(&mesh, &[16, 6], text).unwrap();
        let plan = Planner::new().plan(&of(&format!("P(norm{p}),S(0)")), &of("S(1),R"), DType::BF16).unwrap();
        let back: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(back.to_string(), plan.to_string());
        assert_eq!((back.from(), back.steps().len()), (plan.from(), plan.steps().len()));
        let phases = |plan: &Plan| plan.steps()[0].phases(8).unwrap().into_vec();
        assert_eq!(phases(&back), phases(&plan));
    }
    // All options of a planner are stored.
    let group = mesh.group_of_axes(&["x", "y"]).unwrap();
    let from = Sharding::parse(&mesh, &[16, 6], "P,P").unwrap();
    for planner in [
        Planner::new().deterministic(true),
        Planner::new().topology(Topology::h100()).objective(Objective::Peak).max_peak_bytes(1 << 20),
        Planner::new().with_groups([group]),
    ] {
        let plan =
            planner.plan(&from, &Sharding::parse(&mesh, &[16, 6], "R,R").unwrap(), DType::BF16).unwrap();
        let back: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!((back.options(), back.to_string()), (planner.options(), plan.to_string()));
    }
}

fn is_send_and_sync<T: Send + Sync + 'static>(_: &T) {}

/// The axis between two that are reduced jointly keeps its position.
///
/// The result of a joint reduce-scatter is not the target, although its shards have the same shape.
#[test]
fn a_joint_reduction_around_a_shard_still_has_to_be_moved() {
    let mesh: Mesh = "x=2,y=2,z=2".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[16], text).unwrap();
    let (from, to) = (of("P,S(0),P"), of("S(0),S(0),S(0)"));
    let plan = Planner::new().objective(Objective::Bytes).plan(&from, &to, DType::F64).unwrap();
    let ops: Vec<StepOp> = plan.steps().iter().map(Step::op).collect();
    assert_eq!((ops[0], plan.communicating_steps()), (StepOp::ReduceScatter, 2), "{plan}");
    let shards = shards_of(&from, 3);
    let want = from.assemble(&shards).unwrap();
    assert_eq!(to.assemble(&run(&plan, 8, &shards).0).unwrap(), want);
    // The first step alone.
    let between = &plan.steps()[0].after;
    let reduced = Planner::new().objective(Objective::Bytes).plan(&from, between, DType::F64).unwrap();
    assert_eq!(reduced.steps().len(), 1, "{reduced}");
    let (got, _) = run(&reduced, 8, &shards);
    assert_eq!(between.assemble(&got).unwrap(), want);
    assert_ne!(to.assemble(&got).unwrap(), want, "{reduced} does not lead to {to}");
}
