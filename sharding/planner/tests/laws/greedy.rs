//! No plan is more expensive than the one axis by axis.

use reshard_kernels::DType;
use reshard_planner::{Objective, Plan, Planner, SearchBudget, StepOp, Topology};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::{Random, Sweep};

/// Returns the cost of a plan under an objective.
fn cost(plan: &Plan, objective: Objective) -> f64 {
    match objective {
        Objective::Time => plan.cost_us(),
        Objective::Bytes => plan.received_bytes() as f64,
        Objective::Peak => plan.peak_bytes() as f64,
    }
}

/// Returns `true` if it reduces after an all-reduce, which the planner avoids.
///
/// A later reduction need not give all replicas the same bits.
fn reduces_twice(plan: &Plan) -> bool {
    let ops = plan.steps().iter().map(reshard_planner::Step::op);
    let mut after = ops.skip_while(|op| *op != StepOp::AllReduce).skip(1);
    after.any(|op| matches!(op, StepOp::AllReduce | StepOp::ReduceScatter))
}

#[test]
fn no_plan_is_dearer_than_axis_by_axis() {
    let levels: Topology = "launch=5;message=0.1;level=2:1:100;level=4:2:40;level=*:5:10".parse().unwrap();
    let networks = [Topology::uniform(), "h100".parse().unwrap(), levels];
    let count = Sweep::asked().count(300, 12_000);
    let mut random = Random(Sweep::asked().seed());
    let (mut compared, mut dearer) = (0u32, Vec::new());
    for _ in 0..count {
        let mesh: Mesh = {
            let axes = 1 + random.below(3);
            let sizes: Vec<String> = ["x", "y", "z"][..axes]
                .iter()
                .map(|a| format!("{a}={}", random.pick(&[2, 2, 3, 4, 6, 8])))
                .collect();
            sizes.join(",").parse().unwrap()
        };
        let shape: Vec<usize> =
            (0..=random.below(3)).map(|_| *random.pick(&[1, 2, 3, 5, 7, 9, 12, 13, 24, 32])).collect();
        let mut any = || -> Sharding {
            let words: Vec<String> = mesh
                .axes()
                .iter()
                .map(|_| {
                    let dim = random.below(shape.len());
                    match random.below(5) {
                        0 => "R".to_owned(),
                        1 => "P".to_owned(),
                        2 => format!("SS({dim},{})", random.pick(&[2, 3, 4])),
                        _ => format!("S({dim})"),
                    }
                })
                .collect();
            Sharding::parse(&mesh, &shape, &words.join(",")).unwrap_or_else(|_| {
                Sharding::parse(&mesh, &shape, &vec!["R"; words.len()].join(",")).unwrap()
            })
        };
        let (from, to) = (any(), any());
        let (network, objective) = (random.pick(&networks).clone(), *random.pick(&Objective::ALL));
        let planner = Planner::new().topology(network).objective(objective).budget(SearchBudget::default());
        let (Ok(plan), Ok(Some(greedy))) =
            (planner.plan(&from, &to, DType::F64), planner.axis_by_axis(&from, &to, DType::F64))
        else {
            continue;
        };
        compared += 1;
        // Without partial values, a plan on one level receives the fewest bytes, even where more would save a
        // few messages.
        let bare = !from.is_partial() && !to.is_partial();
        let spends = bare && objective == Objective::Time && greedy.received_bytes() > plan.received_bytes();
        let least = cost(&greedy, objective) * (1.0 + 1e-9);
        if !plan.is_budget_exhausted() && !reduces_twice(&greedy) && !spends && cost(&plan, objective) > least
        {
            dearer.push(format!("{objective} {from} -> {to} on {mesh} {shape:?}\n{plan}\n{greedy}"));
        }
    }
    assert!(u64::from(compared) > count / 2, "{compared}");
    assert!(
        dearer.is_empty(),
        "{} of {compared}\n{}",
        dearer.len(),
        dearer[..dearer.len().min(3)].join("\n\n")
    );
}
