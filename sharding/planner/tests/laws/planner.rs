//! Facts about plans: the number of steps, their groups, and their costs.

use reshard_kernels::DType;
use reshard_planner::{Level, Objective, Plan, Planner, Step, StepOp, Topology};
use reshard_sharding::{GroupPattern, Mesh, Placement, Sharding};

fn plan_with(planner: &Planner, mesh: &str, shape: &[usize], from: &str, to: &str) -> Plan {
    let mesh: Mesh = mesh.parse().unwrap();
    let from = Sharding::parse(&mesh, shape, from).unwrap();
    let to = Sharding::parse(&mesh, shape, to).unwrap();
    planner.plan(&from, &to, DType::F32).unwrap()
}

fn plan(mesh: &str, shape: &[usize], from: &str, to: &str) -> Plan {
    plan_with(&Planner::new(), mesh, shape, from, to)
}

fn ops(plan: &Plan) -> Vec<StepOp> {
    plan.steps().iter().map(Step::op).collect()
}

#[test]
fn phases_of_a_rank_that_is_not_in_the_plan_are_an_error() {
    let across: (Mesh, Mesh) = ("x=2".parse().unwrap(), "y=2:1@4".parse().unwrap());
    let sharded = |mesh: &Mesh| Sharding::parse(mesh, &[4], "S(0)").unwrap();
    let across = Planner::new().plan(&sharded(&across.0), &sharded(&across.1), DType::F32).unwrap();
    for plan in [plan("x=2", &[4], "S(0)", "R"), plan("x=2", &[4], "R", "R"), across] {
        for rank in (0..8).chain([64, usize::MAX / 2, usize::MAX]) {
            assert_eq!(plan.phases(rank).is_ok(), plan.ranks().contains(&rank), "{plan}, rank {rank}");
        }
    }
}

/// 64 MiB of f32.
const LARGE: [usize; 1] = [1 << 24];

/// Replicas come from one reduction, for any size and levels.
///
/// Groups that reduce in sequence may round differently on different ranks.
#[test]
fn nothing_is_reduced_after_an_all_reduce() {
    let levels = "launch=5;message=0.1;level=2:1:100;level=4:2:40;level=*:5:10";
    for topology in ["uniform", "h100", levels] {
        for objective in Objective::ALL {
            let planner = Planner::new().topology(topology.parse().unwrap()).objective(objective);
            for (mesh, from, to) in [
                ("a=4,b=2", "P,P", "R,R"),
                ("a=2,b=4", "P,P", "R,R"),
                ("a=2,b=2,c=2", "P,P,P", "R,R,R"),
                ("a=2,b=2,c=2", "P,P,P", "R,S(0),R"),
                ("a=2,b=2,c=2", "P,P,P", "P,R,R"),
                ("a=2,b=2,c=2", "P,S(0),P", "R,R,R"),
            ] {
                for shape in [&[][..], &[1], &[2], &[3], &[8], &[64]] {
                    if shape.is_empty() && format!("{from}{to}").contains('S') {
                        continue;
                    }
                    let ops = ops(&plan_with(&planner, mesh, shape, from, to));
                    let first = ops.iter().position(|op| *op == StepOp::AllReduce);
                    let reduces = |op: &StepOp| matches!(op, StepOp::AllReduce | StepOp::ReduceScatter);
                    let after = first.map_or(0, |i| ops[i + 1..].iter().filter(|op| reduces(op)).count());
                    assert_eq!(after, 0, "{mesh} {shape:?} {from} -> {to}, {objective:?}: {ops:?}");
                }
            }
        }
    }
}

