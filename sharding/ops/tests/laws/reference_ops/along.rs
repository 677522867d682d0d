//! Along a dim in which everything depends on everything.

use ndarray::Axis;
use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, fold, lines, make, x, zip};

pub fn normalized(v: &[f64]) -> Vec<f64> {
    let (m, d) = moments(v);
    v.iter().map(|x| (x - m) * d).collect()
}

/// Mean and inverse deviation.
pub fn moments(v: &[f64]) -> (f64, f64) {
    let n = v.len() as f64;
    let m = v.iter().sum::<f64>() / n;
    (m, 1.0 / (v.iter().map(|x| (x - m).powi(2)).sum::<f64>() / n + 1e-5).sqrt())
}

/// Along the channels of `bc..`.
pub fn per_channel(a: &A, w: &A, f: impl Fn(f64, f64) -> f64) -> A {
    assert_eq!(a.shape()[1], w.len());
    make(a.shape(), |i| f(a[i], w[i[1]]))
}

/// Normalised over the dims that `group` maps to one number.
pub fn grouped(a: &A, group: impl Fn(&[usize]) -> usize) -> A {
    let mut lists: std::collections::BTreeMap<usize, Vec<f64>> = std::collections::BTreeMap::new();
    for (i, &v) in a.indexed_iter() {
        lists.entry(group(ndarray::Dimension::slice(&i))).or_default().push(v);
    }
    let moments: std::collections::BTreeMap<usize, (f64, f64)> =
        lists.into_iter().map(|(g, v)| (g, moments(&v))).collect();
    make(a.shape(), |i| {
        let (mean, by) = moments[&group(i)];
        (a[i] - mean) * by
    })
}

fn order(v: &[f64]) -> Vec<usize> {
    let mut all: Vec<usize> = (0..v.len()).collect();
    all.sort_by(|&a, &b| v[a].total_cmp(&v[b]));
    all
}

