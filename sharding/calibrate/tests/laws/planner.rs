//! Predictions are the planner's prices of the same collectives.

use reshard_calibrate::{Check, Measurement, Options, calibrate};
use reshard_kernels::DType;
use reshard_planner::{Planner, StepOp, Topology};
use reshard_sharding::{Mesh, Sharding};

/// Compares the prediction of each collective with the plan that PyTorch's axis-by-axis rules give: one step.
fn compare(topology: &Topology, mesh: &str, [nodes, ranks]: [usize; 2]) -> usize {
    let mesh: Mesh = mesh.parse().unwrap();
    let rest = ",R".repeat(mesh.axes().len() - 1);
    let mut compared = 0;
    for rows in [192usize, 192 * 3, 192 << 5, 192 << 10, 192 << 18] {
        let (shape, elements) = ([rows, 192], rows * 192);
        for (from, to, collective) in [
            ("S(0)", "R", StepOp::AllGather),
            ("P", "S(0)", StepOp::ReduceScatter),
            ("P", "R", StepOp::AllReduce),
            ("S(0)", "S(1)", StepOp::AllToAll),
        ] {
            let [source, target] =
                [from, to].map(|text| Sharding::parse(&mesh, &shape, &format!("{text}{rest}")).unwrap());
            let planner = Planner::new().topology(topology.clone());
            let plan = planner.axis_by_axis(&source, &target, DType::U8).unwrap().unwrap();
            let steps = plan.steps();
            assert_eq!(steps.len(), 1, "{from} -> {to}");
            // An all-to-all is counted by the buffer of a rank.
            let is_exchange = collective == StepOp::AllToAll;
            let bytes = if is_exchange { elements / ranks } else { elements } as u64;
            let priced = plan.cost_us();
            let measurement = Measurement { collective, nodes, ranks, bytes, us: priced };
            let table = reshard_calibrate::Table {
                measurements: vec![measurement],
                dtype: None,
                left_out: 0,
                differing: std::collections::BTreeMap::new(),
            };
            let predicted = Check::of(&table, topology).unwrap().worst.predicted_us;
            assert!(
                (predicted / priced - 1.0).abs() < 1e-6,
                "{from} -> {to}, {bytes}: {predicted}, {priced}"
            );
            compared += 1;
        }
    }
    compared
}

#[test]
fn predictions_are_prices_of_plans() {
    let one = crate::table(crate::INSIDE, &[("gpu", "H100 SXM"), ("label", "2.29.2"), ("dtype", "f16")]);
    let some = crate::part(&one, |m| m.ranks != 4);
    let two = crate::table(crate::BETWEEN, &[("kind", "measured"), ("collective", "all_reduce")]);
    let mut both = some.clone();
    both.measurements.extend(two.measurements);
    let mut compared = 0;
    for table in [&some, &both] {
        let options = Options { node_ranks: Some(8), ..Options::new("a test") };
        let (profile, _) = calibrate(table, &options).unwrap();
        let topology = Topology::try_from(profile).unwrap();
        for (mesh, group) in [
            ("x=8", [1, 8]),
            ("x=4", [1, 4]),
            ("x=3", [1, 3]),
            ("x=16", [2, 16]),
            ("x=64", [8, 64]),
            ("x=4,y=8", [4, 4]),
            // The ranks of a group have a stride of 4, so that two are in each node.
            ("x=4,y=4", [2, 4]),
        ] {
            compared += compare(&topology, mesh, group);
        }
    }
    assert_eq!(compared, 280);
}
