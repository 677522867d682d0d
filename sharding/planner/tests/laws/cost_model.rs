//! Cost models: the check finds violated properties, and equal models of any author give equal plans.

use reshard_kernels::DType;
use std::sync::Arc;

use reshard_planner::{
    CostModel, Level, MinTraffic, Objective, PlanCache, Planner, Step, StepOp, StepTraffic, Topology,
    check_cost_model,
};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Sweep;

/// A topology in a user's implementation of the trait, with one fault.
#[derive(Debug)]
struct Strange {
    topology: Topology,
    levels: Vec<Level>,
    text: &'static str,
    cost_us: fn(&Topology, &StepTraffic<'_>) -> f64,
    least_us: fn(&Topology, &[MinTraffic]) -> f64,
}

impl Strange {
    fn of(topology: &Topology, text: &'static str) -> Strange {
        Strange {
            topology: topology.clone(),
            levels: topology.levels().to_vec(),
            text,
            cost_us: CostModel::cost_us,
            least_us: CostModel::lower_bound_us,
        }
    }
}

impl CostModel for Strange {
    fn levels(&self) -> &[Level] {
        &self.levels
    }
    fn cost_us(&self, load: &StepTraffic<'_>) -> f64 {
        (self.cost_us)(&self.topology, load)
    }
    fn lower_bound_us(&self, need: &[MinTraffic]) -> f64 {
        (self.least_us)(&self.topology, need)
    }
    fn cache_key(&self) -> String {
        self.text.to_owned()
    }
}

fn networks() -> [Topology; 3] {
    let three = "launch=3;message=0.5;level=2:1:300;level=4:3:100;level=*:9:20";
    [Topology::uniform(), Topology::h100(), three.parse().unwrap()]
}

#[test]
fn topologies_keep_the_laws() {
    let sweep = Sweep::asked();
    let mut checked = 0;
    for (n, topology) in networks().into_iter().enumerate() {
        for (m, mesh) in ["x=8", "dp=2,tp=8", "a=2,b=3,c=2", "x=4,y=4@3"].into_iter().enumerate() {
            // A sample has every network and every mesh, not every network on every mesh.
            let sampled = sweep.is_exhaustive() || (n + m) % 2 == 0;
            if sampled && sweep.takes((4 * n + m) as u64) {
                let mesh: Mesh = mesh.parse().unwrap();
                check_cost_model(Arc::new(topology.clone()), &mesh).unwrap();
                checked += 1;
            }
        }
    }
    assert!(checked >= sweep.least(6, 12).max(1), "{checked}");
}

#[test]
fn a_model_that_breaks_a_law_is_found_with_its_numbers() {
    let mesh: Mesh = "dp=2,tp=8".parse().unwrap();
    let good = || Strange::of(&Topology::h100(), "mine");
    let level = |ranks: Option<usize>| Level { ranks, latency_us: 1.0, gbytes_per_s: 1.0 };
    let broken: Vec<(&str, Strange)> = vec![
        ("a cost must be finite and at least 0", Strange { cost_us: |_, _| f64::NAN, ..good() }),
        ("a cost must be finite and at least 0", Strange { cost_us: |t, l| t.cost_us(l) - 1e3, ..good() }),
        ("and less", Strange { cost_us: |t, l| t.cost_us(l) - l.peers() as f64 * 0.3, ..good() }),
        ("and less", Strange { cost_us: |_, l| 1e9 / (1.0 + l.bytes() as f64), ..good() }),
        (
            "and less",
            Strange { cost_us: |t, l| t.cost_us(l) + 1e6 / (1.0 + l.peak_bytes() as f64), ..good() },
        ),
        ("the least time is 0", Strange { least_us: |t, n| t.lower_bound_us(n) + 1.0, ..good() }),
        (
            "at least, and",
            Strange {
                least_us: |_, n| {
                    if n.first().is_some_and(|n| n.bytes > 1e4) {
                        1.0
                    } else {
                        n.first().map_or(0.0, |n| n.bytes)
                    }
                },
                ..good()
            },
        ),
        ("lower_bound_us of", Strange { least_us: |t, n| 3.0 * t.lower_bound_us(n), ..good() }),
        ("lower_bound_us of", Strange { cost_us: |t, l| 0.3 * t.cost_us(l), ..good() }),
        ("one line", Strange { text: "two\nlines", ..good() }),
        ("at least one level", Strange { levels: Vec::new(), ..good() }),
        ("is one domain of all ranks", Strange { levels: vec![level(Some(8))], ..good() }),
        (
            "do not consist of domains",
            Strange { levels: vec![level(Some(8)), level(Some(12)), level(None)], ..good() },
        ),
    ];
    check_cost_model(Arc::new(good()), &mesh).unwrap();
    for (says, model) in broken {
        let text = format!("{model:?}");
        let error = check_cost_model(Arc::new(model), &mesh).expect_err(&text).to_string();
        assert!(error.contains(says), "{says:?} is not in {error:?}");
    }
}

/// Returns all placements of `R`, `S(0)`, `S(1)`, `P` on a mesh.
fn shardings(mesh: &Mesh, shape: &[usize]) -> Vec<Sharding> {
    let mut texts = vec![String::new()];
    for _ in mesh.axes() {
        let with = |t: &String, p| if t.is_empty() { String::from(p) } else { format!("{t},{p}") };
        texts = texts.iter().flat_map(|t| ["R", "S(0)", "S(1)", "P"].map(|p| with(t, p))).collect();
    }
    texts.iter().map(|t| Sharding::parse(mesh, shape, t).unwrap()).collect()
}

#[test]
fn a_model_plans_the_same_whoever_brings_it() {
    let sweep = Sweep::asked();
    let one_in = if sweep.is_exhaustive() { 7 } else { 97 };
    let mut plans = 0;
    for topology in networks() {
        let theirs = Arc::new(Strange::of(&topology, "theirs"));
        for (mesh, shape) in [("x=4,y=4", [64, 32]), ("x=2,y=2,z=2", [16, 24]), ("x=3,y=2", [7, 5])] {
            let mesh: Mesh = mesh.parse().unwrap();
            let all = shardings(&mesh, &shape);
            for (i, from) in all.iter().enumerate() {
                for (j, to) in all.iter().enumerate().skip(i % one_in).step_by(one_in) {
                    if !sweep.takes((i * all.len() + j) as u64) {
                        continue;
                    }
                    for objective in Objective::ALL {
                        let ours = Planner::new().topology(topology.clone()).objective(objective);
                        let theirs = ours.clone().cost_model(theirs.clone()).unwrap();
                        let (a, b) = (
                            ours.plan(from, to, DType::F32).unwrap(),
                            theirs.plan(from, to, DType::F32).unwrap(),
                        );
                        assert_eq!(a.to_string(), b.to_string());
                        assert_eq!(a.lower_bound_us().to_bits(), b.lower_bound_us().to_bits());
                        let us = |planner: &Planner| planner.cost_us(from, to, DType::F32).unwrap().to_bits();
                        assert_eq!(us(&ours), us(&theirs));
                        plans += 1;
                    }
                }
            }
        }
    }
    assert!(plans > sweep.least(180, 2_500), "{plans}");
}

#[test]
fn a_load_says_what_its_step_moves() {
    /// Checks the load against the printed step.
    fn cost(_: &Topology, load: &StepTraffic<'_>) -> f64 {
        let peers = load.peers();
        assert!(peers < load.group_size() && (peers > 0 || load.bytes() == 0), "{load:?}");
        assert_eq!(load.group().size(), load.group_size());
        assert!(load.op().communicates() && load.op() != StepOp::AllToAll);
        let bytes: f64 = load.traffic().iter().map(|t| t.bytes).sum();
        assert!((bytes - load.bytes() as f64).abs() <= 8.0 * peers as f64, "{load:?}");
        assert!(load.peak_bytes() >= load.bytes() / 2, "{load:?}");
        load.bytes() as f64 + 1.0
    }
    let counting = Strange {
        cost_us: cost,
        least_us: |_, n| n.first().map_or(0.0, |n| n.bytes),
        ..Strange::of(&Topology::h100(), "bytes")
    };
    let planner = Planner::new().cost_model(Arc::new(counting)).unwrap();
    let mesh: Mesh = "x=2,y=8".parse().unwrap();
    for from in shardings(&mesh, &[64, 64]) {
        for to in shardings(&mesh, &[64, 64]) {
            let plan = planner.plan(&from, &to, DType::F32).unwrap();
            // An exchange costs what its worst rank receives or sends, whichever is more.
            let of_step = |s: &Step| match s.op() {
                StepOp::Exchange | StepOp::AllToAll => s.received_bytes.max(s.sent_bytes),
                StepOp::AllGather
                | StepOp::ReduceScatter
                | StepOp::AllReduce
                | StepOp::Slice
                | StepOp::ZeroFill => s.received_bytes,
            };
            let bytes: u64 = plan.steps().iter().map(of_step).sum();
            let cost = (bytes + plan.communicating_steps() as u64) as f64;
            assert_eq!(plan.cost_us().to_bits(), cost.to_bits(), "{plan}");
        }
    }
}

#[test]
fn plans_under_models_without_a_text_form_are_not_read_back() {
    let mesh: Mesh = "x=4".parse().unwrap();
    let (from, to) =
        (Sharding::parse(&mesh, &[8], "S(0)").unwrap(), Sharding::parse(&mesh, &[8], "R").unwrap());
    let mine = Arc::new(Strange::of(&Topology::uniform(), "mine"));
    let planner = Planner::new().cost_model(mine).unwrap();
    let text = serde_json::to_string(&planner.plan(&from, &to, DType::F32).unwrap()).unwrap();
    let error = serde_json::from_str::<reshard_planner::Plan>(&text).unwrap_err().to_string();
    assert!(error.contains("under the cost model mine,"), "{error}");
    // With the included model, a written plan can be read.
    let text = serde_json::to_string(&Planner::new().plan(&from, &to, DType::F32).unwrap()).unwrap();
    let read = |text: &str| serde_json::from_str::<reshard_planner::Plan>(text);
    assert_eq!(read(&text).unwrap().dtype(), DType::F32);
    // The first version stored the element size and not the type, which suffices if nothing is reduced.
    let first =
        |text: &str| text.replace(r#""version":2,"#, "").replace(r#""dtype":"f32""#, r#""item_bytes":4"#);
    assert!(first(&text).contains("item_bytes"));
    assert_eq!(read(&first(&text)).unwrap().to_string(), read(&text).unwrap().to_string());
    let terms = Sharding::parse(&mesh, &[8], "P").unwrap();
    let reduces = serde_json::to_string(&Planner::new().plan(&terms, &to, DType::F32).unwrap()).unwrap();
    let error = read(&first(&reduces)).unwrap_err().to_string();
    assert!(error.contains("elements of 4 bytes without a dtype"), "{error}");
    // A later version is rejected.
    let error = read(&text.replace(r#""version":2,"#, r#""version":3,"#)).unwrap_err().to_string();
    assert!(error.contains("version 3; versions up to 2 are supported"), "{error}");
}

#[test]
fn models_of_equal_texts_share_their_plans() {
    let mesh: Mesh = "x=4".parse().unwrap();
    let (from, to) =
        (Sharding::parse(&mesh, &[8], "S(0)").unwrap(), Sharding::parse(&mesh, &[8], "R").unwrap());
    let cache = PlanCache::new(16);
    let of = |text| Planner::new().cost_model(Arc::new(Strange::of(&Topology::uniform(), text))).unwrap();
    let plan = |planner: &Planner| cache.plan(planner, &from, &to, DType::F32).unwrap();
    assert!(Arc::ptr_eq(&plan(&of("a")), &plan(&of("a"))));
    assert!(!Arc::ptr_eq(&plan(&of("a")), &plan(&of("b"))));
    assert!(!Arc::ptr_eq(&plan(&of("uniform")), &plan(&Planner::new())));
    assert_eq!(of("a"), of("a"));
    assert_ne!(of("uniform"), Planner::new());
}
