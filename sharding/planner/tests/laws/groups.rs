//! With restricted groups: a plan uses only those, and a problem is rejected only if it has no such plan.

use reshard_kernels::DType;
use reshard_planner::{Error, Objective, Plan, Planner, SearchBudget};
use reshard_sharding::{GroupPattern, Mesh, Sharding, SubAxis};
use reshard_test_support::interpreter::run;
use reshard_test_support::{Random, Sweep, random_mesh, random_shape, random_sharding, shardings, shards_of};
use serde_json::Value;

fn axes(mesh: &Mesh) -> Vec<GroupPattern> {
    mesh.axes().iter().map(|a| mesh.group_of_axes(&[a.name().as_str()]).unwrap()).collect()
}

/// Checks that a plan preserves the global tensor and uses no other groups.
fn check(plan: &Plan, groups: &[GroupPattern]) {
    for group in plan.groups() {
        assert!(groups.iter().any(|one| group.is_covered_by(one)), "{plan}");
    }
    let shards = shards_of(plan.from(), 7);
    let (got, _) = run(plan, plan.from().mesh().world_size(), &shards);
    assert_eq!(plan.to().assemble(&got), plan.from().assemble(&shards), "{plan}");
    for rank in plan.ranks() {
        for (step, phase) in plan.phases(rank).unwrap() {
            let members = &phase.members;
            let peers = phase.sends.iter().chain(&phase.receives).map(|m| m.peer);
            assert!(peers.into_iter().all(|p| p == rank || members.contains(&p)), "step {step} of {plan}");
        }
    }
}

/// With a group for each axis there is a plan axis by axis between any two: replicate, then slice.
#[test]
fn every_pair_is_planned_axis_by_axis() {
    let mut count = 0;
    for (mesh, shape) in [
        ("x=2,y=3", &[5, 7][..]),
        ("x=3,y=2", &[4, 6]),
        ("x=4", &[13, 3]),
        ("x=2,y=2", &[7]),
        ("x=2,y=3,z=2", &[5]),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let planner = Planner::new().with_groups(axes(&mesh));
        let choices: &[&str] =
            if shape.len() > 1 { &["R", "S(0)", "S(1)", "P"] } else { &["R", "S(0)", "P"] };
        let all = shardings(&mesh, shape, choices);
        for from in &all {
            for to in &all {
                let plan = planner.plan(from, to, DType::F64);
                let plan = plan.unwrap_or_else(|e| panic!("{from} -> {to} of {shape:?} on {mesh}: {e}"));
                check(&plan, &axes(&mesh));
                count += 1;
            }
        }
    }
    assert!(count > 1_000, "{count}");
}

/// Returns `true` if one step over groups of one axis can lead from one sharding to another.
///
/// The target of every rank must be held in its group.
fn one_step(from: &Sharding, to: &Sharding, axis: usize) -> bool {
    let mesh = from.mesh();
    mesh.ranks().all(|rank| {
        let me = mesh.coordinate(rank).unwrap();
        let want = to.region(rank).unwrap();
        let group: Vec<_> = (0..mesh.axes()[axis].size())
            .map(|i| {
                let mut c = me.clone();
                c[axis] = i;
                from.region(mesh.rank_at(&c).unwrap()).unwrap()
            })
            .collect();
        let dims = from.shape().len();
        let mut wanted: Vec<Vec<usize>> = vec![Vec::new()];
        for dim in 0..dims {
            let of_dim: Vec<usize> = want.indices(dim).unwrap().collect();
            wanted = wanted
                .iter()
                .flat_map(|e| of_dim.iter().map(move |&i| [e.as_slice(), &[i]].concat()))
                .collect();
        }
        wanted.iter().all(|e| {
            group.iter().any(|have| (0..dims).all(|dim| have.indices(dim).unwrap().any(|i| i == e[dim])))
        })
    })
}

