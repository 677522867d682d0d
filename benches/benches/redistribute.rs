//! Redistributions of 64 MiB on 8 ranks as threads, compared with memcpy of the same bytes by the same
//! threads. Small ones, in which only the overhead is left, are compared with a bare barrier.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use reshard_benches::redistribution::{PROMISED, Ready, SHAPE, Span, plan, seconds};
use reshard_collectives::threads::{ThreadCommunicator, World};
use reshard_collectives::{CompiledPlan, Error};

/// Returns the time that all ranks jointly need for `iterations` calls.
fn timed(
    world: &mut World,
    iterations: u64,
    shape: &[usize],
    (from, to): (&str, &str),
    call: impl Fn(&mut Ready, &mut ThreadCommunicator) -> Result<Span, Error> + Sync,
) -> Duration {
    let plan = plan(shape, from, to).expect("a plan");
    let results = world.run(|comm| {
        let mut ready = Ready::new(&plan, comm)?;
        let (begin, _) = call(&mut ready, comm)?;
        let mut end = begin;
        for _ in 0..iterations {
            (_, end) = call(&mut ready, comm)?;
        }
        Ok::<_, Error>((begin, end))
    });
    let spans: Vec<Span> = results.into_iter().map(|result| result.expect("a run without failure")).collect();
    Duration::from_secs_f64(seconds(spans.iter().copied()) * iterations as f64 / (iterations + 1) as f64)
}

fn large(c: &mut Criterion) {
    let mut world = World::new(8).expect("8 threads");
    for pair in PROMISED {
        let mut group = c.benchmark_group(format!("64 MiB f32, 8 ranks, {} to {}", pair.0, pair.1));
        let plan = plan(&SHAPE, pair.0, pair.1).expect("a plan");
        let bytes: usize =
            (0..8).map(|rank| CompiledPlan::new(&plan, rank).expect("compiles").target_bytes()).sum();
        group.throughput(Throughput::Bytes(bytes as u64)).sample_size(10);
        group.bench_function("reshard", |b| {
            b.iter_custom(|n| timed(&mut world, n, &SHAPE, pair, Ready::redistribute));
        });
        group.bench_function("memcpy", |b| {
            b.iter_custom(|n| timed(&mut world, n, &SHAPE, pair, Ready::memcpy));
        });
        group.finish();
    }
}

fn small(c: &mut Criterion) {
    let mut group = c.benchmark_group("overhead, 8 ranks");
    let mut world = World::new(8).expect("8 threads");
    let pair = ("S(0),S(0)", "S(1),S(1)");
    group.bench_function("a barrier and an all-to-all of 8 x 8 elements", |b| {
        b.iter_custom(|n| timed(&mut world, n, &[8, 8], pair, Ready::redistribute));
    });
    group.bench_function("a barrier", |b| {
        b.iter_custom(|n| timed(&mut world, n, &[8, 8], pair, Ready::memcpy));
    });
    group.finish();
}

fn compiling(c: &mut Criterion) {
    let mut group = c.benchmark_group("compiling a plan for one rank");
    for shape in [[64, 64], [4096, 4096], [1 << 20, 1 << 16]] {
        let plan = plan(&shape, "S(0),S(1)", "S(1),S(0)").expect("a plan");
        group.bench_function(format!("{} x {}", shape[0], shape[1]), |b| {
            b.iter(|| CompiledPlan::new(&plan, 3).expect("compiles").target_bytes());
        });
    }
    group.finish();
}

criterion_group!(benches, large, small, compiling);
criterion_main!(benches);
