//! Reductions and losses.

use ndarray::Axis;
use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, fold, lines, make, x, zip};

/// The elements over some dims as one number each, from the last dim on; `keep` leaves dims of size 1.
pub fn over(a: &A, dims: &[usize], keep: bool, f: impl Fn(&[f64]) -> f64) -> A {
    let others: Vec<usize> = (0..a.ndim()).filter(|d| !dims.contains(d)).collect();
    let order: Vec<usize> = others.iter().chain(dims).copied().collect();
    let moved = a.clone().permuted_axes(order);
    let outer: Vec<usize> = others.iter().map(|&d| a.shape()[d]).collect();
    let inner: usize = dims.iter().map(|&d| a.shape()[d]).product();
    let all: Vec<f64> = moved.iter().copied().collect();
    let rows: usize = outer.iter().product();
    let list: Vec<f64> = (0..rows).map(|r| f(&all[r * inner..(r + 1) * inner])).collect();
    let shape: Vec<usize> = if keep {
        (0..a.ndim()).map(|d| if dims.contains(&d) { 1 } else { a.shape()[d] }).collect()
    } else {
        outer
    };
    A::from_shape_vec(shape, list).expect("a shape")
}

fn sum(v: &[f64]) -> f64 {
    v.iter().sum()
}
pub fn mean(v: &[f64]) -> f64 {
    sum(v) / v.len() as f64
}
fn max(v: &[f64]) -> f64 {
    v.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
fn min(v: &[f64]) -> f64 {
    v.iter().copied().fold(f64::INFINITY, f64::min)
}
pub fn var(v: &[f64]) -> f64 {
    let m = mean(v);
    v.iter().map(|x| (x - m).powi(2)).sum::<f64>() / (v.len() as f64 - 1.0)
}

/// Where the best one is, as a global index; -1 if there is none.
fn best(v: &[f64], of: &[usize], sign: f64) -> f64 {
    let mut at = None;
    for (i, &x) in v.iter().enumerate() {
        if at.is_none_or(|b: usize| sign * x > sign * v[b]) {
            at = Some(i);
        }
    }
    at.map_or(-1.0, |i| of[i] as f64)
}

pub fn middle(v: &[f64]) -> f64 {
    let mut v = v.to_vec();
    v.sort_by(f64::total_cmp);
    v.get(v.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let whole = |f: fn(&[f64]) -> f64| move |l: &LocalView<'_>| vec![over(&x(l, 0), &[0, 1], false, f)];
    let last = |f: fn(&[f64]) -> f64| move |l: &LocalView<'_>| vec![over(&x(l, 0), &[1], false, f)];
    let kept = |f: fn(&[f64]) -> f64| move |l: &LocalView<'_>| vec![over(&x(l, 0), &[0, 2], true, f)];
    let two = "6,6; 4,5; 2,3; 1,4";
    let three = "6,5,6; 4,3,2";
    let folds: &[(&'static str, &'static str, &'static str, fn(&[f64]) -> f64, Data)] = &[
        ("sum", "sum(dims=[1])", "sum(dims=[0,2],keepdim=true)", sum, Data::Integers),
        ("mean", "mean(dims=[1])", "mean(dims=[0,2],keepdim=true)", mean, Data::Integers),
        ("amax", "amax(dims=[1])", "amax(dims=[0,2],keepdim=true)", max, Data::Real),
        ("amin", "amin(dims=[1])", "amin(dims=[0,2],keepdim=true)", min, Data::Real),
        ("var", "var(dims=[1])", "var(dims=[0,2],keepdim=true)", var, Data::Real),
        ("std", "std(dims=[1])", "std(dims=[0,2],keepdim=true)", |v| var(v).sqrt(), Data::Real),
        (
            "logsumexp",
            "logsumexp(dims=[1])",
            "logsumexp(dims=[0,2],keepdim=true)",
            |v| v.iter().map(|x| x.exp()).sum::<f64>().ln(),
            Data::Real,
        ),
        (
            "count_nonzero",
            "count_nonzero(dims=[1])",
            "count_nonzero(dims=[0,2],keepdim=true)",
            |v| v.iter().filter(|x| **x != 0.0).count() as f64,
            Data::Mask { ones: 60 },
        ),
        (
            "norm",
            "norm(dims=[1])",
            "norm(dims=[0,2],keepdim=true)",
            |v| v.iter().map(|x| x * x).sum::<f64>().sqrt(),
            Data::Real,
        ),
        (
            "norm(p=1)",
            "norm(p=1,dims=[1])",
            "norm(p=1,dims=[0,2],keepdim=true)",
            |v| v.iter().map(|x| x.abs()).sum(),
            Data::Real,
        ),
        (
            "norm(p=inf)",
            "norm(p=inf,dims=[1])",
            "norm(p=inf,dims=[0,2],keepdim=true)",
            |v| v.iter().fold(0.0, |a, x| f64::max(a, x.abs())),
            Data::Real,
        ),
        (
            "norm(p=3)",
            "norm(p=3,dims=[1])",
            "norm(p=3,dims=[0,2],keepdim=true)",
            |v| v.iter().map(|x| x.abs().powi(3)).sum::<f64>().cbrt(),
            Data::Real,
        ),
        (
            "norm(p=-inf)",
            "norm(p=-inf,dims=[1])",
            "norm(p=-inf,dims=[0,2],keepdim=true)",
            |v| v.iter().fold(f64::INFINITY, |a, x| f64::min(a, x.abs())),
            Data::Real,
        ),
        (
            "norm(p=-1)",
            "norm(p=-1,dims=[1])",
            "norm(p=-1,dims=[0,2],keepdim=true)",
            |v| 1.0 / v.iter().map(|x| 1.0 / x.abs()).sum::<f64>(),
            Data::Positive,
        ),
        (
            "norm(p=0)",
            "norm(p=0,dims=[1])",
            "norm(p=0,dims=[0,2],keepdim=true)",
            |v| v.iter().filter(|x| **x != 0.0).count() as f64,
            Data::Mask { ones: 60 },
        ),
    ];
    for &(a, b, c, f, data) in folds {
        out.push(example(a, two, whole(f)).data(&[data]).near());
        out.push(example(b, two, last(f)).data(&[data]).near());
        out.push(example(c, three, kept(f)).data(&[data]).near());
    }
    let power = |p: f64| move |v: &[f64]| v.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p);
    for (call, p) in
        [("linalg_vector_norm(p=2.5)", 2.5), ("linalg_vector_norm(p=0.5)", 0.5), ("linalg_vector_norm", 2.0)]
    {
        let norm = move |l: &LocalView<'_>| vec![over(&x(l, 0), &[0, 1], false, power(p))];
        out.push(example(call, two, norm).data(&[Data::Real]).near());
    }
    let small = Data::Made(|shape, r| {
        Data::Integers
            .whole(shape, r)
            .into_iter()
            .map(|v| {
                if v < -6.0 {
                    -2.0
                } else if v < 0.0 {
                    -1.0
                } else if v < 4.0 {
                    1.5
                } else {
                    1.0
                }
            })
            .collect()
    });
    let product: fn(&[f64]) -> f64 = |v| v.iter().product();
    out.push(example("prod", "6,2; 4,3; 2,3", whole(product)).data(&[small]).near());
    out.push(example("prod(dims=[1])", two, last(product)).data(&[small]).near());
    let truth = |b: bool| f64::from(u8::from(b));
    let some = Data::Mask { ones: 3 };
    let most = Data::Mask { ones: 97 };
    out.push(
        example("any", "6,2; 4,2; 2,3", move |l| {
            vec![over(&x(l, 0), &[0, 1], false, |v| truth(v.contains(&1.0)))]
        })
        .data(&[some]),
    );
    out.push(
        example("any(dims=[1])", two, move |l| {
            vec![over(&x(l, 0), &[1], false, |v| truth(v.contains(&1.0)))]
        })
        .data(&[some]),
    );
    out.push(
        example("all", "6,2; 4,2; 2,3", move |l| {
            vec![over(&x(l, 0), &[0, 1], false, |v| truth(!v.contains(&0.0)))]
        })
        .data(&[most]),
    );
    out.push(
        example("all(dims=[1])", two, move |l| {
            vec![over(&x(l, 0), &[1], false, |v| truth(!v.contains(&0.0)))]
        })
        .data(&[most]),
    );

    for (name, whole, sign) in [("argmax(dim=1)", "argmax", 1.0), ("argmin(dim=1)", "argmin", -1.0)] {
        out.push(
            example(name, "6,6; 4,5", move |l| {
                let of = l.places[0].indices(1).unwrap();
                vec![fold(&x(l, 0), 1, |v| best(v, &of, sign))]
            })
            .data(&[Data::Distinct]),
        );
        out.push(
            example(whole, "6,6; 4,5", move |l| {
                let of = l.places[0].elements();
                vec![over(&x(l, 0), &[0, 1], false, |v| best(v, &of, sign))]
            })
            .data(&[Data::Distinct]),
        );
    }
    for (name, sign) in [("max(dim=0)", 1.0), ("min(dim=0,keepdim=true)", -1.0)] {
        out.push(
            example(name, "6,6; 4,5", move |l| {
                let of = l.places[0].indices(0).unwrap();
                let a = x(l, 0);
                let values =
                    fold(&a, 0, |v| v.iter().map(|x| sign * x).fold(f64::NEG_INFINITY, f64::max) * sign);
                let indices = fold(&a, 0, |v| best(v, &of, sign));
                if sign > 0.0 {
                    vec![values, indices]
                } else {
                    vec![values.insert_axis(Axis(0)), indices.insert_axis(Axis(0))]
                }
            })
            .data(&[Data::Distinct]),
        );
    }
    out.push(
        example("median(dim=1)", "6,6; 4,5", |l| vec![fold(&x(l, 0), 1, middle)]).data(&[Data::Distinct]),
    );

    // Losses.
    let losses: &[([&'static str; 3], fn(f64, f64) -> f64, [Data; 2])] = &[
        (
            ["mse_loss", "mse_loss(reduction=sum)", "mse_loss(reduction=none)"],
            |a, b| (a - b).powi(2),
            [Data::Real; 2],
        ),
        (
            ["l1_loss", "l1_loss(reduction=sum)", "l1_loss(reduction=none)"],
            |a, b| (a - b).abs(),
            [Data::Real; 2],
        ),
        (
            ["smooth_l1_loss", "smooth_l1_loss(reduction=sum)", "smooth_l1_loss(reduction=none)"],
            |a, b| if (a - b).abs() < 1.0 { 0.5 * (a - b).powi(2) } else { (a - b).abs() - 0.5 },
            [Data::Real; 2],
        ),
        (
            [
                "binary_cross_entropy_with_logits",
                "binary_cross_entropy_with_logits(reduction=sum)",
                "binary_cross_entropy_with_logits(reduction=none)",
            ],
            |a, b| a.max(0.0) - a * b + (-a.abs()).exp().ln_1p(),
            [Data::Real, Data::Mask { ones: 50 }],
        ),
        (
            [
                "binary_cross_entropy",
                "binary_cross_entropy(reduction=sum)",
                "binary_cross_entropy(reduction=none)",
            ],
            |p, t| -(t * p.ln() + (1.0 - t) * (1.0 - p).ln()),
            [
                Data::Made(|s, r| Data::Real.whole(s, r).into_iter().map(|v| (v + 3.5) / 7.0).collect()),
                Data::Mask { ones: 50 },
            ],
        ),
        (
            ["kl_div", "kl_div(reduction=sum)", "kl_div(reduction=none)"],
            |a, t| t * (t.ln() - a),
            [Data::Real, Data::Positive],
        ),
    ];
    for (names, f, data) in losses {
        let f = *f;
        for (i, name) in names.iter().enumerate() {
            let run = move |l: &LocalView<'_>| {
                let (a, b) = (x(l, 0), x(l, 1));
                assert_eq!(a.shape(), b.shape());
                let e = zip(&a, &b, f);
                vec![match i {
                    0 => over(&e, &[0, 1], false, mean),
                    1 => over(&e, &[0, 1], false, sum),
                    _ => e,
                }]
            };
            out.push(example(name, "6,6 6,6; 5,4 5,4", run).data(data).near());
        }
    }
    let classes = |logits: bool, how: usize| {
        move |l: &LocalView<'_>| {
            let (a, t) = (x(l, 0), x(l, 1));
            assert_eq!(a.shape()[0], t.len());
            let held = l.places[0].indices(1).unwrap();
            let p = if logits {
                lines(&a, 1, |v| {
                    let sum = v.iter().map(|x| x.exp()).sum::<f64>().ln();
                    v.iter().map(|x| x - sum).collect()
                })
            } else {
                a
            };
            let e = make(&[t.len()], |i| {
                held.iter().position(|&c| c as f64 == t[i]).map_or(0.0, |c| -p[[i[0], c]])
            });
            vec![match how {
                0 => over(&e, &[0], false, mean),
                1 => over(&e, &[0], false, sum),
                _ => e,
            }]
        }
    };
    let names = [
        ["cross_entropy", "cross_entropy(reduction=sum)", "cross_entropy(reduction=none)"],
        ["nll_loss", "nll_loss(reduction=sum)", "nll_loss(reduction=none)"],
    ];
    for (kind, names) in names.into_iter().enumerate() {
        for (how, name) in names.into_iter().enumerate() {
            out.push(
                example(name, "6,5 6; 4,6 4", classes(kind == 0, how))
                    .data(&[Data::Real, Data::Index { below: 5 }])
                    .near(),
            );
        }
    }
    out
}
