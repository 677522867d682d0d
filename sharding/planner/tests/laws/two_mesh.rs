//! Plans between two meshes: facts of trainers and servers, properties of small pairs, and the peers' own rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_planner::{Plan, PlanCache, Planner, Topology};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::both_directions::{Messages, directions, of_messages, picoseconds};
use reshard_test_support::{Sweep, TwoMeshFact, every, two_mesh_facts};

use crate::by_domain::carried_out;

/// Returns what each rank sends to other ranks in the exchanges of a plan.
fn sent(plan: &Plan) -> BTreeMap<usize, u64> {
    let mut sent = BTreeMap::new();
    for step in plan.steps().iter().filter(|step| step.before.mesh() != step.after.mesh()) {
        for rank in plan.ranks() {
            for phase in step.phases(rank).unwrap() {
                for m in phase.sends.iter().filter(|m| m.peer != rank) {
                    *sent.entry(rank).or_default() += (m.numel() * plan.element_bytes()) as u64;
                }
            }
        }
    }
    sent
}

/// Returns the ranks that hold each region: by dim, the starts and lengths of its intervals.
fn owners(s: &Sharding) -> BTreeMap<Vec<Vec<(usize, usize)>>, Vec<usize>> {
    let mut owners: BTreeMap<Vec<Vec<(usize, usize)>>, Vec<usize>> = BTreeMap::new();
    for rank in s.mesh().ranks() {
        let region = s.region(rank).unwrap();
        let key = region.dims.iter().map(|dim| dim.iter().map(|x| (x.start, x.len)).collect()).collect();
        owners.entry(key).or_default().push(rank);
    }
    owners
}

/// Returns the messages in which every target takes its shard from the owner that `pick` names, of its number.
fn pulled(from: &Sharding, to: &Sharding, item: usize, pick: impl Fn(usize, usize) -> usize) -> Messages {
    let mut messages = Messages::new();
    let owners = owners(from);
    for (number, rank) in to.mesh().ranks().enumerate() {
        let wanted = to.region(rank).unwrap();
        for (region, ranks) in &owners {
            let shared = |(of, wanted): (&Vec<(usize, usize)>, &reshard_sharding::Intervals)| -> usize {
                let len = |x: &(usize, usize), y: &reshard_sharding::Interval| {
                    (x.0 + x.1).min(y.start + y.len).saturating_sub(x.0.max(y.start))
                };
                of.iter().flat_map(|x| wanted.iter().map(move |y| len(x, y))).sum()
            };
            let numel: usize = region.iter().zip(&wanted.dims).map(shared).product();
            if numel > 0 {
                *messages.entry([ranks[pick(number, ranks.len())], rank]).or_default() +=
                    (numel * item) as u64;
            }
        }
    }
    messages
}

/// Returns the time of the cheapest of the peers' own rules, in microseconds.
///
/// The first owner of a region sends it; every target takes its own copy, replicas in turn; all is gathered
/// on one rank and scattered from there.
fn of_peers(fact: &TwoMeshFact) -> f64 {
    let item = fact.dtype.bits() / 8;
    let worst = |messages: &Messages| {
        let both = of_messages(messages, &fact.topology);
        both.received_us.max(both.sent_us)
    };
    let first = worst(&pulled(&fact.from, &fact.to, item, |_, _| 0));
    let in_turn = worst(&pulled(&fact.from, &fact.to, item, |number, k| number % k));
    let root = fact.from.mesh().min_rank();
    let one: Mesh = format!("x=1@{root}").parse().unwrap();
    let whole = Sharding::replicated(&one, fact.from.shape()).unwrap();
    let gathered = worst(&pulled(&fact.from, &whole, item, |_, _| 0));
    first.min(in_turn).min(gathered + worst(&pulled(&whole, &fact.to, item, |_, _| 0)))
}

/// The share of a round of the slowest level in bytes: the excess that one owner may send.
fn round(topology: &Topology) -> f64 {
    topology.levels().last().map_or(0.0, |l| l.latency_us * l.gbytes_per_s * 1e3)
}

