//! One exchange between the cotangent shardings: partial values are added where they arrive, and missing data
//! is split equally among all ranks of a reader.

use reshard_kernels::DType;
use reshard_planner::{CandidateSource, Objective, Plan, Planner, Step, Topology};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::interpreter::run;
use reshard_test_support::{Sweep, shardings, shards_of};

use crate::mirror::adds;

const CHOICES: [&str; 5] = ["R", "S(0)", "S(1)", "SS(0,2)", "P"];

/// Returns the most bytes that one rank receives and sends, step by step.
fn moved(plan: &Plan) -> Vec<[u64; 2]> {
    let item = (plan.dtype().bits() / 8) as u64;
    let mut most = vec![[0; 2]; plan.steps().len()];
    for rank in plan.ranks() {
        let mut of_rank = vec![[0; 2]; plan.steps().len()];
        for (step, phase) in plan.phases(rank).unwrap() {
            let received = phase.receives.iter().filter(|m| m.peer != rank);
            of_rank[step][0] += received.map(|m| m.numel() as u64).sum::<u64>() * item;
            of_rank[step][1] += phase.sends.iter().map(|m| m.numel() as u64).sum::<u64>() * item;
        }
        for (most, of_rank) in most.iter_mut().zip(of_rank) {
            *most = [0, 1].map(|i| most[i].max(of_rank[i]));
        }
    }
    most
}

/// Executes a plan on different data of each rank, and checks the global tensor and the stated bytes.
fn check(plan: &Plan, seed: u64) {
    let shards = shards_of(plan.from(), seed);
    let means = plan.from().assemble(&shards).unwrap();
    let (got, received) = run(plan, plan.from().mesh().world_size(), &shards);
    assert_eq!(plan.to().assemble(&got).unwrap(), means, "{plan}");
    assert_eq!(received, plan.received_bytes(), "{plan}");
    let said: Vec<[u64; 2]> = plan.steps().iter().map(|s| [s.received_bytes, s.sent_bytes]).collect();
    assert_eq!(moved(plan), said, "{plan}");
    // A sum with zeros changes the sign of a zero and the bits of a NaN.
    let reduces = plan.from().partial().iter().any(|p| !plan.to().partial().contains(p));
    assert!(reduces || !adds(plan), "{plan}");
}

#[test]
fn shared_out_plans_mean_the_same_and_move_what_they_say_both_ways() {
    let networks = ["launch=1;message=0.001;level=*:0:1", "launch=1;message=0.001;level=2:0:1;level=*:1:0.5"]
        .map(|text| text.parse::<Topology>().unwrap());
    let cases: [(&str, &[usize]); 6] = [
        ("x=2,y=2", &[64, 32]),
        ("x=2,y=3", &[48, 36]),
        ("x=2,y=3", &[35, 7]),
        ("x=4,y=2", &[40, 9]),
        ("x=2,y=2,z=2", &[64, 48]),
        ("x=2,y=2,z=2", &[31, 17]),
    ];
    let sweep = Sweep::asked();
    let (mut asked, mut spread) = (0u64, 0u64);
    for (mesh, shape) in cases {
        let mesh: Mesh = mesh.parse().unwrap();
        let all = shardings(&mesh, shape, &CHOICES);
        for from in &all {
            for to in all.iter().filter(|to| to.is_partial()) {
                for objective in [Objective::Time, Objective::Bytes] {
                    for network in &networks {
                        asked += 1;
                        // All pairs on two axes but in a sample.
                        let one_in = if mesh.axes().len() > 2 { Some(48) } else { None };
                        let one_in = one_in.or((!sweep.is_exhaustive()).then_some(6));
                        if one_in.is_some_and(|n| !sweep.picks(n, asked as usize)) {
                            continue;
                        }
                        let planner = Planner::new().topology(network.clone()).objective(objective);
                        let plan = planner.plan(from, to, DType::F64).unwrap();
                        if !plan.steps().iter().any(Step::is_transposed) {
                            continue;
                        }
                        let seen = planner.explain(from, to, DType::F64).unwrap();
                        if seen
                            .chosen
                            .is_none_or(|i| seen.candidates[i].origin != CandidateSource::OneExchange)
                        {
                            continue;
                        }
                        spread += 1;
                        check(&plan, asked);
                        // From the replicas of the transposed plan, and back.
                        let back = plan.transposed().unwrap();
                        check(&back, asked);
                        let again = back.transposed().unwrap();
                        assert_eq!(again.cost_us().to_bits(), plan.cost_us().to_bits(), "{plan}");
                        assert_eq!(moved(&again), moved(&plan), "{plan}");
                    }
                }
            }
        }
    }
    println!("{asked} plans into partial values, {spread} of the examined ones split among replicas");
    let least = if sweep.is_exhaustive() { 100 } else { 10 };
    assert!(spread > least, "{spread} of {asked}");
}

#[test]
fn all_ranks_of_a_reader_are_told_alike() {
    for (mesh, from, to) in [
        // With digits, one rank would receive all from one other; now each rank receives half.
        ("x=2,y=2", "P,S(0)", "S(0),P"),
        ("x=2,y=2", "S(0),S(1)", "P,S(0)"),
        ("x=2,y=8", "P,S(1)", "S(1),P"),
        ("x=2,y=8", "S(1),S(0)", "S(0),P"),
        ("x=3,y=8", "S(1),S(0)", "S(0),P"),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let of = |text: &str| Sharding::parse(&mesh, &[768, 768], text).unwrap();
        // A kilobyte takes a microsecond, so the bound counts the bytes that a rank receives.
        let network = "launch=0;message=0;level=*:0:1".parse().unwrap();
        let planner = Planner::new().topology(network).objective(Objective::Bytes);
        let plan = planner.plan(&of(from), &of(to), DType::F32).unwrap();
        assert!(plan.received_bytes() as f64 <= plan.lower_bound_us() * 1e3 * (1.0 + 1e-9), "{plan}");
        assert_eq!(plan.communicating_steps(), 1, "{plan}");
    }
}

/// Transposed, it would have to list too many blocks of a shard; digits need no list.
#[test]
fn too_many_pieces_to_share_out_are_no_refusal() {
    let mesh: Mesh = "x=2,y=8".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[1 << 31, 64], text).unwrap();
    let (from, to) = (of("S(1),SS(0,33554432)"), of("P,S(1)"));
    let plan = Planner::new().plan(&from, &to, DType::F32).unwrap();
    assert!(plan.communicating_steps() > 0, "{plan}");
}
