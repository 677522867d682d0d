//! Properties of bounds and prices. A bound is never above the cost, and 0 exactly where nothing is
//! communicated. The cost alone equals that of the plan.

use reshard_kernels::DType;
use reshard_planner::{Objective, Planner, Topology};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::{Sweep, shardings, slower};

fn topologies() -> [Topology; 3] {
    let three = "launch=5;message=0.1;level=2:1:100;level=4:2:40;level=*:5:10";
    [
        Topology::uniform(),
        "launch=6.6;message=0.2;level=2:2:370;level=*:8:45".parse().unwrap(),
        three.parse().unwrap(),
    ]
}

/// Checks one pair with every planner; returns the number of checks, and of those that were free.
fn check(from: &Sharding, to: &Sharding, slow: usize, nests: bool) -> (usize, usize) {
    let (mut pairs, mut free) = (0, 0);
    for topology in topologies().map(|t| slower(&t, slow)) {
        for (objective, deterministic) in [
            (Objective::Time, false),
            (Objective::Bytes, false),
            (Objective::Peak, false),
            (Objective::Time, true),
        ] {
            let planner =
                Planner::new().topology(topology.clone()).objective(objective).deterministic(deterministic);
            let bound = planner.lower_bound_us(from, to, DType::F32);
            let alone = planner.cost_us(from, to, DType::F32);
            let plan = match planner.plan(from, to, DType::F32) {
                Ok(plan) => plan,
                Err(e) => {
                    assert_eq!(alone, Err(e));
                    continue;
                }
            };
            let told = alone.unwrap();
            assert!(
                told.to_bits() == plan.cost_us().to_bits(),
                "{topology} {objective}: {told} us for {plan}"
            );
            let (bound, cost) = (bound.unwrap(), plan.cost_us());
            assert!(bound <= cost * (1.0 + 1e-9), "{topology} {objective}: {bound} us is above {plan}");
            // The rough estimate is above 0 where the bound is, and equals the bound where digits nest.
            let roughly = planner.roughly_us(from, to, DType::F32).unwrap();
            assert!(
                roughly.is_finite() && (bound > 0.0) <= (roughly > 0.0),
                "{topology}: {roughly} us for {plan}"
            );
            if nests {
                assert!(
                    roughly.to_bits() == bound.to_bits(),
                    "{topology}: {roughly} us, not {bound}, for {plan}"
                );
                let least = plan.lower_bound_us() * (1.0 - 1e-9);
                assert!(bound >= least, "{topology}: {bound} us is below the plan's own bound, {plan}");
            }
            let is_free = plan.communicating_steps() == 0;
            if is_free {
                assert!(bound == 0.0, "{topology} {objective}: {bound} us, but {plan} is free");
            } else if objective != Objective::Peak {
                assert!(bound > 0.0, "{topology} {objective}: nothing for {plan}");
            }
            pairs += 1;
            free += usize::from(is_free);
        }
    }
    (pairs, free)
}

#[test]
fn never_above_the_plan_and_zero_exactly_where_it_is_free() {
    let sweep = Sweep::asked();
    let (mut pairs, mut free) = (0, 0);
    for (mesh, shape, choices, nests) in [
        ("x=2,y=2", &[16, 8][..], &["R", "S(0)", "S(1)", "SS(0,2)", "P", "P(avg)", "P(max)"][..], true),
        ("x=2,y=2,z=2", &[16, 8], &["R", "S(0)", "S(1)", "P"], true),
        ("x=4,y=2@3", &[16, 8], &["R", "S(0)", "S(1)", "P"], false),
        ("x=3,y=4", &[12, 24], &["R", "S(0)", "S(1)", "SS(0,2)", "P"], false),
        ("x=6,y=2", &[12, 4], &["R", "S(0)", "SS(0,2)", "SS(0,3)", "P"], false),
        ("x=2,y=3", &[5, 7], &["R", "S(0)", "S(1)", "SS(1,2)", "P", "P(avg)"], false),
        ("x=4,y=3", &[2, 3], &["R", "S(0)", "S(1)", "P"], false),
        ("x=2:1,y=3:2", &[6, 1], &["R", "S(0)", "S(1)", "P"], false),
        ("x=2,y=2", &[], &["R", "P", "P(max)"], true),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let all = shardings(&mesh, shape, choices);
        for (i, from) in all.iter().enumerate() {
            for (j, to) in all.iter().enumerate() {
                // Every third of the many pairs on three axes; in a sample one in 53.
                let one_in = if !sweep.is_exhaustive() {
                    53
                } else if mesh.axes().len() > 2 {
                    3
                } else {
                    1
                };
                if (i + j) % one_in > 0 {
                    continue;
                }
                if !sweep.takes((i * all.len() + j) as u64) {
                    continue;
                }
                let (p, f) = check(from, to, [1, 10_000][(i + j) % 2], nests);
                (pairs, free) = (pairs + p, free + f);
            }
        }
    }
    println!("{pairs} plans, {free} of them free");
    let (least, least_free) = (sweep.least(900, 60_000), sweep.least(120, 10_000));
    assert!(pairs as u64 > least && free as u64 > least_free, "{pairs} {free}");
}

