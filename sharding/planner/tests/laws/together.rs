//! Fused steps cost as much as the model charges for the bytes of all.

use reshard_kernels::DType;
use reshard_planner::{Plan, Planner, Topology};
use reshard_sharding::Sharding;
use reshard_test_support::{Random, Sweep, random_mesh, random_shape, random_sharding};

fn profiles() -> [Topology; 3] {
    ["uniform", "h100-lines", "launch=5;message=0.3;level=2:1.5:300;level=*:9:25"]
        .map(|text| text.parse().unwrap())
}

/// Returns the cost for the most expensive rank.
fn worst(steps: &[(&Plan, usize)]) -> f64 {
    let ranks = steps[0].0.ranks();
    ranks.iter().map(|&rank| Plan::fused_cost_us(steps, rank).unwrap()).fold(0.0, f64::max)
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.max(b)
}

/// Returns plans of random pairs, some of them transposed, with two and with eight bytes per element.
fn plans(r: &mut Random) -> Vec<[Plan; 2]> {
    let (mesh, shape) = (random_mesh(r), random_shape(r));
    let (from, to) = (random_sharding(r, &mesh, &shape), random_sharding(r, &mesh, &shape));
    let mut all = Vec::new();
    for topology in profiles() {
        let planner = Planner::new().topology(topology);
        let [small, large] = [DType::F16, DType::F64].map(|dtype| planner.plan(&from, &to, dtype).unwrap());
        if let (Ok(small), Ok(large)) = (small.transposed(), large.transposed()) {
            all.push([small, large]);
        }
        all.push([small, large]);
    }
    all
}

#[test]
fn one_step_is_itself_and_many_equal_ones_are_one_of_all_their_bytes() {
    let mut r = Random(Sweep::asked().seed() + 77);
    let (mut steps, mut alike) = (0, 0);
    for _ in 0..Sweep::asked().count(300, 10_000) {
        for [small, large] in plans(&mut r) {
            let same = small.steps().len() == large.steps().len()
                && small.steps().iter().zip(large.steps()).all(|(a, b)| {
                    (a.op(), &a.before, &a.after, a.is_transposed())
                        == (b.op(), &b.before, &b.after, b.is_transposed())
                });
            for (n, step) in small.steps().iter().enumerate() {
                let alone = worst(&[(&small, n)]);
                assert!(is_close(alone, step.cost_us), "step {n}: {alone} us of\n{small}");
                steps += 1;
                if same {
                    let four = worst(&[(&small, n); 4]);
                    let wanted = large.steps()[n].cost_us;
                    assert!(is_close(four, wanted), "step {n}: {four} and not {wanted} us of\n{large}");
                    alike += usize::from(step.op().communicates());
                }
            }
        }
    }
    println!("{steps} steps, {alike} of them that communicate four times");
    assert!(alike > 500);
}

#[test]
fn together_takes_no_more_than_one_after_another_and_no_less_than_the_dearest() {
    let mut r = Random(Sweep::asked().seed() + 78);
    let mut saved = 0;
    for _ in 0..Sweep::asked().count(300, 10_000) {
        let mesh = random_mesh(&mut r);
        let words = |r: &mut Random| {
            let word = |r: &mut Random| ["R", "P", "S(0)", "S(1)"][r.below(4)];
            mesh.axes().iter().map(|_| word(r)).collect::<Vec<_>>().join(",")
        };
        let (from, to) = (words(&mut r), words(&mut r));
        for topology in profiles() {
            let plan = |numel: [usize; 2]| {
                let of = |text: &str| Sharding::parse(&mesh, &numel, text).unwrap();
                Planner::new().topology(topology.clone()).plan(&of(&from), &of(&to), DType::F32).unwrap()
            };
            let two = [plan([96, 4800]), plan([960, 480])];
            let steps = |plan: &Plan| -> Vec<_> {
                plan.steps().iter().map(|step| (step.op(), step.group.clone())).collect()
            };
            if steps(&two[0]) != steps(&two[1]) {
                continue;
            }
            for n in 0..two[0].steps().len() {
                let costs = [0, 1].map(|i: usize| two[i].steps()[n].cost_us);
                let together = worst(&[(&two[0], n), (&two[1], n)]);
                assert!(
                    together <= (costs[0] + costs[1]) * (1.0 + 1e-9)
                        && together >= costs[0].max(costs[1]) * (1.0 - 1e-9),
                    "{together} us of {costs:?}:\n{}\n{}",
                    two[0],
                    two[1]
                );
                saved += usize::from(together < costs[0] + costs[1] - 0.1);
            }
        }
    }
    assert!(saved > 100, "{saved}");
}

#[test]
fn a_step_that_is_not_there_is_refused() {
    let mesh = "x=2".parse().unwrap();
    let of = |text: &str| Sharding::parse(&mesh, &[8], text).unwrap();
    let plan = Planner::new().plan(&of("S(0)"), &of("R"), DType::F32).unwrap();
    let error = Plan::fused_cost_us(&[(&plan, 1)], 0).unwrap_err().to_string();
    assert!(error.contains("there is no step 1 in a plan of 1"), "{error}");
}
