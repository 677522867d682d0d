//! Numbers made of nothing.

use std::f64::consts::PI;

use reshard_ops::rules::verify::LocalView;

use super::{A, Example, example, make, noise};

/// Its elements by their numbers.
fn numbered(f: impl Fn(usize) -> f64) -> impl Fn(&LocalView<'_>) -> Vec<A> {
    move |l| {
        let list = l.wanted[0].elements().into_iter().map(&f).collect();
        vec![A::from_shape_vec(l.wanted[0].shape(), list).expect("a shape")]
    }
}

fn triangle(l: &LocalView<'_>, keep: fn(usize, usize) -> bool) -> Vec<A> {
    let list: Vec<[usize; 2]> =
        (0..3).flat_map(|i| (0..4).map(move |j| [i, j])).filter(|p| keep(p[0], p[1])).collect();
    let (rows, columns) = (l.wanted[0].indices(0).unwrap(), l.wanted[0].indices(1).unwrap());
    vec![make(&[rows.len(), columns.len()], |i| list[columns[i[1]]][rows[i[0]]] as f64)]
}

/// `I0`, by its series.
fn bessel(x: f64) -> f64 {
    let step = |term: &mut f64, k: i32| {
        *term *= (x / 2.0 / f64::from(k)).powi(2);
        Some(*term)
    };
    1.0 + (1..30).scan(1.0, step).sum::<f64>()
}

pub fn all() -> Vec<Example> {
    let of_six: &[(&'static str, fn(usize) -> f64)] = &[
        ("linspace(size=6)", |e| -1.0 + 2.0 * e as f64 / 5.0),
        ("logspace(size=6)", |e| 10f64.powf(e as f64 / 5.0)),
        ("bartlett_window(size=6)", |e| 1.0 - (e as f64 / 3.0 - 1.0).abs()),
        ("hann_window(size=6)", |e| 0.5 - 0.5 * (2.0 * PI * e as f64 / 6.0).cos()),
        ("hamming_window(size=6)", |e| 0.54 - 0.46 * (2.0 * PI * e as f64 / 6.0).cos()),
        ("blackman_window(size=6)", |e| {
            let t = 2.0 * PI * e as f64 / 6.0;
            0.42 - 0.5 * t.cos() + 0.08 * (2.0 * t).cos()
        }),
        ("kaiser_window(size=6)", |e| {
            let t = 2.0 * e as f64 / 6.0 - 1.0;
            bessel(12.0 * (1.0 - t * t).sqrt()) / bessel(12.0)
        }),
        ("fftfreq(size=6)", |e| if e < 3 { e as f64 / 6.0 } else { e as f64 / 6.0 - 1.0 }),
        // Six of ten.
        ("rfftfreq(size=10)", |e| e as f64 / 10.0),
        // The order of random numbers.
        ("randperm(size=6)", |e| (0..6).filter(|&k| noise(k) < noise(e)).count() as f64),
        ("randint(shape=[6,5])", |e| (noise(e) * 9.0).floor()),
    ];
    let mut out = Vec::new();
    for &(call, f) in of_six {
        out.push(example(call, "-", numbered(f)).wants());
    }
    out.push(example("tril_indices(rows=3,columns=4)", "-", |l| triangle(l, |i, j| i >= j)).wants());
    out.push(example("triu_indices(rows=3,columns=4)", "-", |l| triangle(l, |i, j| i <= j)).wants());
    out
}
