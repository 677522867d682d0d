//! Permutations on one thread, compared with memcpy of the same bytes.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use reshard_benches::copies::{PERMUTATIONS, permutation};

fn permutations(c: &mut Criterion) {
    for (name, shape, order, item) in PERMUTATIONS {
        let copy = permutation(shape, order, item).expect("a permutation");
        let (source, mut target) = (vec![1u8; copy.bytes()], vec![2u8; copy.bytes()]);
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Bytes(copy.bytes() as u64)).sample_size(10);
        group.bench_function("reshard", |b| b.iter(|| copy.run(&mut target, &source)));
        group.bench_function("memcpy", |b| b.iter(|| target.copy_from_slice(&source)));
        group.finish();
    }
}

criterion_group!(benches, permutations);
criterion_main!(benches);
