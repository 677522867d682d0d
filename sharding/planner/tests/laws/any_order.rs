//! Plans on meshes whose ranks are in any order.
//!
//! The oracle is relabelling. On a network of one level the name of a rank has no effect, so a plan is that
//! of the row-major mesh with its ranks renamed by the table. Where there are nodes, the position of a rank
//! matters. Then the general properties of plans hold: a plan preserves the global tensor, receives the
//! stated bytes, and costs no less than its bound.

use reshard_kernels::DType;
use reshard_planner::{Level, Objective, Plan, Planner, Topology};
use reshard_sharding::{GroupPattern, Mesh, Sharding};
use reshard_test_support::interpreter::run;
use reshard_test_support::{Random, Sweep, shardings, shards_of};

/// Returns the numbers below `n` in random order; in whole blocks, each shuffled, if `block` is less.
fn drawn(random: &mut Random, n: usize, block: usize) -> Vec<usize> {
    let mut shuffled = |mut list: Vec<usize>| {
        for i in (1..list.len()).rev() {
            list.swap(i, random.below(i + 1));
        }
        list
    };
    let blocks = shuffled((0..n.div_ceil(block)).collect());
    blocks.iter().flat_map(|b| shuffled((b * block..n.min((b + 1) * block)).collect())).collect()
}

/// Returns a topology with nodes of `ranks` ranks.
fn nodes(ranks: usize) -> Topology {
    let level = |gbytes_per_s: f64, ranks| Level { gbytes_per_s, ranks, ..Topology::default().levels()[0] };
    Topology::new(1.0, 0.5, &[level(100.0, Some(ranks)), level(10.0, None)]).unwrap()
}

/// Executes a plan and checks that it preserves the global tensor, and keeps its stated bytes and costs.
fn carried_out(plan: &Plan) {
    let world = plan.from().mesh().world_size().max(plan.to().mesh().world_size());
    let shards = shards_of(plan.from(), 7);
    let (got, received) = run(plan, world, &shards);
    assert_eq!(plan.to().assemble(&got).unwrap(), plan.from().assemble(&shards).unwrap(), "{plan}");
    assert!(received <= plan.received_bytes(), "{plan}");
    assert!(plan.cost_us() * (1.0 + 1e-9) >= plan.lower_bound_us(), "{plan}");
    assert!(plan.lower_bound_bytes().is_none_or(|b| received >= b), "{plan}");
}

/// Returns the properties of a plan that do not depend on the names of ranks.
fn said(plan: &Plan) -> String {
    let step = |s: &reshard_planner::Step| {
        let numbers = (s.received_bytes, s.sent_bytes, s.peak_bytes, s.cost_us.to_bits(), s.group.size());
        format!("{} {:?} {numbers:?} {} to {}", s.op(), s.axis_names(), s.before, s.after)
    };
    let steps: Vec<String> = plan.steps().iter().map(step).collect();
    format!("{} {:?} {:?}", steps.join("; "), plan.cost_us(), plan.lower_bound_us())
}

const AXES: [&[(&str, usize)]; 5] = [
    &[("x", 4)],
    &[("x", 2), ("y", 2)],
    &[("x", 2), ("y", 3)],
    &[("x", 4), ("y", 2)],
    &[("x", 2), ("y", 2), ("z", 2)],
];

const CHOICES: [&str; 5] = ["R", "S(0)", "S(1)", "P", "SS(0,2)"];

/// Calls `f` with pairs of shardings on a permuted mesh, and the same on the row-major one.
fn pairs(each: u64, mut f: impl FnMut(&mut Random, [&Sharding; 2], [&Sharding; 2], &[usize])) {
    let mut random = Random(19);
    for axes in AXES {
        let plain = Mesh::new(axes.iter().copied()).unwrap();
        for shape in [[8, 12], [5, 7]] {
            for block in [plain.size(), 2, 4] {
                for _ in 0..each {
                    let table = drawn(&mut random, plain.size(), block);
                    let mesh = Mesh::from_ranks(axes.iter().copied(), &table).unwrap();
                    let [ours, theirs] = [&mesh, &plain].map(|m| shardings(m, &shape, &CHOICES));
                    assert_eq!(ours.len(), theirs.len());
                    let (a, b) = (random.below(ours.len()), random.below(ours.len()));
                    f(&mut random, [&ours[a], &ours[b]], [&theirs[a], &theirs[b]], &table);
                }
            }
        }
    }
}