fn scan(v: &[f64], start: f64, f: fn(f64, f64) -> f64) -> Vec<f64> {
    v.iter()
        .scan(start, |s, &x| {
            *s = f(*s, x);
            Some(*s)
        })
        .collect()
}

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let two = "6,6; 4,5; 2,3; 1,4";
    let real: &[(&'static str, fn(&[f64]) -> Vec<f64>)] = &[
        ("softmax(dim=1)", |v| {
            let s: f64 = v.iter().map(|x| x.exp()).sum();
            v.iter().map(|x| x.exp() / s).collect()
        }),
        ("log_softmax(dim=1)", |v| {
            let s: f64 = v.iter().map(|x| x.exp()).sum::<f64>().ln();
            v.iter().map(|x| x - s).collect()
        }),
        ("cumsum(dim=1)", |v| scan(v, 0.0, |a, b| a + b)),
        ("cumprod(dim=1)", |v| scan(v, 1.0, |a, b| a * b)),
        ("cummax(dim=1)", |v| scan(v, f64::NEG_INFINITY, f64::max)),
        ("cummin(dim=1)", |v| scan(v, f64::INFINITY, f64::min)),
        ("logcumsumexp(dim=1)", |v| scan(v, f64::NEG_INFINITY, |a, b| (a.exp() + b.exp()).ln())),
        ("normalize(dim=1)", |v| {
            let n = v.iter().map(|x| x * x).sum::<f64>().sqrt();
            v.iter().map(|x| x / n).collect()
        }),
    ];
    for &(name, f) in real {
        out.push(example(name, two, move |l| vec![lines(&x(l, 0), 1, f)]).data(&[Data::Real]).near());
    }
    let places = |l: &LocalView<'_>, dim: usize, v: &[f64]| -> Vec<f64> {
        let of = l.places[0].indices(dim).unwrap();
        order(v).into_iter().map(|i| of[i] as f64).collect()
    };
    out.push(
        example("sort(dim=0)", "6,6; 5,4", move |l| {
            let a = x(l, 0);
            let sorted = lines(&a, 0, |v| order(v).into_iter().map(|i| v[i]).collect());
            vec![sorted, lines(&a, 0, |v| places(l, 0, v))]
        })
        .data(&[Data::Distinct]),
    );
    out.push(
        example("argsort(dim=0)", "6,6; 5,4", move |l| vec![lines(&x(l, 0), 0, |v| places(l, 0, v))])
            .data(&[Data::Distinct]),
    );
    out.push(
        example("topk(k=2,dim=1)", "6,6; 4,5", move |l| {
            let a = x(l, 0);
            let values = lines(&a, 1, |v| order(v).into_iter().rev().take(2).map(|i| v[i]).collect());
            vec![values, lines(&a, 1, |v| places(l, 1, v).into_iter().rev().take(2).collect())]
        })
        .data(&[Data::Distinct]),
    );
    // Each of three values twice.
    let twice = Data::Made(|shape, r| {
        let n: usize = shape.iter().product();
        let three: Vec<f64> = r.permutation(9).into_iter().take(3).map(|v| v as f64).collect();
        r.permutation(n).into_iter().map(|i| three[i % 3]).collect()
    });
    out.push(
        example("unique(count=3)", "6; 9", |l| {
            let mut v: Vec<f64> = x(l, 0).into_iter().collect();
            v.sort_by(f64::total_cmp);
            v.dedup();
            vec![A::from_shape_vec(vec![v.len()], v).expect("a shape")]
        })
        .data(&[twice]),
    );
    out.push(
        example("fft(dims=[1])", "6,4,2; 5,6,2", |l| {
            let a = x(l, 0);
            let (n, two) = (a.shape()[1], a.shape()[2]);
            assert_eq!(two, 2);
            vec![make(a.shape(), |i| {
                (0..n)
                    .map(|t| {
                        let angle = -2.0 * std::f64::consts::PI * (t * i[1]) as f64 / n as f64;
                        let (s, c) = angle.sin_cos();
                        let (re, im) = (a[[i[0], t, 0]], a[[i[0], t, 1]]);
                        if i[2] == 0 { re * c - im * s } else { re * s + im * c }
                    })
                    .sum()
            })]
        })
        .near(),
    );
    out.push(
        example("clip_by_norm", "6,5; 4,3", |l| {
            let a = x(l, 0);
            let n = a.iter().map(|v| v * v).sum::<f64>().sqrt();
            vec![a.mapv(|v| v * (1.0_f64).min(2.0 / n))]
        })
        .data(&[Data::Real])
        .near(),
    );
    let layer = |l: &LocalView<'_>, root: bool| {
        let a = x(l, 0);
        let d = a.ndim() - 1;
        let mut y = if root {
            lines(&a, d, |v| {
                let s = (v.iter().map(|x| x * x).sum::<f64>() / v.len() as f64 + 1e-5).sqrt();
                v.iter().map(|x| x / s).collect()
            })
        } else {
            lines(&a, d, normalized)
        };
        for i in 1..l.inputs.len() {
            let w = x(l, i);
            assert_eq!(w.shape()[0], a.shape()[d]);
            y = zip(&y, &w, if i == 1 { |a, b| a * b } else { |a, b| a + b });
        }
        y
    };
    let three = "6,6 6 6; 5,4 4 4";
    out.push(example("layer_norm", three, move |l| vec![layer(l, false)]).data(&[Data::Real; 3]).near());
    out.push(
        example("rms_norm", "6,6 6; 5,4 4", move |l| vec![layer(l, true)]).data(&[Data::Real; 2]).near(),
    );
    out.push(
        example("layer_norm(last=2)", "6,2,3; 5,3,2", |l| {
            let a = x(l, 0);
            vec![grouped(&a, |i| i[0])]
        })
        .data(&[Data::Real])
        .near(),
    );
    out.push(
        example("native_layer_norm", three, move |l| {
            let a = x(l, 0);
            let stat = |f: fn((f64, f64)) -> f64| fold(&a, 1, |v| f(moments(v))).insert_axis(Axis(1));
            vec![layer(l, false), stat(|m| m.0), stat(|m| m.1)]
        })
        .data(&[Data::Real; 3])
        .near(),
    );
    let scaled = |l: &LocalView<'_>, y: A| {
        let y = per_channel(&y, &x(l, 1), |a, w| a * w);
        vec![per_channel(&y, &x(l, 2), |a, b| a + b)]
    };
    // Groups of two channels each, however many there are.
    out.push(
        example("group_norm(groups=6)", "6,12,2 12 12; 5,12,3 12 12", move |l| {
            let a = x(l, 0);
            assert_eq!(a.shape()[1] % 2, 0);
            let y = grouped(&a, |i| i[0] * 100 + i[1] / 2);
            scaled(l, y)
        })
        .data(&[Data::Real; 3])
        .near(),
    );
    out.push(
        example("group_norm(groups=3)", "4,6,2 6 6", move |l| {
            let a = x(l, 0);
            let size = 2.min(a.shape()[1].max(1));
            assert_eq!(a.shape()[1] % size, 0);
            let y = grouped(&a, |i| i[0] * 100 + i[1] / size);
            scaled(l, y)
        })
        .data(&[Data::Real; 3])
        .near(),
    );
    out.push(
        example("batch_norm", "6,6,2 6 6; 5,4,3 4 4", move |l| scaled(l, grouped(&x(l, 0), |i| i[1])))
            .data(&[Data::Real; 3])
            .near(),
    );
    out.push(
        example("instance_norm", "6,6,3 6 6; 5,4,4 4 4", move |l| {
            scaled(l, grouped(&x(l, 0), |i| i[0] * 100 + i[1]))
        })
        .data(&[Data::Real; 3])
        .near(),
    );
    out.push(
        example("batch_norm(training=false)", "6,6,2 6 6 6 6; 5,4,3 4 4 4 4", move |l| {
            let y = per_channel(&x(l, 0), &x(l, 3), |a, m| a - m);
            scaled(l, per_channel(&y, &x(l, 4), |a, v| a / (v + 1e-5).sqrt()))
        })
        .data(&[Data::Real, Data::Real, Data::Real, Data::Real, Data::Positive])
        .near(),
    );
    out
}