#[test]
fn facts_of_trainers_and_servers() {
    let (mut count, mut above, mut far, mut balanced, mut classes) = (0, 0, 0, 0, 0);
    for fact in two_mesh_facts() {
        let planner = Planner::new().topology(fact.topology.clone());
        let plan = planner.plan(&fact.from, &fact.to, fact.dtype).unwrap();
        let what = format!("{}: {plan}", fact.name);
        let (cost, bound) = (plan.cost_us(), plan.lower_bound_us());
        // The stated cost is that of the messages, in both directions.
        assert!((cost - picoseconds(&plan, &fact.topology) as f64 / 1e6).abs() < 1e-3, "{what}");
        // Owners of one region share its work.
        let sent = sent(&plan);
        for ranks in owners(&fact.from).values() {
            let of = |rank: &usize| sent.get(rank).copied().unwrap_or(0) as f64;
            let share = ranks.iter().map(of).sum::<f64>() / ranks.len() as f64;
            let worst = ranks.iter().map(of).fold(0.0, f64::max);
            assert!(worst <= 1.02 * share + round(&fact.topology), "{worst} B for {share}: {what}");
            balanced += usize::from(worst <= 1.02 * share);
            classes += 1;
        }
        // Without overlap, the times of the two steps of a relay add up.
        assert!(cost <= bound * if bound < 100.0 { 2.0 } else { 1.9 }, "{what}");
        above += usize::from(bound >= 100.0 && cost > 1.3 * bound);
        far += usize::from(bound >= 100.0 && cost > 1.5 * bound);
        // No dearer than the peers, but for the rounds that sharing may take.
        let slowest = fact.topology.levels().last().unwrap().latency_us;
        assert!(cost <= of_peers(&fact) * 1.02 + slowest + 2.0, "{} us of peers: {what}", of_peers(&fact));
        carried_out(&fact.small_plan(fact.dtype));
        count += 1;
    }
    println!("{balanced} of {classes} regions are sent by equal shares of their owners");
    println!("{count} facts, {above} above 1.3 times the bound, {far} above 1.5");
    assert!(count > 500 && above <= 63 && far <= 12, "{count} {above} {far}");
}

#[test]
fn no_plan_is_below_a_cut_on_small_pairs() {
    let meshes =
        [["x=2,y=3", "x=4,y=2", "x=3"], ["x=2,y=2@16", "x=5@16", "x=8@16"], ["x=2,y=2@1", "x=5@2", "x=8"]];
    let networks = ["uniform", "h100", "launch=5;message=0.1;level=2:1:100;level=4:2:40;level=*:5:10"];
    let sweep = Sweep::asked();
    let all = |mesh: &str| -> Vec<Sharding> {
        let mesh: Mesh = mesh.parse().unwrap();
        let texts = every(&["R", "S(0)", "S(1)", "SS(0,2)"], mesh.axes().len());
        texts.iter().map(|t| Sharding::parse(&mesh, &[12, 10], &t.join(",")).unwrap()).collect()
    };
    let mut count = 0;
    for a in meshes[0] {
        for b in meshes.iter().flatten() {
            for (i, from) in all(a).iter().enumerate() {
                for (j, to) in all(b).iter().enumerate() {
                    for (n, network) in networks.iter().enumerate() {
                        if from == to || (!sweep.is_exhaustive() && (i + 3 * j + n) % 7 > 0) {
                            continue;
                        }
                        let topology: Topology = network.parse().unwrap();
                        let plan =
                            Planner::new().topology(topology.clone()).plan(from, to, DType::F32).unwrap();
                        assert!(plan.cost_us() * (1.0 + 1e-9) >= plan.lower_bound_us(), "{network}: {plan}");
                        for step in plan.steps() {
                            if let Some(both) = directions(&plan, step, &topology) {
                                assert_eq!(both.sent_bytes, step.sent_bytes, "{plan}");
                            }
                        }
                        carried_out(&plan);
                        count += 1;
                    }
                }
            }
        }
    }
    assert!(count > 1_000, "{count}");
}

/// Tensors of a layer of a model of experts: how many, their shape, and their shardings on both sides.
const LAYER: [(usize, &[usize], &str, &str); 9] = [
    (100, &[1536, 4096], "R,S(0)", "R,S(0)"),
    (1, &[9216, 4096], "R,S(0)", "R,S(0)"),
    (1, &[4096, 8192], "R,S(1)", "R,S(1)"),
    (1, &[128, 4096], "R,R", "R,R"),
    (1, &[128, 1536, 4096], "S(0),S(0)", "R,S(1)"),
    (1, &[128, 4096, 1536], "S(0),S(0)", "R,S(2)"),
    (2, &[4096], "R,R", "R,R"),
    (2, &[128], "R,R", "R,R"),
    (1, &[4096, 8192], "S(0),R", "R,S(1)"),
];

#[test]
fn tensors_of_a_model_are_planned_by_kind() {
    let (trainer, servers): (Mesh, Mesh) = ("dp=8,tp=8".parse().unwrap(), "dp=16,tp=8@64".parse().unwrap());
    let planner = Planner::new().topology(Topology::h100());
    let cache = PlanCache::new(1 << 10);
    let (mut plans, mut tensors) = (Vec::new(), 0);
    let start = std::time::Instant::now();
    'model: loop {
        for (times, shape, from, to) in LAYER {
            for _ in 0..times {
                let from = Sharding::parse(&trainer, shape, from).unwrap();
                let to = Sharding::parse(&servers, shape, to).unwrap();
                plans.push(cache.plan(&planner, &from, &to, DType::BF16).unwrap());
                tensors += 1;
                if tensors == 10_000 {
                    break 'model;
                }
            }
        }
    }
    println!("{tensors} tensors in {:?}", start.elapsed());
    assert_eq!(cache.len(), LAYER.len());
    // Cached plans are shared.
    plans.sort_by_key(Arc::as_ptr);
    plans.dedup_by(|a, b| Arc::ptr_eq(a, b));
    assert_eq!(plans.len(), LAYER.len());
}
