//! Ragged shardings are planned and viewed like any uneven one.

use reshard_kernels::DType;
use reshard_planner::{Planner, Step, StepOp};
use reshard_sharding::{Mesh, Sharding};

fn sharding(mesh: &str, shape: &[usize], text: &str) -> Sharding {
    let mesh: Mesh = mesh.parse().unwrap();
    Sharding::parse(&mesh, shape, text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Returns the elements that the worst rank lacks of its target.
fn lacks(from: &Sharding, to: &Sharding) -> usize {
    let lack = |r: usize| {
        let has = from.global_indices(r).unwrap();
        to.global_indices(r).unwrap().iter().filter(|e| !has.contains(e)).count()
    };
    to.mesh().ranks().map(lack).max().unwrap()
}

#[test]
fn ragged_plans_receive_what_is_missing() {
    for (mesh, shape, from, to) in [
        ("a=4", &[16, 3][..], "S(0)", "RG(0,[3,5,0,8])"),
        ("a=4", &[16, 3], "RG(0,[3,5,0,8])", "S(0)"),
        ("a=4", &[16, 3], "RG(0,[3,5,0,8])", "RG(0,[0,0,16,0])"),
        ("a=4", &[16, 3], "RG(0,[3,5,0,8])", "R"),
        ("a=4", &[16, 3], "R", "RG(0,[3,5,0,8])"),
        ("a=4", &[16, 4], "RG(0,[3,5,0,8])", "S(1)"),
        ("a=2,b=4", &[32, 4], "S(0),RG(0,[3,5,0,8])", "S(0),S(1)"),
        ("a=2,b=4", &[16, 4], "S(1),RG(0,[3,5,0,8])", "RG(0,[4,12]),S(1)"),
    ] {
        let (from, to) = (sharding(mesh, shape, from), sharding(mesh, shape, to));
        let plan =
            Planner::new().plan(&from, &to, DType::F32).unwrap_or_else(|e| panic!("{from} -> {to}: {e}"));
        assert_eq!(plan.received_bytes(), 4 * lacks(&from, &to) as u64, "{plan}");
    }
}

#[test]
fn partial_to_ragged_is_one_reduce_scatter() {
    let (from, to) = (sharding("a=4", &[16, 3], "P"), sharding("a=4", &[16, 3], "RG(0,[3,5,0,8])"));
    let plan = Planner::new().plan(&from, &to, DType::F32).unwrap();
    let steps: Vec<StepOp> = plan.steps().iter().map(Step::op).collect();
    assert_eq!(steps, [StepOp::ReduceScatter], "{plan}");
}

#[test]
fn ragged_dims_are_viewed_where_regions_allow() {
    for (shape, text, to, want) in [
        (&[16, 3][..], "RG(0,[3,5,0,8])", &[48][..], "RG(0,[9,15,0,24])"),
        (&[48], "RG(0,[9,15,0,24])", &[16, 3], "RG(0,[3,5,0,8])"),
        (&[16, 4], "RG(0,[3,5,0,8])", &[16, 2, 2], "RG(0,[3,5,0,8])"),
        (&[2, 16], "RG(1,[3,5,0,8])", &[1, 2, 16], "RG(2,[3,5,0,8])"),
    ] {
        let s = sharding("a=4", shape, text);
        let t = s.view(to).unwrap_or_else(|e| panic!("{text} as {to:?}: {e}"));
        assert_eq!(t.to_string(), want);
        assert!(s.mesh().ranks().all(|r| s.global_indices(r).unwrap() == t.global_indices(r).unwrap()));
    }
    let e = sharding("a=4", &[48], "RG(0,[8,16,0,24])").view(&[16, 3]).unwrap_err();
    assert_eq!(e.code(), "needs_redistribute");
}
