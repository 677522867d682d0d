//! Plans of all pairs of placements, carried out by a few lines that know nothing but phases, and compared by meaning.

use reshard_sharding::meaning::{Term, meaning};
use reshard_sharding::redistribute::{Block, Objective, Phase, Plan, Planner};
use reshard_sharding::{Mesh, ReduceOp, Sharding};

/// Calls `f` with (source offset, target offset) of every element of a block.
fn each(block: &Block, f: &mut impl FnMut(usize, usize)) {
    let n = block.numel();
    for i in 0..n {
        let (mut left, mut s, mut t) = (i, block.source_offset, block.target_offset);
        for m in block.modes.iter().rev() {
            s += left % m.extent * m.source_stride;
            t += left % m.extent * m.target_stride;
            left /= m.extent;
        }
        f(s, t);
    }
}

fn identity(op: ReduceOp) -> i64 {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Min => i64::MAX,
        ReduceOp::Max => i64::MIN,
    }
}

/// What every rank holds afterwards, and what the worst rank received.
fn run(plan: &Plan, world: usize, shards: &[Vec<i64>]) -> (Vec<Vec<i64>>, u64) {
    let mut state: Vec<Vec<i64>> = vec![Vec::new(); world];
    for (rank, shard) in plan.from().mesh().ranks().zip(shards) {
        state[rank].clone_from(shard);
    }
    let mut received = vec![0u64; world];
    let mut sent = vec![0u64; world];
    for step in 0..plan.steps().len() {
        let (step_received, step_sent) = (received.clone(), sent.clone());
        let all: Vec<Vec<Phase>> = (0..world)
            .map(|r| {
                if plan.ranks().contains(&r) { plan.phases(step, r).unwrap().into_vec() } else { Vec::new() }
            })
            .collect();
        let count = all.iter().map(Vec::len).max().unwrap();
        for i in 0..count {
            let mut next = state.clone();
            for (rank, phases) in all.iter().enumerate() {
                let Some(phase) = phases.get(i) else { continue };
                assert_eq!(state[rank].len(), phase.source_len, "rank {rank} step {step} of {plan}");
                let empty = phase.fill.map_or(i64::MIN / 3, identity);
                let mut target = vec![empty; phase.target_len];
                let mut written = vec![0usize; phase.target_len];
                for m in &phase.receives {
                    assert!(
                        phase.members.contains(&m.peer),
                        "{rank} hears from {} outside its group: {plan}",
                        m.peer
                    );
                    for b in &m.blocks {
                        each(b, &mut |s, t| {
                            let x = state[m.peer][s];
                            target[t] = match phase.reduce {
                                Some(r) if written[t] > 0 => i64::combine(r.op, target[t], x),
                                Some(_) | None => x,
                            };
                            written[t] += 1;
                        });
                    }
                    if m.peer != rank {
                        received[rank] += m.numel() as u64;
                        let mirror: Vec<_> = all[m.peer][i].sends.iter().filter(|s| s.peer == rank).collect();
                        assert_eq!(mirror.len(), 1, "{} sends to {rank} in step {step} of {plan}", m.peer);
                        assert_eq!(mirror[0].blocks, m.blocks, "{plan}");
                    }
                }
                for m in &phase.sends {
                    sent[rank] += m.numel() as u64;
                    assert!(
                        all[m.peer][i].receives.iter().any(|r| r.peer == rank),
                        "{rank} to {}: {plan}",
                        m.peer
                    );
                }
                let terms = phase.reduce.map_or(1, |_| phase.receives.len());
                if phase.fill.is_none() {
                    assert!(
                        written.iter().all(|&w| w == terms),
                        "rank {rank} step {step} {written:?}: {plan}"
                    );
                }
                if let Some(r) = phase.reduce {
                    for x in &mut target {
                        *x = x.divide(r.divisor);
                    }
                }
                next[rank] = target;
            }
            state = next;
        }
        let s = &plan.steps()[step];
        let worst =
            |now: &[u64], before: &[u64]| now.iter().zip(before).map(|(a, b)| a - b).max().unwrap() * 8;
        assert_eq!(worst(&received, &step_received), s.received_bytes, "received in {step}: {plan}");
        assert_eq!(worst(&sent, &step_sent), s.sent_bytes, "sent in {step}: {plan}");
    }
    (plan.to().mesh().ranks().map(|r| state[r].clone()).collect(), received.into_iter().max().unwrap() * 8)
}

