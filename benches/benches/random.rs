//! Random numbers on one thread: a whole tensor, and shards of it of the same number of elements.
//!
//! For comparison with JAX: `benches/peers/random_jax.py`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use reshard_kernels::DType;
use reshard_kernels::random::{Draw, Generator, IndexRun, Key, fill};

/// 2^20 elements: 4 MiB of f32.
const ELEMENTS: usize = 1 << 20;

fn random(c: &mut Criterion) {
    let uniform = Draw::Uniform { low: 0.0, high: 1.0 };
    let one = [IndexRun::all(ELEMENTS as u64)];
    let threefry = Key::with(Generator::Threefry, 0);
    let philox = Key::with(Generator::Philox, 0);
    let mut run = |name: &str, key: &Key, draw: Draw, dtype: DType, shape: &[usize], runs: &[IndexRun]| {
        let item = dtype.element_bytes().expect("whole bytes");
        let mut target = vec![0u8; ELEMENTS * item];
        let mut group = c.benchmark_group("random");
        group.throughput(Throughput::Elements(ELEMENTS as u64)).sample_size(20);
        group.bench_function(name, |b| {
            b.iter(|| fill(key, draw, dtype, &mut target, shape, runs.iter().copied()).expect("it fits"));
        });
        group.finish();
    };
    run("threefry bits u32", &threefry, Draw::Bits, DType::U32, &[ELEMENTS], &one);
    run("threefry uniform f32", &threefry, uniform, DType::F32, &[ELEMENTS], &one);
    // f32[1024,4096] with S(1) over 4: rows of 1024. f32[2^20,4] over 4: single columns, and over 2: pairs.
    let rows: Vec<IndexRun> =
        (0..1024).map(|row| IndexRun { start: row * 4096 + 1024, len: 1024, stride: 1 }).collect();
    run("threefry uniform f32, rows of 1024", &threefry, uniform, DType::F32, &[1024, 4096], &rows);
    let column = [IndexRun { start: 1, len: ELEMENTS as u64, stride: 4 }];
    run("threefry uniform f32, a column", &threefry, uniform, DType::F32, &[ELEMENTS, 4], &column);
    let pairs: Vec<IndexRun> =
        (0..ELEMENTS as u64 / 2).map(|row| IndexRun { start: row * 4, len: 2, stride: 1 }).collect();
    run("threefry uniform f32, rows of 2", &threefry, uniform, DType::F32, &[ELEMENTS / 2, 4], &pairs);
    let stretched = Draw::Uniform { low: -0.3, high: 2.7 };
    run("threefry uniform(-0.3,2.7) f32", &threefry, stretched, DType::F32, &[ELEMENTS], &one);
    run("threefry uniform bf16", &threefry, uniform, DType::BF16, &[ELEMENTS], &one);
    run("threefry uniform f64", &threefry, uniform, DType::F64, &[ELEMENTS], &one);
    let normal = Draw::Normal { mean: 0.0, std: 1.0 };
    run("threefry normal f32", &threefry, normal, DType::F32, &[ELEMENTS], &one);
    run("threefry bernoulli bool", &threefry, Draw::Bernoulli { p: 0.1 }, DType::Bool, &[ELEMENTS], &one);
    let randint = Draw::RandInt { low: 0, high: 1000 };
    run("threefry randint i32", &threefry, randint, DType::I32, &[ELEMENTS], &one);
    run("philox uniform f32", &philox, uniform, DType::F32, &[ELEMENTS], &one);
    run("philox uniform f32, a column", &philox, uniform, DType::F32, &[ELEMENTS, 4], &column);
}

criterion_group!(benches, random);
criterion_main!(benches);
