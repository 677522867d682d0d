//! Steps of optimizers.

use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, x};

/// Element by element: the parameter and the states after a step.
fn step<const N: usize>(l: &LocalView<'_>, f: impl Fn([f64; N]) -> Vec<f64>) -> Vec<A> {
    let inputs: Vec<A> = (0..N).map(|i| x(l, i)).collect();
    assert!(inputs.iter().all(|a| a.shape() == inputs[0].shape()), "one shape");
    let made: Vec<Vec<f64>> = (0..inputs[0].len())
        .map(|e| f(std::array::from_fn(|i| *inputs[i].iter().nth(e).expect("one shape"))))
        .collect();
    (0..N - 1)
        .map(|o| {
            let list = made.iter().map(|outputs| outputs[o]).collect();
            A::from_shape_vec(inputs[0].raw_dim(), list).expect("a shape")
        })
        .collect()
}

pub fn all() -> Vec<Example> {
    let (real, positive) = (Data::Real, Data::Positive);
    let one: &[(&'static str, fn([f64; 3]) -> Vec<f64>, Data)] = &[
        (
            "adagrad",
            |[p, g, s]| {
                let s = s + g * g;
                vec![p - 0.5 * g / (s.sqrt() + 0.1), s]
            },
            positive,
        ),
        (
            "rmsprop",
            |[p, g, v]| {
                let v = 0.9 * v + 0.1 * g * g;
                vec![p - 0.5 * g / (v.sqrt() + 0.1), v]
            },
            positive,
        ),
        (
            "lion",
            |[p, g, m]| {
                let turned = 0.9 * m + 0.1 * g;
                let sign = if turned == 0.0 { 0.0 } else { turned.signum() };
                vec![p - 0.5 * sign, 0.99 * m + 0.01 * g]
            },
            real,
        ),
    ];
    let two: &[(&'static str, fn([f64; 4]) -> Vec<f64>, [Data; 2])] = &[
        (
            "adamax",
            |[p, g, m, u]| {
                let (m, u) = (0.9 * m + 0.1 * g, (0.99 * u).max(g.abs()));
                vec![p - 0.5 * m / (u + 0.1), m, u]
            },
            [real, positive],
        ),
        (
            "nadam",
            |[p, g, m, v]| {
                let (m, v) = (0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g);
                vec![p - 0.5 * (0.9 * m + 0.1 * g) / (v.sqrt() + 0.1), m, v]
            },
            [real, positive],
        ),
        (
            "radam",
            |[p, g, m, v]| {
                let (m, v) = (0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g);
                vec![p - 0.3 * m / (v.sqrt() + 0.1), m, v]
            },
            [real, positive],
        ),
        (
            "adadelta",
            |[p, g, v, d]| {
                let v = 0.9 * v + 0.1 * g * g;
                let by = ((d + 0.1) / (v + 0.1)).sqrt() * g;
                vec![p - by, v, 0.9 * d + 0.1 * by * by]
            },
            [positive, positive],
        ),
        (
            "rprop",
            |[p, g, before, size]| {
                let size = size * if g * before > 0.0 { 1.2 } else { 0.5 };
                vec![p - if g > 0.0 { size } else { -size }, g, size]
            },
            [real, positive],
        ),
    ];
    let mut out = Vec::new();
    for &(name, f, state) in one {
        out.push(
            example(name, "6,5 6,5 6,5; 3 3 3", move |l| step(l, f))
                .data(&[real, real, state])
                .near()
                .budget(300),
        );
    }
    for &(name, f, [a, b]) in two {
        out.push(
            example(name, "6,5 6,5 6,5 6,5; 3 3 3 3", move |l| step(l, f))
                .data(&[real, real, a, b])
                .near()
                .budget(200),
        );
    }
    let amsgrad = |[p, g, m, v, most]: [f64; 5]| {
        let (m, v) = (0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g);
        let most = most.max(v);
        vec![p - 0.5 * m / (most.sqrt() + 0.1), m, v, most]
    };
    out.push(
        example("adam_amsgrad", "6,5 6,5 6,5 6,5 6,5; 3 3 3 3 3", move |l| step(l, amsgrad))
            .data(&[real, real, real, positive, positive])
            .near()
            .budget(200),
    );
    out
}
