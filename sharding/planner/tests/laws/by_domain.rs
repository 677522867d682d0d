//! Direct plans on a network: the data that enters a node, and its sources.

use reshard_kernels::DType;
use reshard_planner::{Objective, Plan, Planner, StepOp, Topology};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::interpreter::run;
use reshard_test_support::{Sweep, shards_of, slower};

/// Nodes of 8 ranks.
const NODE: usize = 8;

fn plan_of(planner: &Planner, from: (&str, &str), to: (&str, &str), shape: &[usize]) -> Plan {
    let sharding = |(mesh, p): (&str, &str)| {
        let mesh: Mesh = mesh.parse().unwrap();
        Sharding::parse(&mesh, shape, p).unwrap()
    };
    planner.plan(&sharding(from), &sharding(to), DType::F32).unwrap()
}

/// Returns the elements that enter each node from others, over all steps.
fn imports(plan: &Plan, node: usize) -> Vec<usize> {
    let world = plan.from().mesh().world_size().max(plan.to().mesh().world_size());
    let mut imports = vec![0; world.div_ceil(node)];
    for step in 0..plan.steps().len() {
        for rank in plan.ranks() {
            for phase in plan.steps()[step].phases(rank).unwrap() {
                let far = phase.receives.iter().filter(|m| m.peer / node != rank / node);
                imports[rank / node] += far.map(reshard_planner::Message::numel).sum::<usize>();
            }
        }
    }
    imports
}

/// Executes a plan and checks that it preserves the global tensor.
pub(crate) fn carried_out(plan: &Plan) {
    let world = plan.from().mesh().world_size().max(plan.to().mesh().world_size());
    let shards = shards_of(plan.from(), 7);
    let (got, received) = run(plan, world, &shards);
    assert_eq!(plan.to().assemble(&got).unwrap(), plan.from().assemble(&shards).unwrap(), "{plan}");
    assert_eq!(received, plan.received_bytes(), "{plan}");
    assert!(plan.cost_us() * (1.0 + 1e-9) >= plan.lower_bound_us(), "{plan}");
    assert!(plan.lower_bound_bytes().is_none_or(|b| received >= b), "{plan}");
}

/// Returns the elements of the target that a node wants and lacks in the source, each once: by the regions.
fn missing(plan: &Plan, node: usize) -> Vec<usize> {
    let (from, to) = (plan.from(), plan.to());
    let world = from.mesh().world_size().max(to.mesh().world_size());
    let numel = from.numel();
    let marks = |s: &Sharding, n: usize| -> Vec<bool> {
        let mut marks = vec![false; numel];
        for rank in s.mesh().ranks().filter(|r| r / node == n) {
            let region = s.region(rank).unwrap();
            let mut at = vec![0usize];
            for dim in 0..s.shape().len() {
                let extent = s.shape()[dim];
                at = at
                    .iter()
                    .flat_map(|&a| region.indices(dim).unwrap().map(move |i| a * extent + i))
                    .collect();
            }
            for i in at {
                marks[i] = true;
            }
        }
        marks
    };
    (0..world.div_ceil(node))
        .map(|n| {
            let (have, want) = (marks(from, n), marks(to, n));
            have.iter().zip(&want).filter(|(have, want)| **want && !**have).count()
        })
        .collect()
}

#[test]
fn a_replicated_target_behind_a_slow_level_gets_each_block_once_per_node() {
    // Elements of 64 KiB.
    // Collectives go level by level in the model and directly on threads; a deterministic planner has none
    // for uneven rows and columns.
    let h100 = Planner::new().topology(slower(&Topology::h100(), 1 << 14)).deterministic(true);
    let uniform = Planner::new().topology(slower(&Topology::uniform(), 1 << 14));
    for (from, to, shape) in [
        // Uneven rows across three nodes, wanted everywhere.
        (("x=3,y=8", "S(0),R"), ("x=3,y=8", "R,R"), &[1000, 47][..]),
        // A trainer's node to one of inference, whole copies on every rank.
        (("dp=4,tp=2", "S(0),S(1)"), ("x=8@8", "R"), &[64, 64]),
        // Sharded over two ranks, replicated over the four pairs of a node.
        (("dp=8", "S(0)"), ("r=4,tp=2@8", "R,S(1)"), &[64, 64]),
        // Partial values are reduced first, then copied.
        (("dp=4,tp=2", "P,S(1)"), ("x=8@8", "R"), &[64, 63]),
    ] {
        let plan = plan_of(&h100, from, to, shape);
        carried_out(&plan);
        assert_eq!(imports(&plan, NODE), missing(&plan, NODE), "{plan}");
        if from.0 == to.0 {
            // On one level of one mesh all data comes directly from its sources.
            let flat = plan_of(&uniform, from, to, shape);
            let (many, once) = (imports(&flat, NODE), imports(&plan, NODE));
            assert!(many.iter().sum::<usize>() >= 4 * once.iter().sum::<usize>(), "{flat}");
        }
    }
}

