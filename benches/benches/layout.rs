//! The layout algebra, each operation with a fixed yardstick loop of the same run.
//!
//! `yardstick` is a chain of 64 dependent shifts, multiplications and additions and does not change with the library: divide by it to
//! compare runs.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use reshard_layout::{Layout, algebra::Tiler};

fn layout(text: &str) -> Layout {
    text.parse().expect("a layout")
}

fn yardstick(seed: u64) -> u64 {
    (0..64_u64).fold(seed, |x, k| (x ^ (x >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(k))
}

fn bench(c: &mut Criterion) {
    c.bench_function("yardstick", |b| b.iter(|| yardstick(black_box(1))));

    let compositions = [
        ("1 (6,2):(8,2) o (4,3):(3,1)", layout("(6,2):(8,2)"), layout("(4,3):(3,1)")),
        (
            "2 (128,64):(64,1) o ((8,16),(4,16))",
            layout("(128,64):(64,1)"),
            layout("((8,16),(4,16)):((1,8),(128,512))"),
        ),
        (
            "3 (4,8,2,16) o ((2,4),(8,16))",
            layout("(4,8,2,16):(1,4,32,64)"),
            layout("((2,4),(8,16)):((1,2),(8,64))"),
        ),
    ];
    for (name, a, b) in &compositions {
        c.bench_function(&format!("compose/{name}"), |bench| {
            bench.iter(|| black_box(a).compose(black_box(b)));
        });
    }

    let five = layout("((2,4),(1,8),16):((1,2),(77,8),128)");
    c.bench_function("coalesce/5 leaves", |b| b.iter(|| black_box(&five).coalesce()));
    let gaps = layout("(4,2,8):(2,64,128)");
    c.bench_function("complement/(4,2,8):(2,64,128) to 4096", |b| {
        b.iter(|| black_box(&gaps).complement(4096));
    });
    let compact = layout("(4,8,2,16):(16,64,1,512)");
    c.bench_function("right_inverse/4 leaves", |b| b.iter(|| black_box(&compact).right_inverse()));
    let padded = layout("(4,8,2,16):(16,64,1,1024)");
    c.bench_function("left_inverse/4 leaves", |b| b.iter(|| black_box(&padded).left_inverse()));
    let tile = Tiler::Layout(layout("(4,8):(1,16)"));
    let whole = layout("(16,64):(64,1)");
    c.bench_function("logical_divide/(16,64) by (4,8)", |b| {
        b.iter(|| black_box(&whole).logical_divide(black_box(&tile)));
    });
    let by_mode: Tiler = "<4:1,8:1>".parse().expect("a tiler");
    c.bench_function("logical_divide/(16,64) by <4,8>", |b| {
        b.iter(|| black_box(&whole).logical_divide(black_box(&by_mode)));
    });
    let block = layout("(4,8):(8,1)");
    let pattern = Tiler::Layout(layout("(3,4):(4,1)"));
    c.bench_function("logical_product/(4,8) x (3,4)", |b| {
        b.iter(|| black_box(&block).logical_product(black_box(&pattern)));
    });

    let nested = layout("((2,2),3):((24,2),8)");
    c.bench_function("at/((2,2),3):((24,2),8) at 7", |b| b.iter(|| black_box(&nested).at(black_box(7))));
    c.bench_function("display/((2,2),3):((24,2),8)", |b| b.iter(|| black_box(&nested).to_string()));
    c.bench_function("from_str/((2,2),3):((24,2),8)", |b| {
        b.iter(|| black_box("((2,2),3):((24,2),8)").parse::<Layout>());
    });
    c.bench_function("clone", |b| b.iter(|| black_box(&nested).clone()));
    c.bench_function("same_function", |b| b.iter(|| black_box(&five).is_equivalent(black_box(&five))));
}

criterion_group! {
    name = layouts;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500))
        .sample_size(50);
    targets = bench
}
criterion_main!(layouts);
