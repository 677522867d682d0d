//! Terms that go straight to whoever wants them, in one step: cheaper than any other plan where it is taken, and true.

use reshard_kernels::DType;
use reshard_planner::{Objective, Origin, Planner, Topology};
use reshard_sharding::meaning::meaning;
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::interpreter::run;
use reshard_test_support::{shardings, shards_of};

/// Where it is chosen it costs the least of all that was considered, and every rank gets what it is to have: into terms and out
/// of them, of values and of terms, even and uneven.
#[test]
fn it_means_the_same_and_costs_what_happens() {
    let (mut chosen, mut shared) = (0, 0);
    for (mesh, shape, choices) in [
        ("x=2,y=3", &[5, 7][..], &["R", "S(0)", "S(1)", "P"][..]),
        ("x=2,y=4", &[64, 64], &["R", "S(0)", "S(1)", "P"]),
        ("x=2,y=2,z=2", &[32, 16], &["R", "S(0)", "P"]),
        ("x=4,y=2@3", &[12], &["R", "S(0)", "P(max)", "SS(0,2)"]),
        ("x=3,y=2", &[1, 7], &["R", "S(1)", "P(avg)"]),
        ("x=2,y=2", &[], &["R", "P"]),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let all = shardings(&mesh, shape, choices);
        for topology in ["uniform", "launch=1;message=0;level=2:0.1:0.5;level=*:0.2:0.001"] {
            let topology: Topology = topology.parse().unwrap();
            for objective in [Objective::Time, Objective::Bytes] {
                let planner = Planner::new().topology(topology.clone()).objective(objective);
                for (from, to) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
                    let Ok(plan) = planner.plan(from, to, DType::F64) else { continue };
                    let explained = planner.explain(from, to, DType::F64).unwrap();
                    let straight = explained.considered.iter().find(|c| c.origin == Origin::Straight);
                    let Some(way) = straight.and_then(|c| c.way()) else { continue };
                    chosen += 1;
                    let into_terms = to.partial().iter().any(|p| !from.partial().contains(p));
                    shared += usize::from(into_terms);
                    for other in explained.considered.iter().filter_map(|c| c.way()).filter(|w| w.admitted) {
                        match objective {
                            Objective::Time => assert!(way.cost_us <= other.cost_us * (1.0 + 1e-9), "{plan}"),
                            Objective::Bytes => assert!(way.received_bytes <= other.received_bytes, "{plan}"),
                            Objective::Peak => {}
                        }
                    }
                    let shards = shards_of(from, 11);
                    let (got, received) = run(&plan, mesh.world(), &shards);
                    assert_eq!(meaning(to, &got), meaning(from, &shards), "{plan}");
                    assert_eq!(received, plan.received_bytes(), "{plan}");
                }
            }
        }
    }
    println!("{chosen} plans, {shared} of them into terms");
    assert!(chosen > 200 && shared > 100, "{chosen} {shared}");
}

/// Readers share what they receive: eight ranks whose terms add up get an eighth each of what comes from elsewhere.
#[test]
fn ranks_whose_terms_add_up_share_what_they_receive() {
    let mesh: Mesh = "x=2,y=8".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[4096, 4096], text).unwrap();
    let whole = 4096 * 4096 * 4;
    for (from, to, received) in [
        // Half of all elements have a term that leaves, and sixteen ranks share that.
        ("P,S(0)", "S(0),P", whole / 16),
        ("S(1),S(0)", "S(0),P", whole / 2 / 16),
    ] {
        let plan = Planner::new().plan(&of(from), &of(to), DType::F32).unwrap();
        assert_eq!((plan.communicating_steps(), plan.received_bytes()), (1, received), "{plan}");
    }
}
