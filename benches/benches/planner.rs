//! How long a plan takes to make, and to find in the cache: a fixed list of pairs by kind of search.
//!
//! One criterion benchmark a kind, over all its pairs in turn, divided by their number; the table of medians and worst
//! cases of single pairs goes to stdout before. `8 ranks` and `131072 ranks` are the same digits.

use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use reshard_sharding::redistribute::{Objective, PlanCache, Planner, Topology};
use reshard_sharding::{Mesh, Sharding};

/// A kind of question, and what it should take at most.
struct Kind {
    name: &'static str,
    mesh: &'static str,
    shape: &'static [usize],
    pairs: &'static [(&'static str, &'static str)],
    planner: fn() -> Planner,
    /// Microseconds.
    target: f64,
}

const WITHOUT_TERMS: &[(&str, &str)] = &[
    ("S(0),S(1),R", "S(1),S(0),R"),
    ("S(0),S(0),S(0)", "R,R,R"),
    ("R,R,R", "S(0),S(1),S(0)"),
    ("S(0),R,S(1)", "R,S(0),S(1)"),
    ("S(0),S(1),S(1)", "S(1),S(1),S(0)"),
    ("SS(0,4),S(0),R", "S(0),S(0),S(0)"),
    ("S(0),S(1),R", "R,S(0),S(1)"),
    ("S(0),S(1),S(0)", "S(1),R,R"),
];

const WITH_TERMS: &[(&str, &str)] = &[
    ("P,P,P", "R,S(0),R"),
    ("P,P,P", "R,R,R"),
    ("P,S(0),P", "S(0),S(0),S(0)"),
    ("P,S(0),R", "S(0),R,S(1)"),
    ("P,R,R", "R,R,R"),
    ("S(0),P,P", "R,S(0),S(1)"),
    ("P,P,S(0)", "S(0),S(0),S(0)"),
    ("S(0),R,P", "P,S(0),R"),
];

const FOUR: &[(&str, &str)] = &[
    ("S(0),S(1),S(0),S(1)", "S(1),S(0),R,S(0)"),
    ("S(0),S(0),S(1),R", "R,S(0),S(0),S(1)"),
    ("P,P,S(0),S(1)", "S(0),S(1),R,S(0)"),
    ("P,S(0),P,S(1)", "R,S(1),S(0),R"),
    ("S(0),S(1),S(0),S(1)", "R,R,R,R"),
    ("S(0),R,S(1),R", "R,S(0),R,S(1)"),
];

fn bytes() -> Planner {
    Planner::new().objective(Objective::Bytes)
}

fn h100() -> Planner {
    Planner::new().topology(Topology::h100())
}

const KINDS: &[Kind] = &[
    Kind {
        name: "three axes, one level, bytes, no terms (closed form)",
        mesh: "x=2,y=2,z=2",
        shape: &[4096, 4096],
        pairs: WITHOUT_TERMS,
        planner: bytes,
        target: 2.0,
    },
    Kind {
        name: "three axes, one level, time, no terms",
        mesh: "x=2,y=2,z=2",
        shape: &[4096, 4096],
        pairs: WITHOUT_TERMS,
        planner: Planner::new,
        target: 15.0,
    },
    Kind {
        name: "the same on 131072 ranks",
        mesh: "x=32,y=64,z=64",
        shape: &[1 << 20, 1 << 20],
        pairs: WITHOUT_TERMS,
        planner: Planner::new,
        target: 15.0,
    },
    Kind {
        name: "three axes, one level, time, with terms",
        mesh: "x=2,y=2,z=2",
        shape: &[4096, 4096],
        pairs: WITH_TERMS,
        planner: Planner::new,
        target: 60.0,
    },
    Kind {
        name: "the same with terms on 131072 ranks",
        mesh: "x=32,y=64,z=64",
        shape: &[1 << 20, 1 << 20],
        pairs: WITH_TERMS,
        planner: Planner::new,
        target: 60.0,
    },
    Kind {
        name: "two levels, three digits, no terms",
        mesh: "x=4,y=4,z=2",
        shape: &[4096, 4096],
        pairs: WITHOUT_TERMS,
        planner: h100,
        target: 60.0,
    },
    Kind {
        name: "two levels, three digits, with terms",
        mesh: "x=4,y=4,z=2",
        shape: &[4096, 4096],
        pairs: WITH_TERMS,
        planner: h100,
        target: 60.0,
    },
    Kind {
        name: "two levels, four digits",
        mesh: "w=2,x=4,y=4,z=2",
        shape: &[4096, 4096],
        pairs: FOUR,
        planner: h100,
        target: 1500.0,
    },
];

fn shardings(kind: &Kind) -> Vec<(Sharding, Sharding)> {
    let mesh: Mesh = kind.mesh.parse().expect("a mesh");
    let parse = |p: &str| Sharding::parse(&mesh, kind.shape, p).expect("a sharding");
    kind.pairs.iter().map(|(a, b)| (parse(a), parse(b))).collect()
}

/// The median of single plans of a pair, in microseconds.
fn median_us(planner: &Planner, from: &Sharding, to: &Sharding) -> f64 {
    let mut times: Vec<f64> = (0..201)
        .map(|_| {
            let begin = Instant::now();
            black_box(planner.plan(black_box(from), black_box(to), 4).expect("a plan"));
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[100]
}

fn table() {
    println!("| what | pairs | median us | worst us | worst pair | target us |\n|---|---|---|---|---|---|");
    for kind in KINDS {
        let planner = (kind.planner)();
        let mut all: Vec<(f64, usize)> =
            shardings(kind).iter().enumerate().map(|(i, (a, b))| (median_us(&planner, a, b), i)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (worst, i) = all[all.len() - 1];
        let (from, to) = kind.pairs[i];
        let (n, median, target) = (all.len(), all[all.len() / 2].0, kind.target);
        println!("| {} | {n} | {median:.2} | {worst:.2} | `{from} -> {to}` | {target} |", kind.name);
    }
}

fn bench(c: &mut Criterion) {
    table();
    let mut group = c.benchmark_group("plan");
    for kind in KINDS {
        let (planner, pairs) = ((kind.planner)(), shardings(kind));
        group.throughput(Throughput::Elements(pairs.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(kind.name), |b| {
            b.iter(|| {
                for (from, to) in &pairs {
                    black_box(planner.plan(black_box(from), black_box(to), 4).expect("a plan"));
                }
            });
        });
    }
    group.finish();
    let mut group = c.benchmark_group("cache");
    group.throughput(Throughput::Elements(1));
    let (cache, planner) = (PlanCache::new(1024), h100());
    let pairs = shardings(&KINDS[6]);
    for (from, to) in &pairs {
        cache.plan(&planner, from, to, 4).expect("a plan");
    }
    let (from, to) = &pairs[2];
    group.bench_function("by value", |b| {
        b.iter(|| cache.plan(black_box(&planner), black_box(from), black_box(to), 4).expect("a plan"));
    });
    let parsed = &shardings(&KINDS[6])[2];
    group.bench_function("by value, shardings parsed again", |b| {
        b.iter(|| {
            cache.plan(black_box(&planner), black_box(&parsed.0), black_box(&parsed.1), 4).expect("a plan")
        });
    });
    let ids = (cache.intern_planner(&planner), cache.intern(from), cache.intern(to));
    group.bench_function("by handle", |b| {
        b.iter(|| {
            cache.plan_interned(black_box(&ids.0), black_box(&ids.1), black_box(&ids.2), 4).expect("a plan")
        });
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
