//! Transposed plans: a plan is never more expensive than the transposed plan between the cotangent shardings.

use reshard_kernels::DType;
use reshard_planner::{CandidateSource, Objective, Plan, Planner, Step, Topology};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::{Random, Sweep, random_mesh, random_shape, random_sharding};

fn profiles() -> [Topology; 3] {
    ["uniform", "h100-lines", "launch=5;message=0.3;level=2:1.5:300;level=*:9:25"]
        .map(|text| text.parse().unwrap())
}

/// Returns the cost under an objective; time in picoseconds, as plans are compared.
fn cost(plan: &Plan, objective: Objective) -> u64 {
    match objective {
        Objective::Time => plan.steps().iter().map(|s| (s.cost_us * 1e6).round() as u64).sum(),
        Objective::Bytes => plan.received_bytes(),
        Objective::Peak => plan.peak_bytes(),
    }
}

/// Returns `true` if a plan adds partial values of one element.
pub(crate) fn adds(plan: &Plan) -> bool {
    let phases = |rank| plan.phases(rank).unwrap();
    plan.ranks().into_iter().any(|rank| phases(rank).iter().any(|(_, phase)| phase.reduce.is_some()))
}

/// Returns pairs of placements drawn from a few kinds, so that digits often nest.
fn even(r: &mut Random, mesh: &Mesh) -> (Sharding, Sharding) {
    let shape: Vec<usize> = (0..=r.below(2)).map(|_| *r.pick(&[8, 12, 24, 4096])).collect();
    let mut one = || {
        let mut word =
            || ["R".to_owned(), "P".to_owned(), format!("S({})", r.below(shape.len()))][r.below(3)].clone();
        let words: Vec<String> = mesh.axes().iter().map(|_| word()).collect();
        Sharding::parse(mesh, &shape, &words.join(",")).unwrap()
    };
    (one(), one())
}

#[test]
fn a_plan_costs_at_most_its_mirror() {
    let mut r = Random(Sweep::asked().seed() + 31);
    let count = Sweep::asked().count(200, 40_000);
    let (mut compared, mut turned, mut exempt) = (0, 0, 0);
    for case in 0..count {
        let mesh = random_mesh(&mut r);
        let (from, to) = if case % 3 == 0 {
            even(&mut r, &mesh)
        } else {
            let shape = random_shape(&mut r);
            (random_sharding(&mut r, &mesh, &shape), random_sharding(&mut r, &mesh, &shape))
        };
        let duals = [to.cotangent().unwrap(), from.cotangent().unwrap()];
        for topology in profiles() {
            for objective in Objective::ALL {
                let planner = Planner::new().topology(topology.clone()).objective(objective);
                let plan = planner.plan(&from, &to, DType::F32).unwrap();
                let dual = planner.plan(&duals[0], &duals[1], DType::F32).unwrap();
                let Ok(mirror) = dual.transposed() else { continue };
                compared += 1;
                turned += u64::from(plan.steps().iter().any(Step::is_transposed));
                if cost(&plan, objective) <= cost(&mirror, objective) {
                    continue;
                }
                // No communication is added to save memory. Without partial values no extra byte is received
                // to save a message. Nothing is added where no reduction is due.
                let nests = || {
                    let seen = planner.explain(&from, &to, DType::F32).unwrap().candidates;
                    seen.iter().any(|c| matches!(c.origin, CandidateSource::ClosedForm { .. }))
                };
                let quiet = objective == Objective::Peak && plan.communicating_steps() == 0;
                let one_level = topology.levels().len() == 1;
                let thrifty = one_level && plan.received_bytes() < mirror.received_bytes();
                let bare = objective == Objective::Time && !from.is_partial() && !to.is_partial();
                let kept = from.partial().iter().all(|p| to.partial().contains(p)) && adds(&mirror);
                // Where digits nest, transposing saves one step, and is not tried for plans of more than four
                // steps' time.
                let step_us = topology.launch_us() + topology.levels()[0].latency_us;
                let long = objective == Objective::Time && plan.cost_us() > 4.0 * step_us;
                // A two-stage plan is compared by its received bytes before it is transposed.
                let detoured = || {
                    let seen = planner.explain(&duals[0], &duals[1], DType::F32).unwrap().candidates;
                    objective == Objective::Bytes && seen.iter().any(|c| c.origin == CandidateSource::Detour)
                };
                // On several levels, parts from several replicas may take less time; they are only split into
                // partial values.
                let shared_out = || {
                    let seen = planner.explain(&duals[0], &duals[1], DType::F32).unwrap();
                    !one_level
                        && seen
                            .chosen
                            .is_some_and(|i| seen.candidates[i].origin == CandidateSource::OneExchange)
                };
                // Owners may share a region in one direction only, which differs in the last digits.
                let close = bare && cost(&plan, objective) <= cost(&mirror, objective) / 1000 * 1001;
                let exhausted = plan.is_budget_exhausted() || dual.is_budget_exhausted();
                assert!(
                    exhausted
                        || close
                        || quiet
                        || kept
                        || bare && thrifty
                        || (bare || long) && nests()
                        || detoured()
                        || shared_out(),
                    "{objective} of {:?} on {topology}:\n{plan}\n{mirror}",
                    from.shape()
                );
                exempt += 1;
            }
        }
    }
    println!(
        "{compared} plans compared with those of the transposed problem, {turned} of them transposed, {exempt} \
         skipped"
    );
    assert!(compared > count * 8 && turned > count / 4 && exempt < compared / 20);
}

