//! How long propagation takes, uncached: medians over fixed lists of inputs, the worst pair named.

use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use reshard_benches::propagating::lists;
use reshard_sharding::propagate::Propagator;

/// Microseconds of one call: the median of a few batches.
fn median_us(mut f: impl FnMut()) -> f64 {
    f();
    let mut times: Vec<f64> = (0..11)
        .map(|_| {
            let begin = Instant::now();
            f();
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn table() {
    println!(
        "| op | axes | terms | pairs | median us | mean us | worst us | worst pair | target us |\n|---|---|---|---|---|---|---|---|---|"
    );
    for list in &lists() {
        let p = list.problems().expect("a list");
        let propagator = Propagator::new();
        let mut all: Vec<(f64, usize)> = p
            .inputs
            .iter()
            .enumerate()
            .map(|(i, inputs)| {
                let us = median_us(|| {
                    black_box(
                        propagator.propagate(&p.op, &p.mesh, black_box(inputs), &[]).expect("a choice"),
                    );
                });
                (us, i)
            })
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (worst, i) = all[all.len() - 1];
        let mean = all.iter().map(|x| x.0).sum::<f64>() / all.len() as f64;
        println!(
            "| {} | {} | {} | {} | {:.1} | {mean:.1} | {worst:.1} | `{} x {}` | {} |",
            list.op,
            list.axes,
            if list.terms { "yes" } else { "no" },
            all.len(),
            all[all.len() / 2].0,
            p.inputs[i][0].sharding,
            p.inputs[i][1].sharding,
            list.target_us
        );
    }
}

fn bench(c: &mut Criterion) {
    table();
    let mut group = c.benchmark_group("propagate");
    for list in &lists() {
        let p = list.problems().expect("a list");
        let propagator = Propagator::new();
        group.throughput(Throughput::Elements(p.inputs.len() as u64));
        group.bench_function(
            BenchmarkId::new(list.op, format!("{}{}", list.axes, if list.terms { "_terms" } else { "" })),
            |b| {
                b.iter(|| {
                    for inputs in &p.inputs {
                        black_box(propagator.propagate(&p.op, &p.mesh, inputs, &[]).expect("a choice"));
                    }
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
