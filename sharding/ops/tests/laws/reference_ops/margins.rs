//! Losses of pairs, margins and several classes, and of sequences.

use ndarray::Axis;
use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, fold, lines, make, x, zip};

/// What is done with the losses: the mean, the sum, or nothing.
fn reduced(e: &A, how: usize) -> Vec<A> {
    let n = e.len() as f64;
    vec![match how {
        0 => make(&[], |_| e.iter().sum::<f64>() / n),
        1 => make(&[], |_| e.iter().sum()),
        _ => e.clone(),
    }]
}

/// Three calls: of the mean, the sum, and all losses.
fn calls(name: &str) -> [&'static str; 3] {
    let leak = |s: String| -> &'static str { Box::leak(s.into_boxed_str()) };
    [leak(name.to_owned()), leak(format!("{name}(reduction=sum)")), leak(format!("{name}(reduction=none)"))]
}

fn dot(a: &A, b: &A) -> A {
    zip(a, b, |a, b| a * b).sum_axis(Axis(1))
}

/// The probability of a sequence of targets, with blanks of class 0 between, over all alignments.
fn aligned(logs: &A, b: usize, targets: &[usize], length: usize) -> f64 {
    let with_blanks: Vec<usize> = std::iter::once(0).chain(targets.iter().flat_map(|&t| [t, 0])).collect();
    let n = with_blanks.len();
    let p = |t: usize, s: usize| logs[[t, b, with_blanks[s]]].exp();
    let mut alpha = vec![0.0; n];
    for t in 0..length {
        let before = alpha.clone();
        for s in 0..n {
            let skips = s > 1 && with_blanks[s] != 0 && with_blanks[s] != with_blanks[s - 2];
            let from = if t == 0 {
                f64::from(u8::from(s < 2))
            } else {
                before[s] + if s > 0 { before[s - 1] } else { 0.0 } + if skips { before[s - 2] } else { 0.0 }
            };
            alpha[s] = from * p(t, s);
        }
    }
    -(alpha[n - 1] + alpha[n.max(2) - 2]).ln()
}

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let signs =
        Data::Made(|s, r| Data::Mask { ones: 50 }.whole(s, r).into_iter().map(|v| 2.0 * v - 1.0).collect());
    let two: &[(&'static str, fn(f64, f64) -> f64, [Data; 2])] = &[
        (
            "huber_loss",
            |a, b| if (a - b).abs() < 1.0 { 0.5 * (a - b).powi(2) } else { (a - b).abs() - 0.5 },
            [Data::Real; 2],
        ),
        ("soft_margin_loss", |a, y| (-y * a).exp().ln_1p(), [Data::Real, signs]),
        ("hinge_embedding_loss", |a, y| if y > 0.0 { a } else { (1.0 - a).max(0.0) }, [Data::Real, signs]),
        ("poisson_nll_loss", |a, y| a.exp() - y * a, [Data::Real, Data::Positive]),
    ];
    for &(name, f, data) in two {
        for (how, call) in calls(name).into_iter().enumerate() {
            let run = move |l: &LocalView<'_>| {
                assert_eq!(l.inputs[0].shape, l.inputs[1].shape);
                reduced(&zip(&x(l, 0), &x(l, 1), f), how)
            };
            out.push(example(call, "6,6 6,6; 5,4 5,4", run).data(&data).near());
        }
    }
    let three: &[(&'static str, fn(f64, f64, f64) -> f64, [Data; 3])] = &[
        (
            "gaussian_nll_loss",
            |m, t, v| 0.5 * (v.ln() + (m - t).powi(2) / v),
            [Data::Real, Data::Real, Data::Positive],
        ),
        ("margin_ranking_loss", |a, b, y| (1.0 - y * (a - b)).max(0.0), [Data::Real, Data::Real, signs]),
    ];
    for &(name, f, data) in three {
        for (how, call) in calls(name).into_iter().enumerate().filter(|(how, _)| how % 2 == 0) {
            let run = move |l: &LocalView<'_>| {
                let (a, b, c) = (x(l, 0), x(l, 1), x(l, 2));
                assert!(a.shape() == b.shape() && b.shape() == c.shape());
                reduced(&make(a.shape(), |i| f(a[i], b[i], c[i])), how)
            };
            out.push(example(call, "6,6 6,6 6,6; 5,4 5,4 5,4", run).data(&data).near().budget(200));
        }
    }
    let classes = Data::Index { below: 4 };
    let masks = Data::Mask { ones: 50 };
    let rows: &[(&'static str, &'static str, fn(&LocalView<'_>) -> A, &[Data])] = &[
        (
            "triplet_margin_loss",
            "6,4 6,4 6,4; 4,3 4,3 4,3",
            |l| {
                let apart = |i: usize| {
                    let d = zip(&x(l, 0), &x(l, i), |a, b| a - b);
                    dot(&d, &d).mapv(f64::sqrt)
                };
                zip(&apart(1), &apart(2), |p, n| (p - n + 1.0).max(0.0))
            },
            &[Data::Real; 3],
        ),
        (
            "cosine_embedding_loss",
            "6,4 6,4 6; 4,3 4,3 4",
            |l| {
                let (a, b) = (x(l, 0), x(l, 1));
                let lengths = zip(&dot(&a, &a), &dot(&b, &b), |a, b| (a * b).sqrt() + 1e-8);
                let cosine = zip(&dot(&a, &b), &lengths, |d, n| d / n);
                assert_eq!(cosine.shape(), l.inputs[2].shape);
                zip(&cosine, &x(l, 2), |c, y| if y > 0.0 { 1.0 - c } else { c.max(0.0) })
            },
            &[Data::Real, Data::Real, signs],
        ),
        (
            "multi_margin_loss",
            "6,4 6; 4,5 4",
            |l| {
                let (a, y) = (x(l, 0), x(l, 1));
                assert_eq!(a.shape()[0], y.len());
                let n = a.shape()[1];
                make(&[y.len()], |i| {
                    let right = a[[i[0], y[i[0]] as usize]];
                    let others = (0..n).filter(|&c| c != y[i[0]] as usize);
                    others.map(|c| (1.0 - right + a[[i[0], c]]).max(0.0)).sum::<f64>() / n as f64
                })
            },
            &[Data::Real, classes],
        ),
        (
            "multilabel_margin_loss",
            "6,4 6,4; 4,5 4,5",
            |l| {
                let (a, y) = (x(l, 0), x(l, 1));
                assert_eq!(a.shape(), y.shape());
                let n = a.shape()[1];
                make(&[a.shape()[0]], |i| {
                    let of = |k: usize| y[[i[0], k]] > 0.5;
                    let pairs =
                        (0..n).flat_map(|j| (0..n).map(move |k| (j, k))).filter(|&(j, k)| of(j) && !of(k));
                    pairs.map(|(j, k)| (1.0 - a[[i[0], j]] + a[[i[0], k]]).max(0.0)).sum::<f64>() / n as f64
                })
            },
            &[Data::Real, masks],
        ),
        (
            "multilabel_soft_margin_loss",
            "6,4 6,4; 4,5 4,5",
            |l| {
                assert_eq!(l.inputs[0].shape, l.inputs[1].shape);
                let e = zip(&x(l, 0), &x(l, 1), |a, y| a.max(0.0) - a * y + (-a.abs()).exp().ln_1p());
                fold(&e, 1, |v| v.iter().sum::<f64>() / v.len() as f64)
            },
            &[Data::Real, masks],
        ),
    ];
    for &(name, shapes, f, data) in rows {
        for (how, call) in calls(name).into_iter().enumerate().filter(|(how, _)| how % 2 == 0) {
            out.push(example(call, shapes, move |l| reduced(&f(l), how)).data(data).near().budget(200));
        }
    }
    let ctc = |how: usize| {
        move |l: &LocalView<'_>| {
            let (logs, targets, lengths, of_targets) = (x(l, 0), x(l, 1), x(l, 2), x(l, 3));
            let b = targets.shape()[0];
            assert!(logs.shape()[1] == b && lengths.len() == b && of_targets.len() == b);
            let losses = make(&[b], |i| {
                let n = of_targets[i] as usize + 1;
                let list: Vec<usize> = (0..n).map(|s| targets[[i[0], s]] as usize + 1).collect();
                let loss = aligned(&logs, i[0], &list, lengths[i] as usize + 3);
                if how == 0 { loss / n as f64 } else { loss }
            });
            reduced(&losses, how)
        }
    };
    for (how, call) in calls("ctc_loss").into_iter().enumerate().filter(|(how, _)| how % 2 == 0) {
        // The shortest sequence of inputs is 3, of targets 1.
        let data = [Data::Real, Data::Index { below: 2 }, Data::Index { below: 2 }, Data::Index { below: 2 }];
        out.push(example(call, "4,6,3 6,2 6 6; 4,4,3 4,2 4 4", ctc(how)).data(&data).near().budget(100));
    }
    // A class for each point of space.
    let spatial = |logits: bool, how: usize| {
        move |l: &LocalView<'_>| {
            let (a, t) = (x(l, 0), x(l, 1));
            let held = l.places[0].indices(1).unwrap();
            assert!(a.shape()[0] == t.shape()[0] && a.shape()[2..] == t.shape()[1..]);
            let p = if logits {
                lines(&a, 1, |v| {
                    let sum = v.iter().map(|x| x.exp()).sum::<f64>().ln();
                    v.iter().map(|x| x - sum).collect()
                })
            } else {
                a
            };
            reduced(
                &make(t.shape(), |i| {
                    let class = held.iter().position(|&c| c as f64 == t[i]);
                    class.map_or(0.0, |c| -p[[i[0], c, i[1]]])
                }),
                how,
            )
        }
    };
    for (logits, name) in [(true, "cross_entropy"), (false, "nll_loss")] {
        for (how, call) in calls(name).into_iter().enumerate().filter(|(how, _)| how % 2 == 0) {
            out.push(
                example(call, "6,4,2 6,2; 4,6,3 4,3", spatial(logits, how))
                    .data(&[Data::Real, classes])
                    .near()
                    .budget(200),
            );
        }
    }
    out
}