#[test]
fn a_gather_brings_no_more_than_a_term_needs() {
    let mesh: Mesh = "x=4,y=2".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[9, 6], text).unwrap();
    for objective in [Objective::Time, Objective::Bytes] {
        let planner = Planner::new().objective(objective);
        let plan = planner.plan(&of("R,S(1)"), &of("P,R"), DType::F32).unwrap();
        assert_eq!(plan.received_bytes(), 36, "{plan}");
    }
}

#[test]
fn an_uneven_gather_costs_what_the_uneven_scatter_costs() {
    let mut uneven = 0;
    // Inside one domain: a rank that is alone in another receives more in a gather than in a scatter.
    for topology in [Topology::uniform(), Topology::h100_lines()] {
        let planner = Planner::new().topology(topology);
        for ranks in 2..=8 {
            let mesh: Mesh = format!("x={ranks}").parse().unwrap();
            for len in [1, 2, 3, 5, 7, 10, 13, 64, 1000, 12_345] {
                let of = |text: &str| Sharding::parse(&mesh, &[len, 3], text).unwrap();
                let plan = |a: &str, b: &str| planner.plan(&of(a), &of(b), DType::F32).unwrap();
                let (gather, scatter) = (plan("S(0)", "R"), plan("P", "S(0)"));
                // A rank without elements sends nothing, but holds partial values of all.
                if gather.received_bytes() == scatter.received_bytes() {
                    assert_eq!(
                        gather.cost_us().to_bits(),
                        scatter.cost_us().to_bits(),
                        "{gather}\n{scatter}"
                    );
                    uneven += usize::from(len % ranks != 0);
                }
            }
        }
    }
    println!("{uneven} uneven ones of the same bytes");
    assert!(uneven > 50);
}

#[test]
fn twice_turned_round_is_the_plan() {
    let mut r = Random(Sweep::asked().seed() + 32);
    for _ in 0..Sweep::asked().count(150, 5_000) {
        let (mesh, shape) = (random_mesh(&mut r), random_shape(&mut r));
        let (from, to) = (random_sharding(&mut r, &mesh, &shape), random_sharding(&mut r, &mesh, &shape));
        let plan = Planner::new().plan(&from, &to, DType::F32).unwrap();
        let Ok(back) = plan.transposed() else { continue };
        let again = back.transposed().unwrap();
        assert_eq!((again.from(), again.to()), (plan.from(), plan.to()));
        for rank in plan.ranks() {
            assert_eq!(again.phases(rank).unwrap(), plan.phases(rank).unwrap(), "{plan}\n{back}");
        }
        assert_eq!((again.cost_us(), again.received_bytes()), (plan.cost_us(), plan.received_bytes()));
    }
}

#[test]
fn what_has_no_dual_is_not_turned_round() {
    let mesh: Mesh = "x=4".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[8], text).unwrap();
    let plan = |planner: Planner, a: &str, b: &str| planner.plan(&of(a), &of(b), DType::F32).unwrap();
    let max = plan(Planner::new(), "P(max)", "R").transposed().unwrap_err();
    assert_eq!(max.code(), "no_gradient");
    let ordered = plan(Planner::new().deterministic(true), "S(0)", "R").transposed().unwrap_err();
    assert_eq!(ordered.code(), "unsupported");
}
