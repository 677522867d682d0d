//! How long a training step takes that is read, differentiated, typed and reported, each time from nothing.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use reshard_benches::layers::Until;

fn layers(c: &mut Criterion) {
    let mut group = c.benchmark_group("24 layers");
    group.sample_size(20);
    for until in Until::ALL {
        group.bench_function(until.name(), |b| b.iter(|| black_box(until.run().expect("it is right"))));
    }
    group.finish();
}

criterion_group!(benches, layers);
criterion_main!(benches);
