//! Normalisations that also give the moments they divided by.

use reshard_ops::rules::verify::{Data, LocalView};

use super::along::{grouped, moments, per_channel};
use super::{A, Example, example, fold, make, x, zip};

fn scaled(l: &LocalView<'_>, y: &A) -> A {
    per_channel(&per_channel(y, &x(l, 1), |a, w| a * w), &x(l, 2), |a, b| a + b)
}

/// Mean and inverse deviation of what a group holds.
fn stats(a: &A, shape: &[usize], group: impl Fn(&[usize]) -> Vec<usize>) -> [A; 2] {
    let of = |i: &[usize]| {
        let list: Vec<f64> = a
            .indexed_iter()
            .filter(|(at, _)| group(ndarray::Dimension::slice(at)) == i)
            .map(|(_, &v)| v)
            .collect();
        moments(&list)
    };
    [make(shape, |i| of(i).0), make(shape, |i| of(i).1)]
}

pub fn all() -> Vec<Example> {
    let three = [Data::Real; 3];
    vec![
        example("native_batch_norm", "6,6,2 6 6; 5,4,3 4 4", |l| {
            let a = x(l, 0);
            let [mean, deviation] = stats(&a, &[a.shape()[1]], |i| vec![i[1]]);
            vec![scaled(l, &grouped(&a, |i| i[1])), mean, deviation]
        })
        .data(&three)
        .near()
        .budget(200),
        // Groups of two channels each, however many there are.
        example("native_group_norm(groups=6)", "6,12,2 12 12; 5,12,3 12 12", |l| {
            let a = x(l, 0);
            assert!(a.shape()[1].is_multiple_of(2));
            let shape = [a.shape()[0], a.shape()[1] / 2];
            let [mean, deviation] = stats(&a, &shape, |i| vec![i[0], i[1] / 2]);
            vec![scaled(l, &grouped(&a, |i| i[0] * 100 + i[1] / 2)), mean, deviation]
        })
        .data(&three)
        .near()
        .budget(200),
        example("fused_rms_norm", "6,6 6; 5,4 4", |l| {
            let (a, w) = (x(l, 0), x(l, 1));
            assert_eq!(a.shape()[1], w.len());
            let square = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>() / v.len() as f64;
            let root = fold(&a, 1, |v| 1.0 / (square(v) + 1e-5).sqrt());
            let y = make(a.shape(), |i| a[i] * root[i[0]]);
            vec![zip(&y, &w, |y, w| y * w), root.insert_axis(ndarray::Axis(1))]
        })
        .data(&three[..2])
        .near(),
    ]
}
