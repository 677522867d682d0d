//! Random problems and the planning time: the share that a budget leaves unchanged, and the slowest ones.
//!
//!     cargo run --release -p reshard-planner --example plan_budget -- [QUESTIONS [SEED]]
//!
//! Meshes have up to 8 axes and 4,096 ranks. There are up to 5 dims, some of which do not divide, strided and
//! ragged placements, partial values in either end, and three networks. One in twelve is between two meshes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reshard_kernels::DType;
use reshard_planner::{Arithmetic, Level, Planner, Topology};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Random;

const RANKS: usize = 4096;

/// Pairs inside nodes of 8.
fn three_levels() -> Topology {
    let level = |ranks, gbytes_per_s, latency_us| Level { ranks, gbytes_per_s, latency_us };
    let levels = [level(Some(2), 400.0, 1.0), level(Some(8), 90.0, 4.0), level(None, 20.0, 12.0)];
    Topology::new(6.6, 0.2, &levels).expect("further out is slower")
}

fn mesh(r: &mut Random) -> Mesh {
    let axes = 1 + r.below(8);
    let (mut left, mut text) = (RANKS, Vec::new());
    for axis in 0..axes {
        let size = [2, 2, 2, 2, 3, 4, 4, 4, 5, 6, 7, 8, 8, 9, 12, 16, 16, 32, 64, 1][r.below(20)];
        let size = if size <= left { size } else { 1 };
        left /= size;
        text.push(format!("{}={size}", ["a", "b", "c", "d", "e", "f", "g", "h"][axis]));
    }
    text.join(",").parse().expect("axes have names and sizes")
}

fn shape(r: &mut Random) -> Vec<usize> {
    let uneven = r.below(100) < 40;
    let even = [16, 32, 64, 96, 128, 256, 384, 1024, 4096, 5120];
    let any = [1, 3, 5, 7, 10, 13, 17, 31, 50, 77, 100, 127, 257, 1000, 1001];
    (0..=r.below(5)).map(|_| if uneven && r.below(2) == 0 { *r.pick(&any) } else { *r.pick(&even) }).collect()
}

fn ragged(r: &mut Random, ranks: usize, len: usize) -> String {
    let mut left = len;
    let size = |i: usize| {
        let n = if i + 1 == ranks { left } else { r.below(1 + 2 * len / ranks).min(left) };
        left -= n;
        n.to_string()
    };
    (0..ranks).map(size).collect::<Vec<_>>().join(",")
}

fn placements(r: &mut Random, mesh: &Mesh, shape: &[usize], terms: bool) -> String {
    let op = ["sum", "sum", "avg", "max"][r.below(4)];
    let mut one = |ranks: usize| match r.below(100) {
        0..45 => format!("S({})", r.below(shape.len())),
        45..55 => format!("SS({},{})", r.below(shape.len()), [2, 2, 3, 4, 6][r.below(5)]),
        55..58 => {
            let dim = r.below(shape.len());
            format!("RG({dim},[{}])", ragged(r, ranks, shape[dim]))
        }
        58..78 if terms => format!("P({op})"),
        _ => "R".to_owned(),
    };
    mesh.axes().iter().map(|a| one(a.size())).collect::<Vec<_>>().join(",")
}

/// Returns the next valid problem.
fn question(r: &mut Random) -> (Sharding, Sharding, Topology) {
    loop {
        let from = mesh(r);
        let to = if r.below(12) == 0 { mesh(r) } else { from.clone() };
        let shape = shape(r);
        let terms = r.below(100) < 45;
        let into_terms = terms && r.below(100) < 40;
        let (s, t) = (placements(r, &from, &shape, terms), placements(r, &to, &shape, into_terms));
        let topology = match r.below(3) {
            0 => Topology::uniform(),
            1 => Topology::h100_lines(),
            _ => three_levels(),
        };
        if let (Ok(s), Ok(t)) = (Sharding::parse(&from, &shape, &s), Sharding::parse(&to, &shape, &t)) {
            return (s, t, topology);
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let (questions, seed) = (args.next().unwrap_or(100_000), args.next().unwrap_or(1));
    let show: u128 = std::env::var("SHOW_MS").ok().and_then(|t| t.parse().ok()).unwrap_or(u128::MAX);
    let mut r = Random(seed);
    let mut times: Vec<Duration> = Vec::new();
    let mut refused: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut exhausted = 0;
    let mut worst = (Duration::ZERO, String::new());
    for number in 0..questions {
        let (from, to, topology) = question(&mut r);
        let name = topology.to_string();
        let planner = Planner::new().topology(topology).arithmetic(Arithmetic::Framework);
        let start = Instant::now();
        let plan = planner.plan(&from, &to, DType::F32);
        let taken = start.elapsed();
        let text = format!(
            "{number}: {from} on {} -> {to} on {}, {:?}, {name}",
            from.mesh(),
            to.mesh(),
            from.shape()
        );
        if taken.as_millis() >= show {
            let said = plan.as_ref().map_or_else(ToString::to_string, |p| {
                if p.is_budget_exhausted() { "exhausted".into() } else { String::new() }
            });
            println!("{taken:?} {text} {said}");
        }
        match plan {
            Ok(plan) => exhausted += usize::from(plan.is_budget_exhausted()),
            Err(e) => *refused.entry(e.code()).or_default() += 1,
        }
        times.push(taken);
        if taken > worst.0 {
            worst = (taken, text);
        }
    }
    times.sort();
    let n = times.len().max(1) as f64;
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let under = |ms: u64| times.iter().filter(|t| **t < Duration::from_millis(ms)).count() as f64 * 100.0 / n;
    println!("{questions} problems, rejected {refused:?}");
    println!("as without a budget {:.3} % (the others are marked)", 100.0 - exhausted as f64 * 100.0 / n);
    println!(
        "under 10 ms {:.2} %, under 50 ms {:.2} %, under 1 s {:.3} %",
        under(10),
        under(50),
        under(1000)
    );
    println!("median {:?}, 90 % {:?}, 99 % {:?}, worst {:?}", at(0.5), at(0.9), at(0.99), worst.0);
    println!("worst: {}", worst.1);
}
