//! Time to compute a plan, and to find it in the cache: a fixed list of pairs by kind of search.
//!
//! One criterion benchmark per kind, over all its pairs in turn, divided by their number. The table of the
//! median, mean and worst of single pairs is printed before. 8 and 131,072 ranks have the same digits.

use reshard_kernels::DType;
use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use reshard_benches::planning::{KINDS, Kind, Terms};
use reshard_benches::results::{Limit, Measured, Results};
use reshard_planner::{PlanCache, Planner};
use reshard_sharding::Sharding;

/// Returns microseconds of one call, the median and the least of many batches.
///
/// On a shared machine, the least is the time of the work alone and the median the time under that load.
fn batches_us(calls: u32, mut f: impl FnMut()) -> [f64; 2] {
    let begin = Instant::now();
    f();
    // At least 9 batches, at most 101, for about 50 ms.
    let batches = (0.05 / (begin.elapsed().as_secs_f64() * f64::from(calls))).clamp(9.0, 101.0) as usize;
    let mut times: Vec<f64> = (0..batches)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..calls {
                f();
            }
            begin.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[batches / 2], times[0]]
}

/// The kind of problem for the cache benchmark.
const CACHED: &str = "two_levels";

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|k| k.name == name).expect("a known kind")
}

/// A function of the planner that computes no plan.
type Question = fn(&Planner, &Sharding, &Sharding) -> f64;

/// The maximum times of a bound alone and of the cache by value, and of the cache by handle, in microseconds.
const TARGET_US: f64 = 0.15;
const HANDLE_US: f64 = 0.05;

fn table() {
    let command = "cargo bench -p reshard-benches --bench planner";
    let mut results = Results::new("planner", command, "planner.md").expect("a machine");
    let mut add = |what: String, us: f64, most: Option<f64>| {
        results.add(&Measured::alone(what, us, "us", most.map(Limit::OursAtMost)));
    };
    println!(
        "| what | pairs | median us | mean us | worst us | worst pair | target us |\n|---|---|---|---|---|---|---|"
    );
    for kind in KINDS {
        let planner = (kind.planner)();
        let mut all: Vec<(f64, usize)> = kind
            .shardings()
            .iter()
            .enumerate()
            .map(|(i, (a, b))| {
                let plan = || {
                    black_box(planner.plan(black_box(a), black_box(b), DType::F32).expect("a plan"));
                };
                (batches_us(10, plan)[0], i)
            })
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let median = all[all.len() / 2].0;
        let mean = all.iter().map(|x| x.0).sum::<f64>() / all.len() as f64;
        let (worst, i) = all[all.len() - 1];
        let (from, to) = &kind.texts()[i];
        let (n, title, target) = (all.len(), kind.title, kind.target_us);
        add(format!("median plan: {title}"), median, Some(target));
        println!("| {title} | {n} | {median:.2} | {mean:.2} | {worst:.2} | `{from} -> {to}` | {target} |");
    }
    let bound: Question = |p, a, b| p.lower_bound_us(a, b, DType::F32).expect("a bound");
    let cost: Question = |p, a, b| p.cost_us(a, b, DType::F32).expect("a cost");
    for (name, ask, target) in [("bound", bound, Some(TARGET_US)), ("cost", cost, None)] {
        for kind in KINDS.iter().filter(|k| name == "bound" || k.terms == Terms::None) {
            let (planner, pairs) = ((kind.planner)(), kind.shardings());
            let [median, least] = batches_us(10, || {
                for (a, b) in &pairs {
                    black_box(ask(&planner, black_box(a), black_box(b)));
                }
            })
            .map(|us| us / pairs.len() as f64);
            let (title, n) = (kind.title, pairs.len());
            add(format!("{name} alone: {title}"), median, target);
            let target = target.map(|us| us.to_string()).unwrap_or_default();
            println!("| {name} alone: {title} | {n} | {median:.3} | | | least {least:.3} | {target} |");
        }
    }
    let (cache, planner) = (PlanCache::new(1024), (kind(CACHED).planner)());
    let (pairs, again) = (kind(CACHED).shardings(), kind(CACHED).shardings());
    for (from, to) in &pairs {
        cache.plan(&planner, from, to, DType::F32).expect("a plan");
    }
    let ids: Vec<_> = pairs.iter().map(|(a, b)| (cache.intern(a), cache.intern(b))).collect();
    let by = cache.intern_planner(&planner);
    let mut turn = 0;
    let mut next = || {
        turn = (turn + 1) % pairs.len();
        turn
    };
    let mut row = |name: &str, [median, least]: [f64; 2], target: f64| {
        add(format!("plan from the cache, {name}"), median, Some(target));
        println!("| cache, {name} | {} | {median:.3} | | | least {least:.3} | {target} |", pairs.len());
    };
    let times = batches_us(1000, || {
        let (a, b) = &pairs[next()];
        black_box(cache.plan(&planner, a, b, DType::F32).expect("a plan"));
    });
    row("by value", times, TARGET_US);
    let times = batches_us(1000, || {
        let (a, b) = &again[next()];
        black_box(cache.plan(&planner, a, b, DType::F32).expect("a plan"));
    });
    row("by value, on an equal but new mesh", times, TARGET_US);
    let times = batches_us(1000, || {
        let (a, b) = &ids[next()];
        black_box(cache.plan_interned(&by, a, b, DType::F32).expect("a plan"));
    });
    row("by handle", times, HANDLE_US);
    results.write().expect("a folder");
}

fn bench(c: &mut Criterion) {
    table();
    let mut group = c.benchmark_group("plan");
    for kind in KINDS {
        let (planner, pairs) = ((kind.planner)(), kind.shardings());
        group.throughput(Throughput::Elements(pairs.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(kind.name), |b| {
            b.iter(|| {
                for (from, to) in &pairs {
                    black_box(planner.plan(black_box(from), black_box(to), DType::F32).expect("a plan"));
                }
            });
        });
    }
    group.finish();
    let mut group = c.benchmark_group("cache");
    group.throughput(Throughput::Elements(1));
    let (cache, planner) = (PlanCache::new(1024), (kind(CACHED).planner)());
    let pairs = kind(CACHED).shardings();
    for (from, to) in &pairs {
        cache.plan(&planner, from, to, DType::F32).expect("a plan");
    }
    let (from, to) = &pairs[2];
    group.bench_function("by value", |b| {
        b.iter(|| {
            cache.plan(black_box(&planner), black_box(from), black_box(to), DType::F32).expect("a plan")
        });
    });
    let parsed = &kind(CACHED).shardings()[2];
    group.bench_function("by value, shardings re-parsed", |b| {
        b.iter(|| {
            cache
                .plan(black_box(&planner), black_box(&parsed.0), black_box(&parsed.1), DType::F32)
                .expect("a plan")
        });
    });
    let ids = (cache.intern_planner(&planner), cache.intern(from), cache.intern(to));
    group.bench_function("by handle", |b| {
        b.iter(|| {
            cache
                .plan_interned(black_box(&ids.0), black_box(&ids.1), black_box(&ids.2), DType::F32)
                .expect("a plan")
        });
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
