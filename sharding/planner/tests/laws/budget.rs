//! Budgets: an unmarked plan equals the plan without a budget, a marked one is no better, and no problem is
//! rejected.

use reshard_kernels::DType;
use reshard_planner::{Planner, SearchBudget, Topology};
use reshard_sharding::Mesh;
use reshard_test_support::shardings;

#[test]
fn unmarked_plans_are_those_of_no_budget() {
    let (mut marked, mut unmarked) = (0, 0);
    for (mesh, shape, choices) in [
        ("x=2,y=3", &[5, 7][..], &["R", "S(0)", "S(1)", "P"][..]),
        ("x=2,y=2,z=2", &[8, 8], &["S(0)", "S(1)", "P"]),
        ("x=3,y=2,z=2", &[7, 9], &["R", "S(1)", "P"]),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let all = shardings(&mesh, shape, choices);
        for topology in
            [Topology::uniform(), "launch=5;message=0.1;level=2:1:100;level=*:5:10".parse().unwrap()]
        {
            let planner = Planner::new().topology(topology);
            for (i, from) in all.iter().enumerate() {
                for to in all.iter().skip(i % 3).step_by(3) {
                    let free =
                        planner.clone().budget(SearchBudget::UNLIMITED).plan(from, to, DType::F32).unwrap();
                    assert!(!free.is_budget_exhausted());
                    for budget in [0, 2_000, 100_000] {
                        let plan = planner
                            .clone()
                            .budget(SearchBudget::new(budget))
                            .plan(from, to, DType::F32)
                            .unwrap();
                        assert!(plan.cost_us() >= free.cost_us(), "{plan}\n{free}");
                        assert!(plan.lower_bound_us() <= free.cost_us() * (1.0 + 1e-9), "{plan}\n{free}");
                        if plan.is_budget_exhausted() {
                            marked += 1;
                            assert!(plan.to_string().contains("budget of"), "{plan}");
                        } else {
                            unmarked += 1;
                            assert_eq!(plan.to_string(), free.to_string());
                        }
                    }
                }
            }
        }
    }
    assert!(marked > 100 && unmarked > 1_000, "{marked} {unmarked}");
}
