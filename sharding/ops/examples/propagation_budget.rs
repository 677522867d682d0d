//! Timing of random propagations and errors.
//!
//! It prints how many answers a budget leaves unchanged, and the cost of the slowest.
//!
//! `cargo run --release -p reshard-ops --example propagation_budget -- [QUESTIONS [SEED]]`
//!
//! Ops of one to three inputs on meshes of up to 5 axes and 2,048 ranks, sizes that do and do not divide,
//! strided placements, partial values.

use std::time::{Duration, Instant};

use reshard_kernels::DType;
use reshard_ops::propagate::{Operand, Propagator};
use reshard_ops::rules::{Op, OpTable};
use reshard_sharding::{Mesh, Sharding};
use reshard_test_support::Random;

fn mesh(r: &mut Random) -> Mesh {
    let (mut left, mut text) = (2048, Vec::new());
    for name in ["a", "b", "c", "d", "e"].iter().take(2 + r.below(4)) {
        let size = [2, 2, 3, 4, 4, 5, 7, 8, 11, 16][r.below(10)];
        let size = if size <= left { size } else { 1 };
        left /= size;
        text.push(format!("{name}={size}"));
    }
    text.join(",").parse().expect("axes have names and sizes")
}

fn sharding(r: &mut Random, mesh: &Mesh, shape: &[usize], terms: bool) -> Option<Sharding> {
    let mut one = || match r.below(100) {
        0..50 => format!("S({})", r.below(shape.len())),
        50..62 => format!("SS({},{})", r.below(shape.len()), [2, 3, 4][r.below(3)]),
        62..75 if terms => "P".to_owned(),
        _ => "R".to_owned(),
    };
    let text = mesh.axes().iter().map(|_| one()).collect::<Vec<_>>().join(",");
    Sharding::parse(mesh, shape, &text).ok()
}

fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (f(), start.elapsed())
}

fn main() -> Result<(), reshard_ops::Error> {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let (questions, seed) = (args.next().unwrap_or(2_000), args.next().unwrap_or(1));
    let mut r = Random(seed);
    let table = OpTable::standard();
    let sizes = [8, 11, 16, 48, 60, 64, 100, 257, 1024];
    let mut slowest: [Vec<(Duration, String)>; 2] = [Vec::new(), Vec::new()];
    let (mut exhausted, mut asked) = (0, 0);
    while asked < questions {
        let mesh = mesh(&mut r);
        let mut size = || *r.pick(&sizes);
        let (m, k, n, b) = (size(), size(), size(), size());
        let op: Op = match r.below(5) {
            0 => Op::new("mm", &"mk,kn->mn".parse()?, &[&[m, k], &[k, n]])?,
            1 => Op::new("bmm", &"bmk,bkn->bmn".parse()?, &[&[b, m, k], &[b, k, n]])?,
            2 => Op::new("add", &"mn,mn->mn".parse()?, &[&[m, n], &[m, n]])?,
            3 => Op::new("three", &"mk,kn,nb->mb".parse()?, &[&[m, k], &[k, n], &[n, b]])?,
            _ => table.op(&"embedding".parse()?, &[&[m, k], &[b]])?,
        };
        let terms = r.below(3) == 0;
        let shards: Option<Vec<Sharding>> =
            op.inputs().iter().map(|shape| sharding(&mut r, &mesh, shape, terms)).collect();
        let Some(shards) = shards else { continue };
        asked += 1;
        let text = shards.iter().map(|s| format!("{:?} [{s}]", s.shape())).collect::<Vec<_>>().join(" and ");
        let inputs: Vec<Operand> = shards.into_iter().map(|s| Operand::new(DType::F32, s)).collect();
        let (choice, taken) = timed(|| Propagator::new().propagate(&op, &mesh, &inputs, &[]));
        let marked = choice.is_ok_and(|c| c.is_budget_exhausted());
        exhausted += u64::from(marked);
        let text = format!("{} of {text} on {mesh}{}", op.name(), if marked { ", exhausted" } else { "" });
        slowest[0].push((taken, text.clone()));
        let (_, taken) = timed(|| Propagator::new().explicit(&op, &mesh, &inputs));
        slowest[1].push((taken, text));
    }
    println!(
        "{asked} propagations, {:.2} % as without a budget",
        100.0 - exhausted as f64 * 100.0 / asked as f64
    );
    for (what, times) in ["propagated", "explicit"].iter().zip(&mut slowest) {
        times.sort();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].0;
        println!("{what}: median {:?}, 90 % {:?}, 99 % {:?}", at(0.5), at(0.9), at(0.99));
        for (taken, text) in times.iter().rev().take(4) {
            println!("    {taken:?} {text}");
        }
    }
    Ok(())
}
