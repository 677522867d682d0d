//! Ratios of plans to their bounds: all pairs of R, S(0), S(1) and P over two axes, in even and uneven dims.
//!
//!     cargo run --release -p reshard-planner --example certificate -- [all]
//!
//! For each mesh and network it prints the median and the worst ratio of cost and bound, the number of pairs
//! that transfer data and have no bound, and the pairs with the largest ratios. With `all` it prints every
//! pair.

use std::collections::BTreeMap;
use std::time::Instant;

use reshard_kernels::DType;
use reshard_planner::{Planner, Topology};
use reshard_sharding::{Mesh, Sharding};

struct Pair {
    ratio: f64,
    text: String,
}

fn main() -> Result<(), reshard_planner::Error> {
    let all = std::env::args().nth(1).is_some_and(|a| a == "all");
    let placements = ["R", "S(0)", "S(1)", "P"];
    for (mesh, shape) in [
        ("x=2,y=8", [4096, 4096]),
        ("x=3,y=8", [4096, 4096]),
        ("x=2,y=3", [5, 7]),
        ("x=4,y=2,z=2", [4096, 4096]),
    ] {
        let mesh: Mesh = mesh.parse()?;
        let axes = mesh.axes().len();
        let of = |i: usize| {
            let text: Vec<&str> = (0..axes).map(|a| placements[i >> (2 * a) & 3]).collect();
            Sharding::parse(&mesh, &shape, &text.join(","))
        };
        let shardings: Vec<Sharding> = (0..1 << (2 * axes)).map(of).collect::<Result<_, _>>()?;
        for topology in [Topology::uniform(), Topology::h100_lines()] {
            let planner = Planner::new().topology(topology.clone());
            let (mut pairs, mut without): (Vec<Pair>, Vec<String>) = (Vec::new(), Vec::new());
            let mut exact = 0;
            let (mut taken, mut asked) = (0.0, 0);
            for from in &shardings {
                for to in &shardings {
                    let plan = planner.plan(from, to, DType::F32)?;
                    let start = Instant::now();
                    let bound = planner.lower_bound_us(from, to, DType::F32)?;
                    (taken, asked) = (taken + start.elapsed().as_secs_f64() * 1e6, asked + 1);
                    assert!(bound <= plan.cost_us() * (1.0 + 1e-9), "{plan}");
                    if plan.cost_us() == 0.0 {
                        continue;
                    }
                    let text = format!("{from} -> {to}");
                    if plan.lower_bound_us() == 0.0 {
                        without.push(text);
                        continue;
                    }
                    exact += usize::from(plan.received_bytes() == plan.lower_bound_bytes().unwrap_or(0));
                    pairs.push(Pair { ratio: plan.cost_us() / plan.lower_bound_us(), text });
                }
            }
            pairs.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
            let median = pairs.get(pairs.len() / 2).map_or(1.0, |p| p.ratio);
            let worst = pairs.first().map_or(1.0, |p| p.ratio);
            println!(
                "{mesh} {shape:?} {topology}: {} pairs with traffic, {} without a bound, median {median:.2}, worst {worst:.2}; \
                 {exact} receive the minimum; a bound in {:.2} us",
                pairs.len() + without.len(),
                without.len(),
                taken / f64::from(asked)
            );
            let shown = if all { pairs.len() } else { 6 };
            for p in pairs.iter().take(shown) {
                println!("    {:.3} {}", p.ratio, p.text);
            }
            let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
            for text in &without {
                *classes.entry(text.split(" -> ").nth(1).unwrap_or_default()).or_default() += 1;
            }
            if !classes.is_empty() {
                println!("    without a bound, by target: {classes:?}");
            }
        }
    }
    Ok(())
}