/// Random terms whose meaning is the whole, different on every rank: a multiple of 720720, so that averages are whole.
fn shards_of(s: &Sharding, seed: u64) -> Vec<Vec<i64>> {
    let mut x = seed | 1;
    let mut terms: std::collections::HashMap<(Vec<usize>, usize), i64> = std::collections::HashMap::new();
    s.mesh()
        .ranks()
        .map(|rank| {
            let c = s.mesh().coordinate(rank).unwrap();
            let term: Vec<usize> = s
                .partial()
                .iter()
                .map(|p| p.sub.digit(c[p.sub.axis], s.mesh().axes()[p.sub.axis].size()))
                .collect();
            let held = reshard_sharding::meaning::held(s, rank).unwrap();
            held.into_iter()
                .map(|e| {
                    *terms.entry((term.clone(), e)).or_insert_with(|| {
                        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let small = ((x >> 33) % 7) as i64 - 3;
                        if s.reduction().is_some_and(|(op, _)| op == ReduceOp::Prod) {
                            small
                        } else {
                            (small * 1000 + e as i64) * 720_720
                        }
                    })
                })
                .collect()
        })
        .collect()
}

fn check(from: &Sharding, to: &Sharding, objective: Objective) -> Plan {
    let plan = Planner::new()
        .objective(objective)
        .plan(from, to, 8)
        .unwrap_or_else(|e| panic!("{from} -> {to}: {e}"));
    let shards = shards_of(from, 12345);
    let want = meaning(from, &shards).unwrap();
    let world = from.mesh().world().max(to.mesh().world());
    let (got, received) = run(&plan, world, &shards);
    let got = meaning(to, &got).unwrap_or_else(|e| panic!("{e}: {plan}"));
    assert_eq!(got, want, "{plan}");
    assert_eq!(received, plan.received_bytes(), "{plan}");
    if let Some(bound) = plan.lower_bound_bytes() {
        assert!(received >= bound, "below the bound: {plan}");
        if !from.is_partial() {
            let truth = bound_by_regions(from, to) * 8;
            assert_eq!(truth, bound, "{plan}");
            assert_eq!(received, truth, "{plan}");
        }
    }
    plan
}

/// The most elements that a rank wants and does not hold, from the regions alone.
fn bound_by_regions(from: &Sharding, to: &Sharding) -> u64 {
    let missing = |rank| {
        let have = if from.mesh().contains(rank) {
            reshard_sharding::meaning::held(from, rank).unwrap()
        } else {
            Vec::new()
        };
        let have: std::collections::HashSet<usize> = have.into_iter().collect();
        reshard_sharding::meaning::held(to, rank).unwrap().into_iter().filter(|e| !have.contains(e)).count()
            as u64
    };
    to.mesh().ranks().map(missing).max().unwrap()
}

fn all_placements(choices: &[&str], axes: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    for _ in 0..axes {
        all = all
            .iter()
            .flat_map(|p| {
                choices.iter().map(move |c| if p.is_empty() { (*c).to_owned() } else { format!("{p},{c}") })
            })
            .collect();
    }
    all
}

fn all_pairs(mesh: &str, shapes: &[&[usize]], choices: &[&str]) -> usize {
    let mesh: Mesh = mesh.parse().unwrap();
    let mut n = 0;
    for &shape in shapes {
        let shardings: Vec<Sharding> = all_placements(choices, mesh.axes().len())
            .iter()
            .filter_map(|p| Sharding::parse(&mesh, shape, p).ok())
            .collect();
        for from in &shardings {
            for to in &shardings {
                for objective in [Objective::Time, Objective::Bytes] {
                    check(from, to, objective);
                    n += 1;
                }
            }
        }
    }
    n
}