#[test]
fn several_partial_axes_reduce_over_their_joint_group() {
    for (mesh, from, to, steps) in [
        ("x=2,y=2", "P,P", "R,R", 1),
        ("x=2,y=2,z=2", "P,P,P", "R,S(0),R", 2),
        ("x=2,y=2,z=2", "P,S(0),P", "R,R,R", 2),
        ("x=2,y=2,z=2", "P,P,S(0)", "S(0),S(0),S(0)", 2),
        ("x=2,y=2", "P,P", "S(0),S(0)", 1),
        ("x=2,y=2,z=2", "P,S(0),P", "S(0),S(0),S(0)", 2),
        ("x=2,y=2", "P,P(avg)", "R,R", 1),
    ] {
        let p = plan(mesh, &LARGE, from, to);
        assert!(p.communicating_steps() <= steps, "{p}");
    }
    let p = plan("x=2,y=2,z=2", &LARGE, "P,P,P", "R,S(0),R");
    assert_ne!(ops(&p), [StepOp::AllReduce, StepOp::ReduceScatter, StepOp::AllReduce]);
}

#[test]
fn a_plan_between_equal_shardings_is_empty() {
    for p in ["R,R", "S(0),P", "SS(0,2),S(0)", "P,P(avg)"] {
        for shape in [&[16][..], &[7]] {
            let p = plan("x=2,y=2", shape, p, p);
            assert!(p.steps().is_empty() && p.cost_us().to_bits() == 0 && p.received_bytes() == 0);
        }
    }
}

#[test]
fn hand_computed_costs_on_one_level() {
    // 64 Ki f32 over 4 ranks: each receives 3 shards of 64 KiB at 100 GB/s.
    let p = plan("x=4", &[1 << 16], "S(0)", "R");
    assert_eq!(p.received_bytes(), 3 << 16);
    assert!((p.cost_us() - (6.6 + f64::from(3 << 16) / 1e5)).abs() < 1e-9, "{p}");
    // An all-to-all keeps a quarter: 3 messages.
    let p = plan("x=4", &[256, 256], "S(0)", "S(1)");
    assert_eq!(ops(&p), [StepOp::AllToAll]);
    assert!((p.cost_us() - (6.6 + 0.6 + f64::from(3 << 14) / 1e5)).abs() < 1e-9, "{p}");
}

#[test]
fn levels_decide_the_order_where_groups_are_per_axis() {
    let h100 = Planner::new().topology(Topology::h100());
    let mesh: Mesh = "dp=16,tp=8".parse().unwrap();
    // 100 MB gathered over both axes: one joint step.
    let shape = [128 * 200_000];
    let joint = plan_with(&h100, "dp=16,tp=8", &shape, "S(0),S(0)", "R,R");
    assert_eq!(joint.communicating_steps(), 1, "{joint}");
    let axes: Vec<GroupPattern> = ["dp", "tp"].iter().map(|a| mesh.group_of_axes(&[a]).unwrap()).collect();
    let limited = h100.clone().with_groups(axes);
    let gather = plan_with(&limited, "dp=16,tp=8", &shape, "S(0),S(0)", "R,R");
    let names: Vec<Vec<String>> =
        gather.steps().iter().filter(|s| s.op().communicates()).map(Step::axis_names).collect();
    assert_eq!(names, [["dp"], ["tp"]], "across nodes first: {gather}");
    let scatter = plan_with(&limited, "dp=16,tp=8", &shape, "P,P", "S(0),S(0)");
    let first = scatter.steps().iter().find(|s| s.op().communicates()).unwrap();
    assert_eq!(first.axis_names(), ["tp"], "inside first: {scatter}");
    let savings = limited.group_savings(&gather).unwrap();
    assert_eq!(savings.len(), 1);
    assert!((savings[0].1 - (gather.cost_us() - joint.cost_us())).abs() < 1e-9);
    // A joint all-reduce beats one per axis by about the node's size.
    let joint = plan_with(&h100, "dp=16,tp=8", &shape, "P,P", "R,R");
    assert_eq!(ops(&joint), [StepOp::AllReduce]);
}

#[test]
fn a_replicated_inner_axis_is_sliced_before_a_slow_hop() {
    let h100 = Planner::new().topology(Topology::h100());
    let p = plan_with(&h100, "dp=4,tp=8", &[1 << 24], "S(0),R", "R,R");
    assert_eq!(p.steps()[0].op(), StepOp::Slice, "{p}");
    assert_eq!(p.steps().last().unwrap().op(), StepOp::AllGather, "{p}");
}