#[test]
fn small_tensors_are_not_cut_for_a_second_step() {
    let h100 = Planner::new().topology(Topology::h100());
    let plan = plan_of(&h100, ("dp=1", "R"), ("x=8@8", "R"), &[8]);
    assert_eq!(plan.communicating_steps(), 1, "{plan}");
    carried_out(&plan);
}

#[test]
fn sources_are_near() {
    // Six replicas on ranks 0..6, wanted by ranks 6 and 7, in nodes of four: ranks 4 and 5 are on their node.
    let nodes: Topology = "launch=6.6;message=0.2;level=4:2:370;level=*:8:45".parse().unwrap();
    let planner = Planner::new().topology(nodes);
    let plan = plan_of(&planner, ("x=6", "R"), ("y=2@6", "R"), &[12]);
    carried_out(&plan);
    assert_eq!(imports(&plan, 4), [0, 0], "{plan}");
    let peers: Vec<usize> = (6..8).map(|r| plan.steps()[0].phases(r).unwrap()[0].receives[0].peer).collect();
    assert_eq!(peers, [4, 5], "balanced: {plan}");
}

/// Every plan on straddled nodes is valid, and no bound is above its cost: fives and nines in nodes of six, eight and four.
#[test]
fn bounds_hold_where_nodes_are_straddled() {
    let sweep = Sweep::asked();
    // Per number of axes, one in `n` of the pairs.
    let one_in: [usize; 4] = if sweep.is_exhaustive() { [5, 5, 5, 41] } else { [61, 61, 61, 389] };
    let mut count = 0;
    for node in [4, 6, 8] {
        let nodes: Topology =
            format!("launch=6.6;message=0.2;level={node}:2:370;level=*:8:45").parse().unwrap();
        for mesh in ["dp=3,f=4", "dp=8,f=5", "dp=2,f=9", "a=3,b=2,c=3", "x=5:1,y=3:6", "x=2:1,y=3:3@2"] {
            let mesh: Mesh = mesh.parse().unwrap();
            let axes = mesh.axes().len() as u32;
            let choices = ["R", "S(0)", "S(1)", "P"];
            let word = |i: usize| {
                let one = |a: u32| choices[i / choices.len().pow(a) % choices.len()];
                (0..axes).map(one).collect::<Vec<_>>().join(",")
            };
            let total = choices.len().pow(axes);
            for shape in [&[60, 36][..], &[7, 11]] {
                for i in 0..total {
                    for j in 0..total {
                        if (i * 31 + j) % one_in[axes as usize] != 0 || !sweep.takes((i * total + j) as u64) {
                            continue;
                        }
                        let parse = |p: &str| Sharding::parse(&mesh, shape, p).unwrap();
                        let (from, to) = (parse(&word(i)), parse(&word(j)));
                        for objective in Objective::ALL {
                            let planner = Planner::new().topology(slower(&nodes, 1024)).objective(objective);
                            let plan = planner.plan(&from, &to, DType::F32).unwrap();
                            assert!(
                                plan.cost_us() * (1.0 + 1e-9) >= plan.lower_bound_us(),
                                "{node} {plan} {objective}"
                            );
                            let bytes = plan.received_bytes();
                            assert!(
                                plan.lower_bound_bytes().is_none_or(|b| bytes >= b),
                                "{plan} {objective}"
                            );
                            if (i + 3 * j) % 11 == 0 {
                                carried_out(&plan);
                            }
                            count += 1;
                        }
                    }
                }
            }
        }
    }
    println!("{count} plans");
    assert!(count > sweep.least(200, 3_000), "{count}");
}