#[test]
fn plans_are_those_of_the_row_major_mesh_with_ranks_renamed() {
    pairs(Sweep::asked().count(8, 80), |random, ours, theirs, table| {
        let objective = *random.pick(&[Objective::Time, Objective::Bytes, Objective::Peak]);
        let planner = Planner::new().objective(objective).deterministic(random.below(4) == 0);
        let plan = |[from, to]: [&Sharding; 2]| planner.plan(from, to, DType::F32);
        let (a, b) = match (plan(ours), plan(theirs)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(a), Err(b)) => return assert_eq!(a.code(), b.code()),
            (a, b) => panic!("{a:?} {b:?}"),
        };
        // A mesh that is a layout, permuted, has a known form, but a different one.
        if ours[0].mesh().rank_table().is_some() {
            assert_eq!(said(&a), said(&b), "{table:?}");
        }
        for step in 0..a.steps().len() {
            for (position, &rank) in table.iter().enumerate() {
                let (ours, theirs) =
                    (a.steps()[step].phases(rank).unwrap(), b.steps()[step].phases(position).unwrap());
                for (x, y) in ours.iter().zip(&theirs) {
                    let mut renamed: Vec<usize> = y.members.iter().map(|&p| table[p]).collect();
                    let mut members = x.members.clone();
                    renamed.sort_unstable();
                    members.sort_unstable();
                    assert_eq!(members, renamed, "{a}");
                }
            }
        }
        carried_out(&a);
        let stored = serde_json::to_string(&a).unwrap();
        assert_eq!(said(&serde_json::from_str::<Plan>(&stored).unwrap()), said(&a), "{stored}");
    });
}

#[test]
fn plans_on_nodes_mean_the_tensor_whatever_the_order() {
    pairs(Sweep::asked().count(8, 80), |random, ours, _, _| {
        let planner = Planner::new().topology(nodes(*random.pick(&[2, 3, 4])));
        if let Ok(plan) = planner.plan(ours[0], ours[1], DType::F32) {
            carried_out(&plan);
        }
    });
}

#[test]
fn orders_that_keep_nodes_together_cost_what_the_row_major_mesh_does() {
    let mut compared = 0;
    pairs(Sweep::asked().count(8, 80), |random, ours, theirs, table| {
        let node = *random.pick(&[2, 4]);
        let whole = table.len().is_multiple_of(node);
        let keeps = table.chunks(node).all(|chunk| chunk.iter().all(|r| r / node == chunk[0] / node));
        if !keeps || !whole || ours[0].mesh().rank_table().is_none() {
            return;
        }
        let planner = Planner::new().topology(nodes(node));
        let plan = |[from, to]: [&Sharding; 2]| planner.plan(from, to, DType::F32);
        if let (Ok(a), Ok(b)) = (plan(ours), plan(theirs)) {
            compared += 1;
            assert_eq!(a.cost_us().to_bits(), b.cost_us().to_bits(), "{table:?}\n{a}\n{b}");
            assert_eq!(a.received_bytes(), b.received_bytes(), "{table:?}");
        }
    });
    assert!(compared > 10, "{compared}");
}

#[test]
fn plans_between_meshes_in_different_orders_mean_the_tensor() {
    let mut random = Random(5);
    for _ in 0..Sweep::asked().count(120, 1200) {
        let shape = *random.pick(&[[8, 12], [5, 7]]);
        let mut end = || {
            let axes = *random.pick(&AXES);
            let size = axes.iter().map(|a| a.1).product();
            let block = *random.pick(&[2, size]);
            let mesh = Mesh::from_ranks(axes.iter().copied(), &drawn(&mut random, size, block)).unwrap();
            random.pick(&shardings(&mesh, &shape, &["R", "S(0)", "S(1)", "P"])).clone()
        };
        let (from, to) = (end(), end());
        let topology = if random.below(2) == 0 { Topology::default() } else { nodes(2) };
        if let Ok(plan) = Planner::new().topology(topology).plan(&from, &to, DType::F32) {
            carried_out(&plan);
        }
    }
}

#[test]
fn groups_that_exist_are_asked_for_as_lists() {
    let mesh: Mesh = "x=2,y=3@[0,1,3,2,4,5]".parse().unwrap();
    let [from, to] = ["S(0),S(1)", "S(0),R"].map(|p| Sharding::parse(&mesh, &[6, 6], p).unwrap());
    let plan = |groups: &str| {
        let groups = [groups.parse::<GroupPattern>().unwrap()];
        Planner::new().with_groups(groups).plan(&from, &to, DType::F32)
    };
    let found = plan("{{2,4,5},{0,1,3}}").unwrap();
    assert_eq!(found.groups()[0].to_string(), "{{0,1,3},{2,4,5}}");
    carried_out(&found);
    let stored = serde_json::to_string(&found).unwrap();
    assert_eq!(said(&serde_json::from_str::<Plan>(&stored).unwrap()), said(&found));
    let refused = plan("3:1").unwrap_err();
    assert!(refused.to_string().contains("{{0,1,3},{2,4,5}}"), "{refused}");
}
