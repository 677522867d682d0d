//! Time of a schedule's call, compared with the same call in a plain loop and a cached propagation of its op.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use reshard_benches::propagating::lists;
use reshard_benches::scheduling::{
    CALLS, plain, plain_calls, plain_exchanges, prepared, schedule, scheduled,
};
use reshard_ops::propagate::{PropagationCache, Propagator};

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
    let list = lists().into_iter().find(|list| list.name() == "add_1").expect("a list");
    let p = list.problems().expect("a list");
    let cache = PropagationCache::new(Propagator::new(), 1024);
    let inputs = &p.inputs[0];
    let handles = inputs.each_ref().map(|operand| cache.intern(operand));
    let op = cache.intern_op(&p.op);
    group.bench_function("propagated, cached by value", |b| {
        b.iter(|| {
            for _ in 0..CALLS {
                let choice = cache.propagate(&p.op, &p.mesh, black_box(inputs), &[]);
                black_box(choice.expect("a choice"));
            }
        });
    });
    group.bench_function("propagated, cached by handle", |b| {
        b.iter(|| {
            for _ in 0..CALLS {
                black_box(cache.propagate_interned(&op, black_box(&handles.each_ref())).expect("a choice"));
            }
        });
    });
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