#[test]
fn a_mesh_that_straddles_nodes_is_costed_by_its_worst_rank() {
    // Of 40 ranks in fives, ranks 15 and 24 are alone in their nodes: four shards over the slow level.
    let lines = Planner::new().topology(Topology::h100_lines());
    let p = plan_with(&lines, "dp=8,fsdp=5", &[5 << 20], "R,S(0)", "R,R");
    let shard = f64::from(4 << 20);
    let direct = 6.6 + 8.0 * 3.0 + 4.0 * shard / 45e3;
    assert!(p.cost_us() <= direct + 1e-6, "{p}");
    let group = Mesh::new([("dp", 8), ("fsdp", 5)]).unwrap().group_of_axes(&["fsdp"]).unwrap();
    let only = plan_with(&lines.with_groups([group]), "dp=8,fsdp=5", &[5 << 20], "R,S(0)", "R,R");
    assert!((only.cost_us() - direct).abs() < 1e-6, "{only} {direct}");
}

#[test]
fn no_objective_is_below_a_bound_and_each_is_least_in_its_own() {
    for topology in [Topology::uniform(), Topology::h100()] {
        for (from, to) in [
            ("P,P", "R,R"),
            ("S(0),S(1)", "S(1),S(0)"),
            ("P,S(0)", "S(0),R"),
            ("S(0),R", "R,S(0)"),
            ("R,P", "S(0),S(1)"),
            ("P,R", "R,P"),
        ] {
            let make = |o| {
                plan_with(
                    &Planner::new().topology(topology.clone()).objective(o),
                    "x=4,y=4",
                    &[64, 64],
                    from,
                    to,
                )
            };
            let [time, bytes, peak] = Objective::ALL.map(make);
            for p in [&time, &bytes, &peak] {
                assert!(p.lower_bound_bytes().is_none_or(|b| p.received_bytes() >= b), "{p}");
                assert!(p.cost_us() + 1e-9 >= p.lower_bound_us(), "{p}");
                assert!(p.cost_us() + 1e-9 >= time.cost_us(), "{p}\n{time}");
                assert!(p.received_bytes() >= bytes.received_bytes(), "{p}\n{bytes}");
                assert!(p.peak_bytes() >= peak.peak_bytes(), "{p}\n{peak}");
            }
        }
    }
}

#[test]
fn memory_is_honoured_or_refused_with_the_least_peak() {
    let (mesh, shape) = ("x=2,y=2", [64, 64]);
    let free = plan(mesh, &shape, "S(0),R", "R,S(0)");
    let least = plan_with(&Planner::new().objective(Objective::Peak), mesh, &shape, "S(0),R", "R,S(0)");
    assert!(least.peak_bytes() <= free.peak_bytes());
    let kept =
        plan_with(&Planner::new().max_peak_bytes(least.peak_bytes()), mesh, &shape, "S(0),R", "R,S(0)");
    assert!(kept.peak_bytes() <= least.peak_bytes());
    let mesh: Mesh = mesh.parse().unwrap();
    let from = Sharding::parse(&mesh, &shape, "S(0),R").unwrap();
    let to = Sharding::parse(&mesh, &shape, "R,S(0)").unwrap();
    let e = Planner::new().max_peak_bytes(least.peak_bytes() - 1).plan(&from, &to, DType::F32).unwrap_err();
    assert_eq!(e.code(), "peak_too_small");
    assert!(e.to_string().contains(&least.peak_bytes().to_string()), "{e}");
}

#[test]
fn impossible_networks_are_refused() {
    let level = |ranks, latency_us, gbytes_per_s| Level { ranks, latency_us, gbytes_per_s };
    for levels in [
        &[][..],
        &[level(Some(8), 2.0, 100.0), level(None, 1.0, 50.0)],
        &[level(Some(8), 2.0, 100.0), level(None, 3.0, 200.0)],
        &[level(None, 2.0, 100.0), level(None, 3.0, 50.0)],
        &[level(Some(8), 2.0, 100.0), level(Some(12), 3.0, 50.0), level(None, 3.0, 50.0)],
        &[level(None, f64::NAN, 100.0)],
        &[level(None, 0.0, 0.0)],
    ] {
        assert_eq!(Topology::new(1.0, 1.0, levels).unwrap_err().code(), "topology");
    }
}

