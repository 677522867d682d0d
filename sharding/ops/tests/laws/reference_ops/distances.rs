//! Distances, grids and blocks.

use ndarray::Axis;
use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, fold, make, x, zip};

fn norm(p: &'static str, v: impl Iterator<Item = f64>) -> f64 {
    match p {
        "1" => v.map(f64::abs).sum(),
        "inf" => v.fold(0.0, |a, b| a.max(b.abs())),
        _ => v.map(|x| x * x).sum::<f64>().sqrt(),
    }
}

fn between(l: &LocalView<'_>, p: &'static str) -> Vec<A> {
    let (a, b) = (x(l, 0), x(l, 1));
    assert_eq!(a.shape()[1], b.shape()[1]);
    vec![make(&[a.shape()[0], b.shape()[0]], |i| {
        norm(p, (0..a.shape()[1]).map(|k| a[[i[0], k]] - b[[i[1], k]]))
    })]
}

fn rows_apart(l: &LocalView<'_>, p: &'static str) -> Vec<A> {
    let d = zip(&x(l, 0), &x(l, 1), |a, b| a - b);
    vec![fold(&d, 1, |v| norm(p, v.iter().copied()))]
}

fn all_pairs(l: &LocalView<'_>, p: &'static str) -> Vec<A> {
    let a = x(l, 0);
    let n = a.shape()[0];
    let at = |i: usize, j: usize| norm(p, (0..a.shape()[1]).map(|k| a[[i, k]] - a[[j, k]]));
    let list: Vec<f64> =
        (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).map(|(i, j)| at(i, j)).collect();
    vec![A::from_shape_vec(vec![list.len()], list).expect("a shape")]
}

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let real = [Data::Real; 2];
    let calls: &[(&'static str, &'static str, &'static str, fn(&LocalView<'_>, &'static str) -> Vec<A>)] = &[
        ("cdist", "2", "6,5 4,5; 3,6 6,6", between),
        ("cdist(p=1)", "1", "6,5 4,5; 3,6 6,6", between),
        ("cdist(p=inf)", "inf", "6,5 4,5; 3,6 6,6", between),
        ("pairwise_distance", "2", "6,5 6,5; 2,6 2,6", rows_apart),
        ("pairwise_distance(p=1)", "1", "6,5 6,5; 2,6 2,6", rows_apart),
    ];
    for &(call, p, shapes, f) in calls {
        out.push(example(call, shapes, move |l| f(l, p)).data(&real).near().budget(300));
    }
    for (call, p) in [("dist", "2"), ("dist(p=1)", "1"), ("dist(p=inf)", "inf")] {
        let run = move |l: &LocalView<'_>| {
            let d = zip(&x(l, 0), &x(l, 1), |a, b| a - b);
            vec![make(&[], |_| norm(p, d.iter().copied()))]
        };
        out.push(example(call, "6,2 6,2; 5,3 5,3", run).data(&real).near());
    }
    for (call, p) in [("pdist", "2"), ("pdist(p=1)", "1"), ("pdist(p=inf)", "inf")] {
        out.push(example(call, "4,6; 3,5", move |l| all_pairs(l, p)).data(&real[..1]).near());
    }
    out.push(
        example("cosine_similarity", "6,5 6,5; 2,3 2,3", |l| {
            let (a, b) = (x(l, 0), x(l, 1));
            let dot = |a: &A, b: &A| zip(a, b, |a, b| a * b).sum_axis(Axis(1));
            let lengths = zip(&dot(&a, &a), &dot(&b, &b), |a, b| (a * b).sqrt() + 1e-8);
            vec![zip(&dot(&a, &b), &lengths, |d, n| d / n)]
        })
        .data(&real)
        .near(),
    );
    let shorter = |l: &LocalView<'_>| {
        let a = x(l, 0);
        let n = fold(&a, 1, |v| norm("2", v.iter().copied()));
        vec![make(a.shape(), |i| a[i] * (2.0 / (n[i[0]] + 1e-7)).min(1.0))]
    };
    out.push(example("renorm(dim=0)", "6,5; 2,3", shorter).data(&real[..1]).near());
    out.push(
        example("weight_norm", "6,5 6,1; 2,3 2,1", |l| {
            let (v, g) = (x(l, 0), x(l, 1));
            let n = fold(&v, 1, |v| norm("2", v.iter().copied()));
            assert_eq!(g.shape(), &[v.shape()[0], 1]);
            vec![make(v.shape(), |i| v[i] * g[[i[0], 0]] / (n[i[0]] + 1e-7))]
        })
        .data(&real)
        .near(),
    );
    out.push(example("meshgrid", "6 5; 2 6", |l| {
        let (a, b) = (x(l, 0), x(l, 1));
        let shape = [a.len(), b.len()];
        vec![make(&shape, |i| a[i[0]]), make(&shape, |i| b[i[1]])]
    }));
    out.push(example("cartesian_prod", "6 6; 4 12; 2 3", |l| {
        let (a, b) = (x(l, 0), x(l, 1));
        let n = b.len();
        vec![make(&[a.len() * n, 2], |i| if i[1] == 0 { a[i[0] / n] } else { b[i[0] % n] })]
    }));
    out.push(example("block_diag", "2,3 1,2; 3,1 2,2", |l| {
        let (a, b) = (x(l, 0), x(l, 1));
        let (rows, columns) = (a.shape()[0], a.shape()[1]);
        vec![make(&[rows + b.shape()[0], columns + b.shape()[1]], |i| match (i[0] < rows, i[1] < columns) {
            (true, true) => a[[i[0], i[1]]],
            (false, false) => b[[i[0] - rows, i[1] - columns]],
            _ => 0.0,
        })]
    }));
    out
}