#[test]
fn the_same_between_two_meshes_and_of_sub_axes() {
    let sweep = Sweep::asked();
    let (mut pairs, mut free) = (0, 0);
    let mut all = |texts: &[(&str, &str)], shape: &[usize]| {
        let parsed: Vec<Sharding> = texts
            .iter()
            .filter_map(|(mesh, text)| Sharding::parse(&mesh.parse().unwrap(), shape, text).ok())
            .collect();
        for (i, from) in parsed.iter().enumerate() {
            for (j, to) in parsed.iter().enumerate() {
                if !sweep.takes((i * parsed.len() + j) as u64) || (!sweep.is_exhaustive() && (i + j) % 15 > 0)
                {
                    continue;
                }
                let (p, f) = check(from, to, 1, false);
                (pairs, free) = (pairs + p, free + f);
            }
        }
    };
    let meshes = ["x=4", "a=2,b=2", "x=2@2", "a=2,b=3", "x=4@4", "x=2:3,y=3:1"];
    for shape in [&[12, 4][..], &[5, 3]] {
        let mut texts = Vec::new();
        for mesh in meshes {
            let axes = mesh.matches('=').count();
            let of_axes: &[&str] = if axes == 1 {
                &["R", "S(0)", "S(1)", "P"]
            } else {
                &["R,R", "S(0),R", "R,S(0)", "S(0),S(1)", "S(1),S(0)", "S(0),S(0)", "P,S(0)", "R,P"]
            };
            texts.extend(of_axes.iter().map(|t| (mesh, *t)));
        }
        all(&texts, shape);
    }
    let sub_axes = [
        "[{x:(1)2},{}]",
        "[{x:(2)2},{}]",
        "[{x:(2)2},{x:(1)2}]",
        "[{x},{y}]",
        "[{y,x:(1)2},{}]",
        "[{},{x:(1)2,y}]",
        "[{},{y}] unreduced={x:(2)2}",
        "[{},{}] unreduced={x:(1)2,y:(2)3}",
        "[{y:(2)3},{}]",
        "[{y:(1)2},{y:(2)3}]",
        "[{y:(1)3},{}]",
        "[{},{y:(3)2}] unreduced={x}",
        "[{},{}]",
    ];
    all(&sub_axes.map(|t| ("x=4,y=6", t)), &[24, 48]);
    println!("{pairs} plans, {free} of them free");
    let (least, least_free) = (sweep.least(600, 10_000), sweep.least(60, 1_000));
    assert!(pairs as u64 > least && free as u64 > least_free, "{pairs} {free}");
}

#[test]
fn limits_are_kept_to_without_a_plan() {
    let mesh: Mesh = "x=2,y=2".parse().unwrap();
    let all = shardings(&mesh, &[8, 8], &["R", "S(0)", "S(1)", "P"]);
    let sweep = Sweep::asked();
    let (mut refused, mut told, mut cases) = (0, 0, sweep.picking(5));
    for topology in topologies() {
        for planner in [
            Planner::new().max_peak_bytes(100),
            Planner::new().with_groups([mesh.group_of_axes(&["x"]).unwrap()]),
            Planner::new().objective(Objective::Peak).max_peak_bytes(300),
        ] {
            let planner = planner.topology(topology.clone());
            for from in &all {
                for to in &all {
                    if !cases.picks_next() && !sweep.is_exhaustive() {
                        continue;
                    }
                    let (alone, plan) =
                        (planner.cost_us(from, to, DType::F32), planner.plan(from, to, DType::F32));
                    let bound = planner.lower_bound_us(from, to, DType::F32).unwrap();
                    assert!(plan.as_ref().map_or(true, |p| bound <= p.cost_us() * (1.0 + 1e-9)), "{plan:?}");
                    refused += usize::from(plan.is_err());
                    told += usize::from(plan.is_ok());
                    assert_eq!(alone, plan.map(|p| p.cost_us()));
                }
            }
        }
    }
    let least = if sweep.is_exhaustive() { 200 } else { 40 };
    assert!(refused > least && told > least, "{refused} {told}");
}