/// Returns the cost of the worst rank of an exchange, by the model's formula on individual messages.
///
/// The second number is the same without the latencies of inner levels.
fn exchange_us(plan: &Plan, step: usize, topology: &Topology) -> [f64; 2] {
    let mut worst = [0.0f64; 2];
    for rank in plan.ranks() {
        let mut levels = vec![(0.0, 0usize); topology.levels().len()];
        for phase in plan.steps()[step].phases(rank).unwrap() {
            for m in phase.receives.iter().filter(|m| m.peer != rank) {
                let at = &mut levels[topology.level_of(rank, m.peer)];
                *at = (at.0 + (m.numel() * plan.element_bytes()) as f64, at.1 + 1);
            }
        }
        let peers: usize = levels.iter().map(|l| l.1).sum();
        let latency = |(l, x): (&(f64, usize), &reshard_planner::Level)| {
            x.latency_us * (1.0 + l.1 as f64).log2().ceil()
        };
        let latencies: Vec<f64> = levels.iter().zip(topology.levels()).map(latency).collect();
        let wire = levels.iter().zip(topology.levels()).map(|(l, x)| l.0 / (x.gbytes_per_s * 1e3));
        let rest = topology.launch_us() + topology.message_us() * peers as f64 + wire.fold(0.0, f64::max);
        worst[0] = worst[0].max(rest + latencies.iter().sum::<f64>());
        worst[1] = worst[1].max(rest + latencies[latencies.len() - 1]);
    }
    worst
}

/// On straddled nodes, an exchange of digits is costed as if all that may cross a level did.
///
/// Bytes and messages are never too low, but the latency of inner levels is not added to that of the
/// outermost.
#[test]
fn an_exchange_on_straddled_nodes_is_costed_high() {
    let sweep = Sweep::asked();
    let mut cases = sweep.picking(5);
    let (mut steps, mut high, mut most, mut low) = (0, 0, 0.0f64, 0.0f64);
    for node in [4, 6, 8] {
        let text = format!("launch=6.6;message=0.2;level={node}:2:370;level=*:8:45");
        let nodes: Topology = text.parse().unwrap();
        for mesh in ["dp=3,f=4", "dp=8,f=5", "dp=2,f=9", "a=3,b=2,c=3", "dp=4,tp=6"] {
            let mesh: Mesh = mesh.parse().unwrap();
            let axes = mesh.axes().len() as u32;
            let word = |i: usize| {
                let one = |a: u32| ["R", "S(0)", "S(1)"][i / 3usize.pow(a) % 3];
                (0..axes).map(one).collect::<Vec<_>>().join(",")
            };
            for i in 0..3usize.pow(axes) {
                for j in 0..3usize.pow(axes) {
                    if !cases.picks_next() && !sweep.is_exhaustive() {
                        continue;
                    }
                    let parse = |i| Sharding::parse(&mesh, &[720, 720], &word(i)).unwrap();
                    for nodes in [nodes.clone(), slower(&nodes, 1024)] {
                        let plan = Planner::new()
                            .topology(nodes.clone())
                            .plan(&parse(i), &parse(j), DType::F32)
                            .unwrap();
                        for (k, s) in plan.steps().iter().enumerate() {
                            if !matches!(s.op(), StepOp::Exchange | StepOp::AllToAll) {
                                continue;
                            }
                            let [real, without] = exchange_us(&plan, k, &nodes);
                            steps += 1;
                            high += usize::from(s.cost_us > real + 1e-6);
                            most = most.max(s.cost_us / real);
                            low = low.max(real - s.cost_us);
                            let without = without - s.cost_us;
                            assert!(
                                without <= 1e-6,
                                "{without} us too low except for latency: {s} of {mesh} in {node}s"
                            );
                        }
                    }
                }
            }
        }
    }
    println!(
        "{steps} exchanges, {high} costed too high, at most {most:.2} times; at most {low:.2} us too low"
    );
    let least = if sweep.is_exhaustive() { 500 } else { 100 };
    assert!(steps > least && high > 0, "{steps} {high}");
    // Two rounds of the inner level.
    assert!(low <= 2.0 * 2.0, "{low} us too low");
}
