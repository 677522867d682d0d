//! Random numbers: the same function of the global index on every rank.

use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, make, noise, x, zip};

/// The noise of every element of an input, in its shape.
fn noise_of(l: &LocalView<'_>, i: usize) -> A {
    let list = l.places[i].elements().into_iter().map(noise).collect();
    A::from_shape_vec(l.inputs[i].shape.clone(), list).expect("a shape")
}

/// Nearly normal, of mean 0.
fn bell(u: f64) -> f64 {
    (u / (1.0 - u)).ln() / 1.7
}

/// How many of some numbers lie below a probability.
fn count_below(element: usize, n: usize, p: f64) -> f64 {
    (0..n).filter(|i| noise(element * 16 + i) < p).count() as f64
}

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let shapes = "6,5; 2,3";
    let drawn: &[(&'static str, fn(f64) -> f64)] = &[
        ("randn_like", bell),
        ("randint_like", |u| (9.0 * u).floor()),
        ("uniform", |u| 2.0 * u - 1.0),
        ("exponential", |u| -u.ln()),
        ("geometric", |u| (u.ln() / 0.5f64.ln()).ceil()),
        ("log_normal", |u| bell(u).exp()),
        ("cauchy", |u| (std::f64::consts::PI * (u - 0.5)).tan()),
        ("random", |u| (100.0 * u).floor()),
    ];
    for &(name, f) in drawn {
        out.push(example(name, shapes, move |l| vec![noise_of(l, 0).mapv(f)]).idle());
    }
    let elements = |l: &LocalView<'_>| {
        let list = l.places[0].elements().into_iter().map(|e| e as f64).collect();
        A::from_shape_vec(l.inputs[0].shape.clone(), list).expect("a shape")
    };
    let rates = Data::Made(|shape, r| Data::Positive.whole(shape, r).into_iter().map(|v| v / 4.0).collect());
    let poisson = move |l: &LocalView<'_>| {
        vec![zip(&x(l, 0), &elements(l), |rate, e| count_below(e as usize, 16, rate / 2.0))]
    };
    out.push(example("poisson", "6,5; 4,3", poisson).data(&[rates]));
    let binomial = move |l: &LocalView<'_>| {
        let both = zip(&x(l, 0), &elements(l), |n, e| 100.0 * e + n);
        vec![zip(&both, &x(l, 1), |b, p| count_below(b as usize / 100, b as usize % 100, p))]
    };
    let counts =
        Data::Made(|shape, r| (0..shape.iter().product()).map(|_| 4.0 + r.below(9) as f64).collect());
    let chance =
        Data::Made(|shape, r| Data::Real.whole(shape, r).into_iter().map(|v| (v + 3.5) / 7.0).collect());
    out.push(example("binomial", "6,5 6,5; 4,3 4,3", binomial).data(&[counts, chance]));
    let normal = |l: &LocalView<'_>| {
        let moved = zip(&noise_of(l, 0).mapv(bell), &x(l, 1), |z, s| z * s);
        vec![zip(&x(l, 0), &moved, |m, d| m + d)]
    };
    out.push(example("normal", "6,5 6,5; 2,3 2,3", normal).data(&[Data::Real; 2]).near());
    let leaky = |l: &LocalView<'_>| {
        vec![zip(&x(l, 0), &noise_of(l, 0), |v, u| if v > 0.0 { v } else { v * (0.125 + 0.2 * u) })]
    };
    out.push(example("rrelu", shapes, leaky).data(&[Data::Real]).near());
    let alpha = |l: &LocalView<'_>| {
        vec![zip(&x(l, 0), &noise_of(l, 0), |v, u| if u < 0.5 { 0.5 * v + 0.25 } else { -1.5 })]
    };
    out.push(example("alpha_dropout", shapes, alpha).data(&[Data::Real]));
    let by_channel = |dropped: fn(f64, bool) -> f64| {
        move |l: &LocalView<'_>| {
            let a = x(l, 0);
            let (b, c) = (l.places[0].indices(0).unwrap(), l.places[0].indices(1).unwrap());
            vec![make(a.shape(), |i| dropped(a[i], noise(b[i[0]] * 100 + c[i[1]]) < 0.5))]
        }
    };
    let of_channels = "6,5,2; 2,3,3";
    out.push(
        example("feature_dropout", of_channels, by_channel(|v, keep| if keep { 2.0 * v } else { 0.0 }))
            .data(&[Data::Real]),
    );
    out.push(
        example(
            "feature_alpha_dropout",
            of_channels,
            by_channel(|v, keep| if keep { v + 0.5 } else { -1.5 }),
        )
        .data(&[Data::Real]),
    );
    out
}
