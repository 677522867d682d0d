//! Curves: a slow definition of their times, the properties of models that have them, and bounds of their plans.

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_planner::{
    Curve, Level, Objective, Plan, Planner, Profile, Step, StepOp, Topology, check_cost_model,
};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::{Random, Sweep};

const OPS: [StepOp; 4] = [StepOp::AllGather, StepOp::ReduceScatter, StepOp::AllReduce, StepOp::AllToAll];

/// Redistributions that are one collective.
const SINGLE: [(StepOp, &str, &str); 3] =
    [(StepOp::AllGather, "S(0)", "R"), (StepOp::ReduceScatter, "P", "S(0)"), (StepOp::AllReduce, "P", "R")];

/// Draws a profile: levels, and curves with jumps over the spreads that measurements have.
fn drawn(random: &mut Random) -> Profile {
    let inner = 2 << random.below(3);
    let rate = 50.0 + random.below(400) as f64;
    let inside = Level { ranks: Some(inner), latency_us: random.below(30) as f64 / 10.0, gbytes_per_s: rate };
    let outside = Level { ranks: None, latency_us: inside.latency_us + 5.0, gbytes_per_s: rate / 8.0 };
    let levels = if random.below(2) == 0 { vec![outside] } else { vec![inside, outside] };
    let mut spreads: Vec<Vec<usize>> = vec![vec![2]];
    if levels.len() == 1 {
        spreads.extend([vec![4], vec![8]]);
    } else {
        spreads.extend([vec![inner], vec![1, 2], vec![inner, 2], vec![inner, 4]]);
        spreads.dedup();
    }
    let mut curves = Vec::new();
    for collective in OPS {
        for spread in &spreads {
            if random.below(6) == 0 {
                continue;
            }
            let (mut bytes, mut us) = (Vec::new(), Vec::new());
            let (mut size, mut time) = (1 << 9, 3.0 + random.below(200) as f64 / 10.0);
            while size < 1 << 28 {
                bytes.push(size);
                us.push(time);
                let grown = size * (2 + random.below(7) as u64);
                let rate = rate * 1e3 * (1 + random.below(8)) as f64 / 8.0;
                time += (grown - size) as f64 / rate * [0.02, 0.5, 1.0, 1.0][random.below(4)];
                time *= [1.0, 1.0, 1.0, 1.6][random.below(4)];
                size = grown;
            }
            curves.push(Curve { collective, spread: spread.clone(), bytes, us, p90_percent: None });
        }
    }
    Profile { name: None, launch_us: 5.0, message_us: 0.2, levels, measured: None, compute: None, curves }
}

/// Returns the time of a curve by the definition: the line between the two knots around a size.
fn defined(curve: &Curve, size: f64) -> f64 {
    let knots: Vec<(f64, f64)> =
        curve.bytes.iter().map(|&b| b as f64).zip(curve.us.iter().copied()).collect();
    if size < knots[0].0 {
        return knots[0].1;
    }
    let around = knots.windows(2).find(|w| w[0].0 <= size && size < w[1].0);
    let w = around.unwrap_or(&knots[knots.len() - 2..]);
    w[0].1 + (w[1].1 - w[0].1) * (size - w[0].0) / (w[1].0 - w[0].0)
}

fn all(mesh: &Mesh, shape: &[usize]) -> Vec<Sharding> {
    let mut texts = vec![String::new()];
    for _ in mesh.axes() {
        let with =
            |text: &String, p: &str| if text.is_empty() { p.to_owned() } else { format!("{text},{p}") };
        texts = texts.iter().flat_map(|t| ["R", "S(0)", "S(1)", "P"].map(|p| with(t, p))).collect();
    }
    texts.iter().map(|text| Sharding::parse(mesh, shape, text).unwrap()).collect()
}

