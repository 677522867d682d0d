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

/// Microseconds of one call, the median and the least of 101 batches.
///
/// On a machine that others load, the least is what the work takes and the median what it takes there.
fn batches_us(calls: u32, mut f: impl FnMut()) -> [f64; 2] {
    let mut times: Vec<f64> = (0..101)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..calls {
                f();
            }
            begin.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[50], times[0]]
}

fn table() {
    println!(
        "| what | pairs | median us | least us | worst us | worst least us | worst pair | target us |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for kind in KINDS {
        let planner = (kind.planner)();
        let mut all: Vec<([f64; 2], usize)> = shardings(kind)
            .iter()
            .enumerate()
            .map(|(i, (a, b))| {
                let plan = || {
                    black_box(planner.plan(black_box(a), black_box(b), 4).expect("a plan"));
                };
                (batches_us(10, plan), i)
            })
            .collect();
        all.sort_by(|a, b| a.0[1].total_cmp(&b.0[1]));
        let ([median, least], _) = all[all.len() / 2];
        let ([worst, worst_least], i) = all[all.len() - 1];
        let (from, to) = kind.pairs[i];
        let (n, name, target) = (all.len(), kind.name, kind.target);
        println!(
            "| {name} | {n} | {median:.2} | {least:.2} | {worst:.2} | {worst_least:.2} | `{from} -> {to}` | {target} |"
        );
    }
    let (cache, planner) = (PlanCache::new(1024), h100());
    let (pairs, again) = (shardings(&KINDS[6]), shardings(&KINDS[6]));
    for (from, to) in &pairs {
        cache.plan(&planner, from, to, 4).expect("a plan");
    }
    let ids: Vec<_> = pairs.iter().map(|(a, b)| (cache.intern(a), cache.intern(b))).collect();
    let by = cache.intern_planner(&planner);
    let mut turn = 0;
    let mut next = || {
        turn = (turn + 1) % pairs.len();
        turn
    };
    let row = |name: &str, [median, least]: [f64; 2], target: f64| {
        println!("| cache, {name} | {} | {median:.3} | {least:.3} | | | | {target} |", pairs.len());
    };
    let times = batches_us(1000, || {
        let (a, b) = &pairs[next()];
        black_box(cache.plan(&planner, a, b, 4).expect("a plan"));
    });
    row("by value", times, 0.15);
    let times = batches_us(1000, || {
        let (a, b) = &again[next()];
        black_box(cache.plan(&planner, a, b, 4).expect("a plan"));
    });
    row("by value, on an equal mesh made again", times, 0.15);
    let times = batches_us(1000, || {
        let (a, b) = &ids[next()];
        black_box(cache.plan_interned(&by, a, b, 4).expect("a plan"));
    });
    row("by handle", times, 0.05);
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