/// With a group of one axis only: planned exactly where steps over that axis lead to the target.
///
/// The steps may use any placements.
#[test]
fn it_is_refused_exactly_where_nothing_leads_there() {
    let (mut planned, mut refused) = (0, 0);
    for (mesh, shape) in [("x=2,y=3", &[5, 7][..]), ("x=3,y=2", &[7, 4]), ("x=2,y=2,z=2", &[5])] {
        let mesh: Mesh = mesh.parse().unwrap();
        let choices: &[&str] = if shape.len() > 1 { &["R", "S(0)", "S(1)"] } else { &["R", "S(0)"] };
        let all = shardings(&mesh, shape, choices);
        for axis in 0..mesh.axes().len() {
            let group = axes(&mesh).remove(axis);
            let planner = Planner::new().with_groups([group.clone()]);
            let n = all.len();
            let mut reach: Vec<Vec<bool>> =
                all.iter().map(|a| all.iter().map(|b| one_step(a, b, axis)).collect()).collect();
            for k in 0..n {
                for i in 0..n {
                    for j in 0..n {
                        reach[i][j] |= reach[i][k] && reach[k][j];
                    }
                }
            }
            for (i, from) in all.iter().enumerate() {
                for (j, to) in all.iter().enumerate() {
                    match planner.plan(from, to, DType::F64) {
                        Ok(plan) => {
                            check(&plan, core::slice::from_ref(&group));
                            planned += 1;
                        }
                        Err(e) => {
                            assert!(!reach[i][j], "{from} -> {to} of {shape:?} on {mesh} over {group}: {e}");
                            refused += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(planned > 100 && refused > 100, "{planned} {refused}");
}

/// PyTorch redistributes axis by axis: with those groups, all of its test cases have plans.
///
/// They take no more collectives. Where it reduces over several axes at once, it has flattened these into
/// one. With that group too, it takes no fewer collectives.
#[test]
fn no_more_collectives_than_pytorch_makes() {
    let (mut count, mut counted, mut flattened) = (0, 0, 0);
    for line in include_str!("../data/torch_redistribute.jsonl").lines().skip(1) {
        let row: Value = serde_json::from_str(line).unwrap();
        let numbers = |key: &str| -> Vec<usize> {
            row[key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
        };
        let mesh = Mesh::new(["x", "y", "z", "w"].into_iter().zip(numbers("mesh"))).unwrap();
        let parse =
            |key: &str| Sharding::parse(&mesh, &numbers("shape"), row[key].as_str().unwrap()).unwrap();
        let (from, to) = (parse("a"), parse("b"));
        let of = |groups: Vec<GroupPattern>| {
            let plan = Planner::new().with_groups(groups).plan(&from, &to, DType::F32);
            plan.unwrap_or_else(|e| panic!("{line}: {e}"))
        };
        let plan = of(axes(&mesh));
        count += 1;
        let Some(theirs) = row["n"].as_u64() else { continue };
        counted += 1;
        if plan.communicating_steps() as u64 > theirs {
            let terms: Vec<_> = from.partial().iter().map(|p| p.sub).collect();
            assert!(terms.len() > 1 || terms.iter().any(|s| !mesh.is_whole(*s)), "{line}\n{plan}");
            let mut groups = axes(&mesh);
            groups.push(mesh.group(&terms).unwrap());
            let plan = of(groups);
            assert!(plan.communicating_steps() as u64 <= theirs, "{line}\n{plan}");
            flattened += 1;
        }
    }
    assert_eq!((count, counted, flattened), (135, 56, 8));
}

/// Axes of one rank have no effect.
#[test]
fn axes_of_one_rank_change_nothing() {
    let shape = [5, 7];
    let alone: Mesh = "x=2,y=2".parse().unwrap();
    let beside: Mesh = "x=2,y=2,c=1,d=1,e=1,f=1,g=1,h=1,i=1".parse().unwrap();
    let of = |mesh: &Mesh| Planner::new().with_groups(axes(mesh));
    for from in ["S(0),S(1)", "P,S(1)", "SS(0,3),R", "R,S(0)"] {
        for to in ["S(1),S(0)", "R,R", "S(0),P", "R,SS(1,2)"] {
            let costs = [&alone, &beside].map(|mesh| {
                let more = ",R".repeat(mesh.axes().len() - 2);
                let of_text = |text: &str| Sharding::parse(mesh, &shape, &format!("{text}{more}")).unwrap();
                let (from, to) = (of_text(from), of_text(to));
                let plan = of(mesh).plan(&from, &to, DType::F64);
                plan.unwrap_or_else(|e| panic!("{from} -> {to} on {mesh}: {e}")).cost_us().to_bits()
            });
            assert_eq!(costs[0], costs[1], "{from} -> {to}");
        }
    }
}

/// Partial values are reduced in the group of all ranks, whatever else changes.
///
/// Whole values become partial first.
#[test]
fn terms_go_away_in_a_group_of_all() {
    let (mut count, mut cases) = (0, Sweep::asked().picking(16));
    for (mesh, shape) in [("x=2,y=3", &[5, 7][..]), ("x=2,y=2", &[4]), ("x=2,y=2,z=2", &[3])] {
        let mesh: Mesh = mesh.parse().unwrap();
        let names: Vec<&str> = mesh.axes().iter().map(|a| a.name().as_str()).collect();
        let all_ranks = mesh.group_of_axes(&names).unwrap();
        let choices: &[&str] =
            if shape.len() > 1 { &["R", "S(0)", "SS(1,2)", "P"] } else { &["R", "S(0)", "SS(0,2)", "P"] };
        let all = shardings(&mesh, shape, choices);
        for from in all.iter().filter(|s| s.is_partial()) {
            for to in all.iter().filter(|s| !s.is_partial()) {
                if !cases.picks_next() {
                    continue;
                }
                for budget in [SearchBudget::new(0), SearchBudget::default()] {
                    let planner = Planner::new().with_groups([all_ranks.clone()]).budget(budget);
                    let plan = planner.plan(from, to, DType::F64);
                    let plan = plan.unwrap_or_else(|e| panic!("{from} -> {to} of {shape:?} on {mesh}: {e}"));
                    check(&plan, core::slice::from_ref(&all_ranks));
                    count += 1;
                }
            }
        }
    }
    assert!(count > Sweep::asked().least(25, 500), "{count}");
}

/// A memory error gives a larger limit, and within that there is a plan.
///
/// With a group for each axis, no error reports a missing group.
#[test]
fn what_a_refusal_says_is_so() {
    let (mut planned, mut refused, mut cases) = (0, 0, Sweep::asked().picking(16));
    let mesh: Mesh = "x=2,y=3".parse().unwrap();
    for shape in [&[6, 4][..], &[5, 2]] {
        let all = shardings(&mesh, shape, &["R", "S(0)", "SS(1,2)", "P"]);
        for from in &all {
            for to in &all {
                if !cases.picks_next() {
                    continue;
                }
                let whole = Planner::new().plan(from, to, DType::F64).unwrap().peak_bytes();
                for limit in [whole, whole * 3 / 4, whole / 2, 8] {
                    for groups in [None, Some(axes(&mesh))] {
                        let planner = Planner::new().max_peak_bytes(limit);
                        let planner = if let Some(groups) = &groups {
                            planner.with_groups(groups.clone())
                        } else {
                            planner
                        };
                        match planner.plan(from, to, DType::F64) {
                            Ok(plan) => {
                                assert!(plan.peak_bytes() <= limit, "{plan}");
                                planned += 1;
                            }
                            Err(Error::PeakTooSmall { limit: said, least }) => {
                                assert!(said == limit && least > limit, "{from} -> {to}: {least} of {limit}");
                                let enough = planner.max_peak_bytes(least).plan(from, to, DType::F64);
                                assert!(
                                    enough.is_ok(),
                                    "{from} -> {to} of {shape:?} within {least}: {groups:?}"
                                );
                                refused += 1;
                            }
                            // With a group for each axis there always is a plan, if there is memory.
                            Err(e) => panic!("{from} -> {to} of {shape:?} within {limit}: {e}"),
                        }
                    }
                }
            }
        }
    }
    let least = Sweep::asked().least(25, 500);
    assert!(planned > least && refused > least, "{planned} {refused}");
}

/// A step runs in the least admitted group that contains its own, parts of axes included.
///
/// All other ranks of that group are silent.
#[test]
fn a_larger_group_that_exists_serves_a_step() {
    for (mesh, shape, from, to, serves, given) in [
        ("x=4,y=2", &[16][..], "S(0),S(0)", "S(0),R", "4:1", "4:2;4:1"),
        ("x=4,y=2", &[16], "S(0),S(0)", "S(0),R", "8:1", "8:1"),
        ("x=2,y=2", &[3], "R,S(0)", "R,R", "4:1", "4:1"),
        ("x=2,y=2,z=2", &[5, 3], "R,S(0),S(1)", "R,R,S(1)", "(2,2):(1,2)", "4:1;2:4"),
        ("x=2,y=2,z=2", &[5, 3], "S(0),R,R", "S(1),R,R", "(2,2):(1,4)", "(2,2):(1,4)"),
        ("x=8", &[16, 4], "S(0)", "S(1)", "8:1", "8:1"),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let [from, to] = [from, to].map(|text| Sharding::parse(&mesh, shape, text).unwrap());
        let given: Vec<GroupPattern> = given.split(';').map(|group| group.parse().unwrap()).collect();
        let planner = Planner::new().objective(Objective::Bytes).with_groups(given.clone());
        let plan = planner.plan(&from, &to, DType::F64).unwrap();
        check(&plan, &given);
        assert!(plan.groups().into_iter().any(|group| *group == serves.parse().unwrap()), "{plan}");
    }
    // Groups along which ranks cannot reach the elements that they need.
    let mesh: Mesh = "x=2,y=2".parse().unwrap();
    let [from, to] = ["S(0),R", "R,R"].map(|text| Sharding::parse(&mesh, &[4], text).unwrap());
    let error =
        Planner::new().with_groups(["2:1".parse().unwrap()]).plan(&from, &to, DType::F64).unwrap_err();
    assert!(error.to_string().contains("also needs 2:2"), "{error}");
}

/// With random parts of axes as groups: plans preserve the global tensor and use no other group.
#[test]
fn plans_within_any_groups_are_right() {
    let mut random = Random(Sweep::asked().seed());
    let (mut planned, mut asked) = (0u32, 0u32);
    for _ in 0..Sweep::asked().count(150, 6_000) {
        let mesh = random_mesh(&mut random);
        let shape = random_shape(&mut random);
        let [from, to] =
            [random_sharding(&mut random, &mesh, &shape), random_sharding(&mut random, &mesh, &shape)];
        let parts: Vec<SubAxis> = mesh
            .whole_axes()
            .flat_map(|axis| {
                (1..=axis.size)
                    .filter(move |n| axis.size.is_multiple_of(*n))
                    .map(move |size| SubAxis { size, ..axis })
            })
            .collect();
        let mut groups: Vec<GroupPattern> = Vec::new();
        for _ in 0..=random.below(3) {
            let some: Vec<SubAxis> = parts.iter().copied().filter(|_| random.below(2) == 0).collect();
            groups.extend(mesh.group(&some).ok());
        }
        asked += 1;
        if let Ok(plan) = Planner::new().with_groups(groups.clone()).plan(&from, &to, DType::F64) {
            check(&plan, &groups);
            planned += 1;
        }
    }
    assert!(planned > asked / 4, "{planned} of {asked}");
}
