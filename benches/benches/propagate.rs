//! Time of an uncached propagation: medians over fixed lists of inputs, with the worst pair.

use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use reshard_benches::propagating::lists;
use reshard_benches::results::{Limit, Measured, Results};
use reshard_kernels::DType;
use reshard_ops::propagate::{Operand, Propagator};
use reshard_ops::rules::Op;
use reshard_sharding::{Mesh, Sharding};

/// Returns microseconds of one call: the median of a few batches.
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

fn table(results: &mut Results) {
    println!(
        "| op | axes | partial | pairs | median us | mean us | worst us | worst pair | target us |\n|---|---|---|---|---|---|---|---|---|"
    );
    // For each op and number of axes, the lists without and with partial values follow each other.
    let mut both: Vec<f64> = Vec::new();
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
        both.extend(all.iter().map(|x| x.0));
        if list.terms {
            both.sort_by(f64::total_cmp);
            let (n, median) = (both.len(), both[both.len() / 2]);
            let mean = both.iter().sum::<f64>() / n as f64;
            let limit = Limit::OursAtMost(list.target_us);
            let what = format!("propagation of `{}`, uncached, {} axes of 2", list.op, list.axes);
            results.add(&Measured::alone(what, median, "us", Some(limit)));
            println!(
                "| {} | {} | all | {n} | {median:.1} | {mean:.1} | | | {} |",
                list.op, list.axes, list.target_us
            );
            both.clear();
        }
    }
}

/// Times `cat` of a thousand inputs, with one sharding and with three.
fn cat(results: &mut Results) {
    let mesh: Mesh = "x=2,y=2".parse().expect("a mesh");
    let shapes: Vec<&[usize]> = vec![&[64, 64]; 1000];
    let rule = format!("{}->*j {{selecting}}", vec!["*j"; 1000].join(","));
    let rule = rule.parse().expect("a rule");
    let op = Op::with_outputs("cat", &rule, &shapes, &[&[64000, 64]]).expect("an op");
    for kinds in [&["S(1),R"][..], &["S(1),R", "R,S(1)", "S(0),R"]] {
        let of = |i: usize| Sharding::parse(&mesh, &[64, 64], kinds[i % kinds.len()]).expect("a sharding");
        let inputs: Vec<Operand> = (0..1000).map(|i| Operand::new(DType::F32, of(i))).collect();
        let us = median_us(|| {
            black_box(Propagator::new().propagate(&op, &mesh, &inputs, &[]).expect("a choice"));
        });
        let what = format!("propagation of `cat` of 1,000 inputs, shardings: {}", kinds.len());
        results.add(&Measured::alone(what, us / 1e3, "ms", Some(Limit::OursAtMost(10.0))));
        println!("cat of 1000 inputs, {} shardings: {:.2} ms", kinds.len(), us / 1e3);
    }
}

fn bench(c: &mut Criterion) {
    let command = "cargo bench -p reshard-benches --bench propagate";
    let mut results = Results::new("propagate", command, "ops.md").expect("a machine");
    cat(&mut results);
    table(&mut results);
    results.write().expect("a folder");
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