/// A reduction whose result all ranks of the axes keep is an all-reduce, however it is executed.
///
/// All of them hold partial values before the step and the same value after it. No other reduction is an
/// all-reduce.
#[test]
fn a_reduction_that_all_keep_is_an_all_reduce() {
    let mesh: Mesh = "x=4,y=2".parse().unwrap();
    let (mut kept, mut scattered) = (0, 0);
    for shape in [&[][..], &[1], &[3], &[8], &[5, 3], &[16, 8]] {
        let texts: Vec<&str> = if shape.is_empty() { vec!["R", "P"] } else { vec!["R", "P", "S(0)"] };
        let all: Vec<Sharding> = texts
            .iter()
            .flat_map(|x| texts.iter().map(move |y| format!("{x},{y}")))
            .map(|text| Sharding::parse(&mesh, shape, &text).unwrap())
            .collect();
        for (from, to) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
            let plan = Planner::new().plan(from, to, DType::F32).unwrap();
            for step in plan.steps() {
                // Some states between steps are not placements.
                let (Ok(before), Ok(after)) = (step.before.placements(), step.after.placements()) else {
                    continue;
                };
                let (before, after) = (&before, &after);
                let all_keep = step.axes.iter().all(|a| {
                    matches!(before[a.axis], Placement::Partial(_)) && after[a.axis] == Placement::Replicate
                });
                if matches!(step.op(), StepOp::AllReduce | StepOp::ReduceScatter) {
                    assert_eq!(step.op() == StepOp::AllReduce, all_keep, "{plan}");
                }
                kept += usize::from(step.op() == StepOp::AllReduce);
                scattered += usize::from(step.op() == StepOp::ReduceScatter);
            }
        }
    }
    assert!(kept > 50 && scattered > 50, "{kept} {scattered}");
}

#[test]
fn a_planner_prints_and_parses_its_settings() {
    let texts = [
        "topology=uniform objective=time",
        "topology=h100 objective=bytes max_peak_bytes=1024",
        "topology=uniform objective=peak groups= deterministic=true",
        "topology=launch=1;message=0.5;level=4:1:10;level=*:2:5 objective=time groups=(2,2):(1,4)|4:2 arithmetic=framework \
         budget=none",
    ];
    for text in texts {
        let planner: Planner = text.parse().unwrap();
        assert_eq!(planner.to_string(), text);
        assert_eq!(
            serde_json::from_str::<Planner>(&serde_json::to_string(&planner).unwrap()).unwrap(),
            planner
        );
    }
    assert_eq!("".parse::<Planner>(), Ok(Planner::new()));
    let negative: Topology = "launch=-0;message=-0;level=*:-0:1".parse().unwrap();
    assert_eq!(negative.to_string(), "launch=0;message=0;level=*:0:1");
    assert_eq!(
        " objective=bytes\ttopology=h100 ".parse::<Planner>(),
        "topology=h100 objective=bytes".parse()
    );
    let listed: GroupPattern = "{{0,1,3},{2,5,4}}".parse().unwrap();
    let planner = Planner::new().with_groups([listed]);
    assert_eq!(planner.to_string().parse(), Ok(planner));
    let custom = Planner::new().cost_model(std::sync::Arc::new(Topology::h100())).unwrap();
    assert_eq!(custom.to_string(), "cost_model=h100 objective=time");
    assert!(custom.to_string().parse::<Planner>().is_err() && serde_json::to_string(&custom).is_err());
    for (text, message) in [
        ("objective", "name=value"),
        ("objective=", "time, bytes or peak"),
        ("objective=time objective=time", "`objective` is given twice"),
        ("max_peak_bytes=-1", "a number of bytes"),
        ("deterministic=1", "true or false"),
        ("groups=4:1|", ""),
        ("speed=7", "budget"),
        ("budget=x", "none"),
    ] {
        match text.parse::<Planner>() {
            Ok(_) => assert_eq!(message, "", "{text}"),
            Err(error) => assert!(error.to_string().contains(message), "{text}: {error}"),
        }
    }
}
