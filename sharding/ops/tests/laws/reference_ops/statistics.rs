//! Moments, ranks, counts and differences.

use reshard_ops::rules::verify::{Data, LocalView, Random};

use super::reductions::{mean, middle, over, var};
use super::{A, Example, example, fold, lines, make, x};

fn odd(shape: &[usize], r: &mut Random) -> Vec<f64> {
    Data::Integers.whole(shape, r).into_iter().map(|v| if v > 6.0 { f64::NAN } else { v }).collect()
}

fn present(v: &[f64]) -> Vec<f64> {
    v.iter().copied().filter(|x| !x.is_nan()).collect()
}

/// Between the two values that lie about it in order.
fn quantile(v: &[f64]) -> f64 {
    let mut v = v.to_vec();
    v.sort_by(f64::total_cmp);
    let at = 0.3 * (v.len() as f64 - 1.0);
    let get = |i: f64| v.get(i as usize).copied().unwrap_or(0.0);
    get(at.floor()) + (get(at.ceil()) - get(at.floor())) * at.fract()
}

/// The least value and the greatest of a tensor, of some dims.
fn extremes(a: &A, dims: &[usize]) -> Vec<A> {
    vec![
        over(a, dims, false, |v| v.iter().copied().fold(f64::INFINITY, f64::min)),
        over(a, dims, false, |v| v.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    ]
}

/// The most frequent value, the least of several, and where the last of it is.
fn mode(v: &[f64], of: &[usize]) -> (f64, f64) {
    let count = |x: f64| v.iter().filter(|&&y| y == x).count();
    let best = v.iter().copied().fold(f64::NAN, |b, x| {
        if b.is_nan() || count(x) > count(b) || (count(x) == count(b) && x < b) { x } else { b }
    });
    (best, v.iter().rposition(|&x| x == best).map_or(-1.0, |i| of[i] as f64))
}

fn bin(v: f64) -> usize {
    // Six bins from -9 to 9.
    (((v + 9.0) / 3.0) as usize).min(5)
}

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let two = "6,6; 4,5; 2,3";
    let apart = Data::Made(|s, r| Data::Integers.whole(s, r));
    for (all, one, f) in [
        ("var_mean", "var_mean(dims=[1])", var as fn(&[f64]) -> f64),
        ("std_mean", "std_mean(dims=[1])", (|v| var(v).sqrt()) as fn(&[f64]) -> f64),
    ] {
        let run = move |dims: &'static [usize]| {
            move |l: &LocalView<'_>| {
                let a = x(l, 0);
                vec![over(&a, dims, false, f), over(&a, dims, false, mean)]
            }
        };
        out.push(example(all, two, run(&[0, 1])).near());
        out.push(example(one, two, run(&[1])).near());
    }
    out.push(example("aminmax", two, |l| extremes(&x(l, 0), &[0, 1])).data(&[Data::Real]));
    out.push(example("aminmax(dim=1)", two, |l| extremes(&x(l, 0), &[1])).data(&[Data::Real]));
    let folds: &[(&'static str, &'static str, fn(&[f64]) -> f64, Data)] = &[
        ("nansum", "nansum(dims=[1])", |v| present(v).iter().sum(), Data::Made(odd)),
        (
            "nanmean",
            "nanmean(dims=[1])",
            |v| present(v).iter().sum::<f64>() / present(v).len().max(1) as f64,
            Data::Made(odd),
        ),
        (
            "nanmedian",
            "nanmedian(dim=1)",
            |v| middle(&[present(v), vec![]].concat()).max(-99.0),
            Data::Made(odd),
        ),
        ("quantile", "quantile(dim=1)", quantile, apart),
        ("nanquantile", "nanquantile(dim=1)", |v| quantile(&present(v)), Data::Made(odd)),
    ];
    for &(all, one, f, data) in folds {
        out.push(example(all, two, move |l| vec![over(&x(l, 0), &[0, 1], false, f)]).data(&[data]).near());
        out.push(example(one, two, move |l| vec![over(&x(l, 0), &[1], false, f)]).data(&[data]).near());
    }
    out.push(
        example("kthvalue(k=2,dim=1)", "6,6; 4,5", |l| {
            let of = l.places[0].indices(1).unwrap();
            let order = |v: &[f64]| {
                let mut all: Vec<usize> = (0..v.len()).collect();
                all.sort_by(|&i, &j| v[i].total_cmp(&v[j]));
                all.get(1).copied()
            };
            let a = x(l, 0);
            vec![
                fold(&a, 1, |v| order(v).map_or(-99.0, |i| v[i])),
                fold(&a, 1, |v| order(v).map_or(-1.0, |i| of[i] as f64)),
            ]
        })
        .data(&[Data::Distinct]),
    );
    out.push(
        example("mode", "6,6; 4,5", |l| {
            let of = l.places[0].indices(1).unwrap();
            vec![fold(&x(l, 0), 1, |v| mode(v, &of).0), fold(&x(l, 0), 1, |v| mode(v, &of).1)]
        })
        .data(&[Data::Index { below: 3 }]),
    );
    out.push(
        example("histc(bins=6)", "6,5; 2,3", |l| {
            let (a, held) = (x(l, 0), l.wanted[0].indices(0).unwrap());
            vec![make(&[held.len()], |i| a.iter().filter(|&&v| bin(v) == held[i[0]]).count() as f64)]
        })
        .wants(),
    );
    out.push(example("histogram(bins=6)", "6,5; 2,3", |l| {
        let a = x(l, 0);
        let counts = make(&[6], |i| a.iter().filter(|&&v| bin(v) == i[0]).count() as f64);
        vec![counts, make(&[7], |i| 3.0 * i[0] as f64 - 9.0)]
    }));
    let chosen = |l: &LocalView<'_>| {
        let (a, rows) = (x(l, 0), l.places[0].indices(0).unwrap());
        assert!(a.shape()[1] > 0);
        let total = |i: usize| (0..a.shape()[1]).map(|j| a[[i, j]]).sum::<f64>();
        let held = l.places[0].indices(1).unwrap();
        vec![make(&[a.shape()[0], 2], |i| {
            let below = super::noise(2 * rows[i[0]] + i[1]) * total(i[0]);
            let sums = (0..held.len()).scan(0.0, |s, j| {
                *s += a[[i[0], j]];
                Some(*s)
            });
            held[sums.take_while(|s| *s <= below).count().min(held.len() - 1)] as f64
        })]
    };
    out.push(example("multinomial(samples=2)", "6,6; 4,5", chosen).data(&[Data::Positive]));
    // Three runs.
    let runs = Data::Made(|s, r| {
        let values = r.permutation(9);
        (0..s[0]).map(|i| values[3 * i / s[0]] as f64).collect()
    });
    out.push(
        example("unique_consecutive(count=3)", "6; 9", |l| {
            let mut v: Vec<f64> = x(l, 0).into_iter().collect();
            v.dedup();
            vec![A::from_shape_vec(vec![v.len()], v).expect("a shape")]
        })
        .data(&[runs]),
    );
    let along: &[(&'static str, fn(&[f64]) -> Vec<f64>)] = &[
        ("diff(dim=1)", |v| v.windows(2).map(|w| w[1] - w[0]).collect()),
        ("cumulative_trapezoid(dim=1)", |v| {
            let step = |s: &mut f64, w: &[f64]| {
                *s += f64::midpoint(w[0], w[1]);
                Some(*s)
            };
            v.windows(2).scan(0.0, step).collect()
        }),
        ("gradient(dim=1)", |v| {
            let last = v.len() - 1;
            let near = |i: usize| (i.saturating_sub(1), (i + 1).min(last));
            (0..v.len()).map(|i| (v[near(i).1] - v[near(i).0]) / (near(i).1 - near(i).0) as f64).collect()
        }),
    ];
    for &(call, f) in along {
        out.push(example(call, "6,6; 4,5; 2,3", move |l| vec![lines(&x(l, 0), 1, f)]).near());
    }
    out.push(
        example("trapezoid(dim=1)", "6,6; 4,5; 2,3", |l| {
            vec![fold(&x(l, 0), 1, |v| v.windows(2).map(|w| f64::midpoint(w[0], w[1])).sum())]
        })
        .near(),
    );
    out
}
