//! Element by element: bits, truth values, steps, scales and complex numbers, which lie in a last dim of two.

use ndarray::{Axis, stack};
use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, make, x, zip};

fn truth(b: bool) -> f64 {
    f64::from(u8::from(b))
}

fn bits(f: fn(i64, i64) -> i64) -> impl Fn(f64, f64) -> f64 {
    move |a, b| f(a as i64, b as i64) as f64
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

fn next_after(a: f64, b: f64) -> f64 {
    match a.total_cmp(&b) {
        std::cmp::Ordering::Less => a.next_up(),
        std::cmp::Ordering::Equal => a,
        std::cmp::Ordering::Greater => a.next_down(),
    }
}

/// Two arrays as a last dim of two.
fn pair(a: &A, b: &A) -> A {
    let a_there = zip(a, b, |a, _| a);
    let b_there = zip(a, b, |_, b| b);
    stack(Axis(a_there.ndim()), &[a_there.view(), b_there.view()]).expect("one shape")
}

fn part(a: &A, i: usize) -> A {
    let last = a.ndim() - 1;
    assert_eq!(a.shape()[last], 2);
    a.index_axis(Axis(last), i).to_owned()
}

const ONE: &str = "6,5; 2,3";
const TWO: &str = "6,5 6,5; 2,3 3";

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let infinite = Data::Made(|shape, r| {
        let odd = |v: f64| if v.abs() > 6.0 { v.signum() * f64::INFINITY } else { v };
        Data::Integers.whole(shape, r).into_iter().map(odd).collect()
    });
    let beyond_one =
        Data::Made(|shape, r| Data::Positive.whole(shape, r).into_iter().map(|v| v + 1.0).collect());
    let one: &[(&'static str, fn(f64) -> f64, Data)] = &[
        ("clamp_min", |x| x.max(-1.0), Data::Real),
        ("clamp_max", |x| x.min(1.0), Data::Real),
        ("isposinf", |x| truth(x == f64::INFINITY), infinite),
        ("isneginf", |x| truth(x == f64::NEG_INFINITY), infinite),
        ("signbit", |x| truth(x < 0.0), Data::Real),
        ("angle", |x| if x < 0.0 { std::f64::consts::PI } else { 0.0 }, Data::Real),
        ("exp2", f64::exp2, Data::Real),
        ("deg2rad", f64::to_radians, Data::Real),
        ("rad2deg", f64::to_degrees, Data::Real),
        ("positive", |x| x, Data::Real),
        ("bitwise_not", |x| -1.0 - x, Data::Integers),
        ("acosh", f64::acosh, beyond_one),
    ];
    for &(name, f, data) in one {
        out.push(example(name, ONE, move |l| vec![x(l, 0).mapv(f)]).data(&[data]).near());
    }
    // Whole numbers from 0 to 15.
    let small = Data::Index { below: 16 };
    let whole: &[(&'static str, fn(i64, i64) -> i64)] = &[
        ("bitwise_and", |a, b| a & b),
        ("bitwise_or", |a, b| a | b),
        ("bitwise_xor", |a, b| a ^ b),
        ("gcd", gcd),
        ("lcm", |a, b| if a * b == 0 { 0 } else { a * b / gcd(a, b) }),
    ];
    for &(name, f) in whole {
        let run = move |l: &LocalView<'_>| vec![zip(&x(l, 0), &x(l, 1), bits(f))];
        out.push(example(name, TWO, run).data(&[small; 2]));
    }
    let (some, shift) = (Data::Integers, Data::Index { below: 4 });
    let steps = Data::Made(|shape, r| {
        Data::Integers.whole(shape, r).into_iter().map(|v| (v / 4.0).trunc()).collect()
    });
    let two: &[(&'static str, fn(f64, f64) -> f64, [Data; 2])] = &[
        ("bitwise_left_shift", |a, n| a * n.exp2(), [some, shift]),
        ("bitwise_right_shift", |a, n| (a * (-n).exp2()).floor(), [some, shift]),
        ("ldexp", |a, n| a * n.exp2(), [Data::Real, some]),
        ("heaviside", |a, v| if a == 0.0 { v } else { truth(a > 0.0) }, [steps, Data::Real]),
        ("fmax", f64::max, [Data::Real; 2]),
        ("fmin", f64::min, [Data::Real; 2]),
        ("isclose", |a, b| truth((a - b).abs() <= 1.0 + 0.25 * b.abs()), [Data::Real; 2]),
        (
            "logaddexp2",
            |a, b| {
                let m = a.max(b);
                if m.is_infinite() { m } else { m + ((a - m).exp2() + (b - m).exp2()).log2() }
            },
            [Data::Real; 2],
        ),
    ];
    for &(name, f, data) in two {
        let run = move |l: &LocalView<'_>| vec![zip(&x(l, 0), &x(l, 1), f)];
        out.push(example(name, TWO, run).data(&data).near());
    }
    // To the last bit, which is all that it changes.
    let after = |l: &LocalView<'_>| vec![zip(&x(l, 0), &x(l, 1), next_after)];
    out.push(example("nextafter", TWO, after).data(&[Data::Real; 2]));
    out.push(
        example("frexp", ONE, |l| {
            let a = x(l, 0);
            let exponent = |v: f64| if v == 0.0 { 0.0 } else { v.abs().log2().floor() + 1.0 };
            vec![a.mapv(|v| v * (-exponent(v)).exp2()), a.mapv(exponent)]
        })
        .data(&[Data::Real]),
    );
    let fma = |l: &LocalView<'_>| vec![zip(&zip(&x(l, 0), &x(l, 1), |a, b| a * b), &x(l, 2), |a, b| a + b)];
    out.push(example("fma", "6,5 6,5 6,5; 2,3 3 2,3", fma).data(&[Data::Real; 3]).near().budget(300));
    out.push(
        example("prelu", "6,5,2 5; 2,3,2 3", |l| {
            let (a, w) = (x(l, 0), x(l, 1));
            assert_eq!(a.shape()[1], w.len());
            vec![make(a.shape(), |i| if a[i] > 0.0 { a[i] } else { w[i[1]] * a[i] })]
        })
        .data(&[Data::Real; 2]),
    );
    out.push(example("complex", TWO, |l| vec![pair(&x(l, 0), &x(l, 1))]).data(&[Data::Real; 2]));
    let polar = |l: &LocalView<'_>| {
        let (r, t) = (x(l, 0), x(l, 1));
        vec![pair(&zip(&r, &t, |r, t| r * t.cos()), &zip(&r, &t, |r, t| r * t.sin()))]
    };
    out.push(example("polar", TWO, polar).data(&[Data::Real; 2]).near());
    let pairs = "6,5,2; 2,3,2";
    out.push(example("real", pairs, |l| vec![part(&x(l, 0), 0)]));
    out.push(example("imag", pairs, |l| vec![part(&x(l, 0), 1)]));
    out.push(example("conj", pairs, |l| vec![pair(&part(&x(l, 0), 0), &part(&x(l, 0), 1).mapv(|v| -v))]));
    out
}
