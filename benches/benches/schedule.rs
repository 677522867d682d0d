//! Time of a schedule's call, compared with the same call in a plain loop.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use reshard_benches::scheduling::{
    CALLS, plain, plain_calls, plain_exchanges, prepared, schedule, scheduled,
};

/// Times a thousand calls of each variant.
fn calls(c: &mut Criterion) {
    let mut group = c.benchmark_group("a call");
    group.throughput(Throughput::Elements(CALLS as u64));
    let all = schedule(false).expect("a program");
    let ready = prepared(&all).expect("kernels");
    let list = plain_calls(&all);
    assert_eq!(list.len(), CALLS);
    let mut arena = vec![0; all.arena_bytes()];
    group.bench_function("scheduled", |b| b.iter(|| scheduled(&ready, black_box(&mut arena))));
    group.bench_function("plain", |b| b.iter(|| plain(&list, black_box(&mut arena))));
    group.finish();
}

fn exchanges(c: &mut Criterion) {
    let mut group = c.benchmark_group("a post and a wait");
    let all = schedule(true).expect("a program");
    let ready = prepared(&all).expect("exchanges");
    assert_eq!(all.exchanges().len(), CALLS);
    group.throughput(Throughput::Elements(CALLS as u64));
    let mut arena = vec![0; all.arena_bytes()];
    group.bench_function("scheduled", |b| b.iter(|| scheduled(&ready, black_box(&mut arena))));
    group.bench_function("plain", |b| b.iter(|| plain_exchanges(all.exchanges(), black_box(&mut arena))));
    group.finish();
}

criterion_group!(benches, calls, exchanges);
criterion_main!(benches);