#[test]
fn a_single_collective_takes_the_time_of_its_curve() {
    let mut random = Random(57);
    let mut compared = 0;
    for _ in 0..40 {
        let profile = drawn(&mut random);
        let topology = Topology::try_from(profile.clone()).unwrap();
        let planner = Planner::new().topology(topology);
        for curve in profile.curves.iter().filter(|c| c.spread.len() == 1) {
            let n = curve.spread[0];
            let mesh: Mesh = format!("x={n}").parse().unwrap();
            let rows = n << random.below(12);
            let Some(&(_, from, to)) = SINGLE.iter().find(|single| single.0 == curve.collective) else {
                continue;
            };
            let [from, to] = [from, to].map(|text| Sharding::parse(&mesh, &[rows, 64], text).unwrap());
            let plan = planner.plan(&from, &to, DType::F32).unwrap();
            let [step] = plan.steps() else { continue };
            if step.op() == curve.collective {
                let size = (rows * 64 * 4) as f64;
                let last = *curve.bytes.last().unwrap() as f64;
                if size < last {
                    assert!(
                        (step.cost_us - defined(curve, size)).abs() < 1e-5,
                        "{curve:?} at {size}: {}",
                        step.cost_us
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn drawn_profiles_keep_the_laws() {
    let sweep = Sweep::asked();
    let mut random = Random(58);
    for i in 0..200 {
        let profile = drawn(&mut random);
        let mesh: Mesh = ["x=8", "a=2,b=4", "a=3,b=2,c=2", "x=4@2"][i % 4].parse().unwrap();
        if sweep.takes(i as u64) {
            let topology = Topology::try_from(profile.clone()).unwrap();
            check_cost_model(Arc::new(topology), &mesh).unwrap_or_else(|error| panic!("{i}: {error}"));
        }
    }
}

#[test]
fn no_plan_is_below_its_bound() {
    let sweep = Sweep::asked();
    let mut random = Random(59);
    let mut plans = 0;
    for i in 0..40 {
        let profile = drawn(&mut random);
        let planner = Planner::new().topology(Topology::try_from(profile).unwrap());
        let mesh: Mesh = ["x=8", "a=2,b=4", "a=4,b=4", "a=2,b=2,c=2"][i % 4].parse().unwrap();
        let shape = [[8, 8], [64, 96], [1024, 512], [7, 9]][random.below(4)];
        let shardings = all(&mesh, &shape);
        for _ in 0..sweep.count(40, 250) {
            let [from, to] = [0, 1].map(|_| &shardings[random.below(shardings.len())]);
            for objective in [Objective::Time, Objective::Bytes] {
                let planner = planner.clone().objective(objective);
                let plan = planner.plan(from, to, DType::F32).unwrap();
                let bound = planner.lower_bound_us(from, to, DType::F32).unwrap().max(plan.lower_bound_us());
                assert!(
                    plan.cost_us() >= bound * (1.0 - 1e-9),
                    "{i}: {plan} takes {} us, bound {bound}",
                    plan.cost_us()
                );
                plans += 1;
            }
        }
    }
    assert!(plans > 1000, "{plans}");
}

#[test]
fn a_slow_exchange_is_replaced_by_a_gather_and_a_slice() {
    let curve = |collective, us: f64| Curve {
        collective,
        spread: vec![8],
        bytes: vec![1 << 10, 1 << 30],
        us: vec![us, us + 1e4],
        p90_percent: None,
    };
    let level = Level { ranks: None, latency_us: 1.0, gbytes_per_s: 100.0 };
    let profile = Profile {
        name: None,
        launch_us: 20.0,
        message_us: 1.0,
        levels: vec![level],
        measured: None,
        compute: None,
        curves: vec![curve(StepOp::AllGather, 10.0), curve(StepOp::AllToAll, 25.0)],
    };
    let mesh: Mesh = "x=8".parse().unwrap();
    let [from, to] = ["S(0)", "S(1)"].map(|text| Sharding::parse(&mesh, &[8, 8], text).unwrap());
    let topology = Topology::try_from(profile).unwrap();
    let ops = |topology| -> Vec<StepOp> {
        let plan = Planner::new().topology(topology).plan(&from, &to, DType::F32).unwrap();
        plan.steps().iter().map(Step::op).collect()
    };
    assert_eq!(ops(topology.lines()), [StepOp::AllToAll]);
    assert_eq!(ops(topology), [StepOp::AllGather, StepOp::Slice]);
}

#[test]
fn faults_of_curves_are_named() {
    let good = || Curve {
        collective: StepOp::AllGather,
        spread: vec![8],
        bytes: vec![1024, 2048],
        us: vec![1.0, 2.0],
        p90_percent: None,
    };
    let refused = |curves: Vec<Curve>| {
        let lines = Profile::from(Topology::h100_lines());
        Topology::try_from(Profile { curves, ..lines }).unwrap_err().to_string()
    };
    for (curves, says) in [
        (vec![Curve { collective: StepOp::Exchange, ..good() }], "of no collective"),
        (vec![Curve { spread: vec![8, 1], ..good() }], "last factor is above 1"),
        (vec![Curve { spread: vec![], ..good() }], "last factor is above 1"),
        (vec![Curve { spread: vec![2, 2, 2], ..good() }], "spans 3 levels, but the network has 2"),
        (vec![Curve { spread: vec![16], ..good() }], "has 16 parts in a domain that has fewer"),
        (vec![Curve { us: vec![1.0], ..good() }], "has 2 sizes and 1 times"),
        (vec![Curve { bytes: vec![2048, 1024], ..good() }], "sizes must ascend"),
        (vec![Curve { us: vec![2.0, 1.0], ..good() }], "must not descend"),
        (vec![Curve { us: vec![f64::NAN, 1.0], ..good() }], "a time of NaN us"),
        (vec![good(), good()], "is given twice"),
    ] {
        let error = refused(curves);
        assert!(error.contains(says), "{says:?} is not in {error:?}");
    }
}

#[test]
fn equal_curves_have_equal_texts() {
    let mut random = Random(60);
    let profile = drawn(&mut random);
    let of = |profile: &Profile| Topology::try_from(profile.clone()).unwrap();
    let mut other = Profile { name: Some("mine".to_owned()), ..profile.clone() };
    other.curves.reverse();
    assert_eq!(of(&profile), of(&other));
    assert_eq!(of(&profile).to_string(), of(&other).to_string());
    other.curves[0].us[0] -= 1e-3;
    assert_ne!(of(&profile), of(&other));
    assert_ne!(of(&profile).to_string(), of(&other).to_string());
    assert_ne!(of(&profile).to_string(), of(&profile).lines().to_string());
    let error = of(&profile).to_string().parse::<Topology>().unwrap_err().to_string();
    assert!(error.contains("give the file"), "{error}");
    // Any serde format has the whole profile.
    let json = serde_json::to_string(&of(&profile)).unwrap();
    assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), of(&profile));
}

#[test]
fn a_measured_network_chooses_otherwise_than_its_lines() {
    let mesh: Mesh = "x=2,y=2,z=2".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[1 << 24], text).unwrap();
    let (from, to) = (of("P,S(0),P"), of("R,R,R"));
    let explained = |topology: &str| {
        let planner = Planner::new().topology(topology.parse().unwrap());
        planner.explain(&from, &to, DType::F32).unwrap()
    };
    let ops = |topology: &str| explained(topology).plan.steps().iter().map(Step::op).collect::<Vec<_>>();
    // Two measured steps of 8 ranks at most take less than an all-reduce and a gather.
    assert_eq!(ops("h100"), [StepOp::ReduceScatter, StepOp::AllGather]);
    assert_eq!(ops("h100-lines"), [StepOp::AllReduce, StepOp::AllGather]);
    let text = explained("h100").to_string();
    assert!(text.contains("times by h100: measured by nccl-tests"), "{text}");
    assert!(text.contains("expected error"), "{text}");
    let text = explained("h100-lines").to_string();
    assert!(text.contains("times by h100-lines: nominal"), "{text}");
}

#[test]
fn a_stored_plan_has_the_whole_profile() {
    let profile = drawn(&mut Random(61));
    let mesh: Mesh = "x=4,y=2".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[48, 6], text).unwrap();
    for topology in [Topology::try_from(profile).unwrap(), Topology::h100()] {
        let planner = Planner::new().topology(topology);
        let plan = planner.plan(&of("S(0),P"), &of("R,S(1)"), DType::F32).unwrap();
        let stored = serde_json::to_string(&plan).unwrap();
        let read: Plan = serde_json::from_str(&stored).unwrap();
        assert_eq!((read.to_string(), read.options()), (plan.to_string(), plan.options()));
    }
}

#[test]
fn a_transposed_collective_has_the_price_of_the_one_that_runs() {
    let (mut random, mut differ) = (Random(62), 0);
    for _ in 0..50 {
        let topology = Topology::try_from(drawn(&mut random)).unwrap();
        let planner = Planner::new().topology(topology.clone());
        let ranks = [2, 3, 4, 8][random.below(4)];
        let mesh: Mesh = format!("x={ranks}").parse().unwrap();
        let rows = ranks * (1 + random.below(1 << 14));
        let of = |text: &str| Sharding::parse(&mesh, &[rows, 3], text).unwrap();
        for [(op, from, to), (turned, ..)] in [[SINGLE[0], SINGLE[1]], [SINGLE[1], SINGLE[0]]] {
            let plan = planner.plan(&of(from), &of(to), DType::F32).unwrap();
            // An exchange may take less time.
            if plan.steps().len() != 1 || plan.steps()[0].op() != op || plan.steps()[0].is_transposed() {
                continue;
            }
            let back = plan.transposed().unwrap();
            assert_eq!(back.steps()[0].op(), turned);
            let inner = topology.levels()[0].ranks.unwrap_or(ranks).min(ranks);
            if !ranks.is_multiple_of(inner) {
                continue;
            }
            let spread =
                [inner, ranks / inner].into_iter().take(1 + usize::from(ranks > inner)).collect::<Vec<_>>();
            let us = topology.collective_us(turned, &spread, rows as u64 * 12).unwrap();
            assert!(
                (back.cost_us() - us).abs() < 1e-5,
                "{} and {us} us on {topology}:\n{back}",
                back.cost_us()
            );
            let alone = Plan::fused_cost_us(&[(&back, 0)], 0).unwrap();
            assert!((alone - us).abs() < 1e-5, "{alone} and {us} us on {topology}:\n{back}");
            differ += usize::from((back.cost_us() - plan.cost_us()).abs() > 0.1);
        }
    }
    assert!(differ > 20, "{differ}");
}