const CHOICES: [&str; 6] = ["R", "S(0)", "S(1)", "SS(0,2)", "SS(1,3)", "P"];

#[test]
fn all_pairs_on_one_axis() {
    for mesh in ["x=1", "x=2", "x=3", "x=4"] {
        all_pairs(mesh, &[&[12, 6], &[5, 7], &[8, 12], &[], &[0, 5], &[1], &[6]], &CHOICES);
    }
}

#[test]
fn all_pairs_on_two_axes() {
    for mesh in ["x=2,y=2", "x=2,y=3", "x=4,y=2"] {
        all_pairs(mesh, &[&[24, 12], &[5, 7], &[12, 8], &[], &[0, 5], &[1]], &CHOICES);
    }
}

#[test]
fn all_ops_on_two_axes() {
    for op in ["sum", "avg", "prod", "min", "max"] {
        let p = format!("P({op})");
        for mesh in ["x=2,y=2", "x=3,y=2"] {
            let mesh: Mesh = mesh.parse().unwrap();
            for shape in [&[12, 6][..], &[5, 3]] {
                for a in all_placements(&["R", "S(0)", &p, "P(max)"], 2) {
                    for b in all_placements(&["R", "S(0)", &p, "P(sum)"], 2) {
                        let (Ok(from), Ok(to)) =
                            (Sharding::parse(&mesh, shape, &a), Sharding::parse(&mesh, shape, &b))
                        else {
                            continue;
                        };
                        if Planner::new().plan(&from, &to, 8).is_err() {
                            assert!(b.contains("avg"), "{from} -> {to}");
                            continue;
                        }
                        check(&from, &to, Objective::Time);
                    }
                }
            }
        }
    }
}

#[test]
fn a_sample_on_three_axes() {
    let mesh: Mesh = "x=2,y=2,z=2".parse().unwrap();
    let all = all_placements(&CHOICES, 3);
    let mut seed = 7u64;
    for shape in [&[24, 24][..], &[7, 5], &[8, 3]] {
        for _ in 0..1500 {
            let mut pick = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                &all[(seed >> 33) as usize % all.len()]
            };
            let (a, b) = (pick(), pick());
            let from = Sharding::parse(&mesh, shape, a).unwrap();
            let to = Sharding::parse(&mesh, shape, b).unwrap();
            check(&from, &to, Objective::Time);
        }
    }
}

#[test]
fn two_meshes_and_other_world_sizes() {
    let meshes = ["x=2,y=2", "x=4", "x=6", "x=2,y=2@4", "x=3@1", "a=2:1,b=2:2", "x=1@9", "y=4:2"];
    for a in meshes {
        for b in meshes {
            let (a, b): (Mesh, Mesh) = (a.parse().unwrap(), b.parse().unwrap());
            for shape in [&[12, 6][..], &[5, 7], &[]] {
                for p in all_placements(&["R", "S(0)", "SS(1,3)", "P"], a.axes().len()) {
                    for q in all_placements(&["R", "S(1)", "P"], b.axes().len()) {
                        let (Ok(from), Ok(to)) =
                            (Sharding::parse(&a, shape, &p), Sharding::parse(&b, shape, &q))
                        else {
                            continue;
                        };
                        check(&from, &to, Objective::Time);
                    }
                }
            }
        }
    }
}

#[test]
fn plans_and_shardings_can_be_stored() {
    let mesh: Mesh = "x=2,y=4@8".parse().unwrap();
    let from = Sharding::parse(&mesh, &[16, 6], "SS(0,4),S(0)").unwrap();
    let to = Sharding::parse(&mesh, &[16, 6], "P(max),S(1)").unwrap();
    let plan = Planner::new().plan(&from, &to, 2).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    let back: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(back.to_string(), plan.to_string());
    assert_eq!(serde_json::from_str::<Sharding>(&serde_json::to_string(&from).unwrap()).unwrap(), from);
    is_send_and_sync(&plan);
}

fn is_send_and_sync<T: Send + Sync + 'static>(_: &T) {}
