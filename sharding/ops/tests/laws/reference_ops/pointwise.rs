//! Element by element.

use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, noise, x, zip};

/// The error function by its series, or as its limit.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut sum, mut term) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    if x > 30.0 { x } else { x.exp().ln_1p() }
}

fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

fn truth(b: bool) -> f64 {
    f64::from(u8::from(b))
}

fn elu(x: f64) -> f64 {
    if x > 0.0 { x } else { x.exp_m1() }
}

/// The global index of every element of an input.
fn elements(l: &LocalView<'_>, i: usize) -> Vec<usize> {
    l.places[i].elements()
}

fn dropped(l: &LocalView<'_>) -> (A, A) {
    let a = x(l, 0);
    let of = elements(l, 0);
    let keep: Vec<bool> = of.into_iter().map(|e| noise(e) < 0.5).collect();
    let data = |f: &dyn Fn(f64, bool) -> f64| {
        let list: Vec<f64> = a.iter().zip(&keep).map(|(&v, &k)| f(v, k)).collect();
        A::from_shape_vec(a.raw_dim(), list).expect("a shape")
    };
    (data(&|v, k| if k { 2.0 * v } else { 0.0 }), data(&|_, k| truth(k)))
}

const SHAPES: &str = "6,5; 2,3";
const TWO: &str = "6,5 6,5; 2,3 2,3; 5,4 4; 5,4 5,1; 1,4 6,1";
const THREE: &str = "6,5 6,5 6,5; 2,3 2,3 2,3";

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let real: &[(&'static str, fn(f64) -> f64)] = &[
        ("relu", |x| x.max(0.0)),
        ("relu6", |x| x.clamp(0.0, 6.0)),
        ("exp", f64::exp),
        ("expm1", f64::exp_m1),
        ("sigmoid", sigmoid),
        ("tanh", f64::tanh),
        ("sinh", f64::sinh),
        ("asinh", f64::asinh),
        ("atan", f64::atan),
        ("erf", erf),
        ("erfc", |x| 1.0 - erf(x)),
        ("floor", f64::floor),
        ("ceil", f64::ceil),
        ("round", f64::round),
        ("trunc", f64::trunc),
        ("sign", sign),
        ("leaky_relu", |x| if x > 0.0 { x } else { 0.01 * x }),
        ("elu", elu),
        ("celu", elu),
        ("selu", |x| 1.05 * if x > 0.0 { x } else { 1.67 * x.exp_m1() }),
        ("softplus", softplus),
        ("hardtanh", |x| x.clamp(-1.0, 1.0)),
        ("clamp", |x| x.clamp(-2.0, 1.5)),
        ("hardsigmoid", |x| (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        ("log_sigmoid", |x| -softplus(-x)),
        ("hardshrink", |x| if x.abs() > 0.5 { x } else { 0.0 }),
        ("softshrink", |x| {
            if x > 0.5 {
                x - 0.5
            } else if x < -0.5 {
                x + 0.5
            } else {
                0.0
            }
        }),
        ("tanhshrink", |x| x - x.tanh()),
        ("cbrt", f64::cbrt),
        ("sin", f64::sin),
        ("cos", f64::cos),
        ("tan", f64::tan),
        ("cosh", f64::cosh),
        ("gelu", |x| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))),
        ("silu", |x| x * sigmoid(x)),
        ("mish", |x| x * softplus(x).tanh()),
        ("hardswish", |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
        ("softsign", |x| x / (1.0 + x.abs())),
        ("threshold", |x| if x > 1.0 { x } else { 5.0 }),
        ("frac", f64::fract),
        ("pow_scalar", |x| x.powi(2) + 0.0),
        ("abs", f64::abs),
        ("square", |x| x * x),
        ("neg", |x| -x),
        ("add_scalar", |x| x + 3.0),
        ("sub_scalar", |x| x - 3.0),
        ("rsub_scalar", |x| 3.0 - x),
        ("mul_scalar", |x| -2.0 * x),
        ("div_scalar", |x| x / 2.0),
        ("copy", |x| x),
        ("clone", |x| x),
        ("detach", |x| x),
        ("contiguous", |x| x),
        ("cast", |x| x),
    ];
    for &(name, f) in real {
        out.push(example(name, SHAPES, move |l| vec![x(l, 0).mapv(f)]).data(&[Data::Real]).near());
    }
    let positive: &[(&'static str, fn(f64) -> f64)] = &[
        ("log", f64::ln),
        ("log2", f64::log2),
        ("log10", f64::log10),
        ("log1p", f64::ln_1p),
        ("sqrt", f64::sqrt),
        ("rsqrt", |x| 1.0 / x.sqrt()),
        ("reciprocal", |x| 1.0 / x),
    ];
    for &(name, f) in positive {
        // Terms are unbounded: the identity of an empty shard is one of them.
        let data = Data::Made(|shape, r| Data::Positive.whole(shape, r));
        out.push(example(name, SHAPES, move |l| vec![x(l, 0).mapv(f)]).data(&[data]).near());
    }
    let unit: &[(&'static str, fn(f64) -> f64)] =
        &[("asin", f64::asin), ("acos", f64::acos), ("atanh", f64::atanh)];
    for &(name, f) in unit {
        let data = Data::Made(|shape, r| Data::Real.whole(shape, r).into_iter().map(|v| v / 4.0).collect());
        out.push(example(name, SHAPES, move |l| vec![x(l, 0).mapv(f)]).data(&[data]).near());
    }
    // Some numbers are no numbers, or infinite.
    let odd = Data::Made(|shape, r| {
        let list = Data::Real.whole(shape, r).into_iter();
        list.map(|v| {
            if v > 1.5 {
                f64::INFINITY
            } else if v < -1.5 {
                f64::NAN
            } else {
                v
            }
        })
        .collect()
    });
    let tests: &[(&'static str, fn(f64) -> f64)] = &[
        ("isnan", |x| truth(x.is_nan())),
        ("isinf", |x| truth(x.is_infinite())),
        ("isfinite", |x| truth(x.is_finite())),
        ("nan_to_num", |x| if x.is_nan() { 0.0 } else { x.clamp(-1e9, 1e9) }),
    ];
    for &(name, f) in tests {
        out.push(example(name, "6,5; 4,3", move |l| vec![x(l, 0).mapv(f)]).data(&[odd]));
    }
    let mask = Data::Mask { ones: 50 };
    out.push(example("logical_not", SHAPES, |l| vec![x(l, 0).mapv(|v| 1.0 - v)]).data(&[mask]));
    for (name, value) in [("zeros_like", 0.0), ("ones_like", 1.0), ("full_like", 7.0)] {
        out.push(example(name, SHAPES, move |l| vec![x(l, 0).mapv(|_| value)]).constant());
    }
    let random = |l: &LocalView<'_>| {
        let list = elements(l, 0).into_iter().map(noise).collect();
        vec![A::from_shape_vec(x(l, 0).raw_dim(), list).expect("a shape")]
    };
    out.push(example("rand_like", SHAPES, random).idle());
    out.push(example("dropout", SHAPES, |l| vec![dropped(l).0]).data(&[Data::Real]));
    out.push(
        example("native_dropout", "6,5; 5,4", |l| {
            let (a, b) = dropped(l);
            vec![a, b]
        })
        .data(&[Data::Real]),
    );
    let chance =
        Data::Made(|shape, r| Data::Real.whole(shape, r).into_iter().map(|v| (v + 3.0) / 6.0).collect());
    let bernoulli = |l: &LocalView<'_>| {
        let a = x(l, 0);
        let list = a.iter().zip(elements(l, 0)).map(|(&p, e)| truth(noise(e) < p)).collect();
        vec![A::from_shape_vec(a.raw_dim(), list).expect("a shape")]
    };
    out.push(example("bernoulli", "6,5; 4,3", bernoulli).data(&[chance]));

    let binary: &[(&'static str, fn(f64, f64) -> f64)] = &[
        ("add", |a, b| a + b),
        ("sub", |a, b| a - b),
        ("mul", |a, b| a * b),
        ("maximum", f64::max),
        ("minimum", f64::min),
        ("atan2", f64::atan2),
        ("hypot", f64::hypot),
        ("copysign", f64::copysign),
        ("eq", |a, b| truth(a.floor() == b.floor())),
        ("ne", |a, b| truth(a.floor() != b.floor())),
        ("lt", |a, b| truth(a < b)),
        ("le", |a, b| truth(a <= b)),
        ("gt", |a, b| truth(a > b)),
        ("ge", |a, b| truth(a >= b)),
        ("logaddexp", |a, b| {
            let m = a.max(b);
            if m.is_infinite() { m } else { m + ((a - m).exp() + (b - m).exp()).ln() }
        }),
        ("sgd", |p, g| p - 0.5 * g),
    ];
    for &(name, f) in binary {
        let run = move |l: &LocalView<'_>| vec![zip(&x(l, 0), &x(l, 1), f)];
        out.push(example(name, TWO, run).data(&[Data::Real, Data::Real]).near());
    }
    let divisors: &[(&'static str, fn(f64, f64) -> f64)] = &[
        ("div", |a, b| a / b),
        ("fmod", |a, b| a % b),
        ("remainder", f64::rem_euclid),
        ("floor_divide", |a, b| (a / b).floor()),
        ("pow", |a, b| a.abs().powf(b)),
        ("xlogy", |a, b| if a == 0.0 { 0.0 } else { a * b.ln() }),
    ];
    for &(name, f) in divisors {
        let run = move |l: &LocalView<'_>| vec![zip(&x(l, 0), &x(l, 1), f)];
        out.push(example(name, TWO, run).data(&[Data::Real, Data::Positive]).near());
    }
    let logic: &[(&'static str, fn(f64, f64) -> f64)] =
        &[("logical_and", f64::min), ("logical_or", f64::max), ("logical_xor", |a, b| truth(a != b))];
    for &(name, f) in logic {
        let run = move |l: &LocalView<'_>| vec![zip(&x(l, 0), &x(l, 1), f)];
        out.push(example(name, TWO, run).data(&[mask, mask]));
    }
    out.push(example("copy_", "6,5 6,5; 2,3 2,3", |l| vec![zip(&x(l, 0), &x(l, 1), |_, b| b)]).idle());

    let choose = |l: &LocalView<'_>| {
        let (c, a, b) = (x(l, 0), x(l, 1), x(l, 2));
        let left = zip(&c, &a, |c, a| if c > 0.5 { a } else { f64::NAN });
        vec![zip(&left, &zip(&c, &b, |c, b| if c > 0.5 { f64::NAN } else { b }), |a, b| {
            if a.is_nan() { b } else { a }
        })]
    };
    let three = "6,5 6,5 6,5; 2,3 2,3 2,3; 5,4 4 5,1";
    out.push(example("where", three, choose).data(&[mask, Data::Real, Data::Real]));
    fn ternary(l: &LocalView<'_>, f: fn(f64, f64, f64) -> f64) -> Vec<A> {
        let (a, b, c) = (x(l, 0), x(l, 1), x(l, 2));
        assert!(a.shape() == b.shape() && b.shape() == c.shape(), "one shape");
        let list = a.iter().zip(&b).zip(&c).map(|((&a, &b), &c)| f(a, b, c)).collect();
        vec![A::from_shape_vec(a.raw_dim(), list).expect("a shape")]
    }
    let triple: &[(&'static str, fn(f64, f64, f64) -> f64)] = &[
        ("lerp", |a, b, w| a + w * (b - a)),
        ("addcmul", |a, b, c| a + 0.5 * b * c),
        ("clamp_tensor", |a, lo, hi| a.max(lo).min(hi)),
    ];
    for &(name, f) in triple {
        out.push(example(name, THREE, move |l| ternary(l, f)).data(&[Data::Real; 3]).near());
    }
    let addcdiv = |l: &LocalView<'_>| ternary(l, |a, b, c| a + 0.5 * b / c);
    out.push(example("addcdiv", THREE, addcdiv).data(&[Data::Real, Data::Real, Data::Positive]).near());

    let momentum = |l: &LocalView<'_>| {
        let m = zip(&x(l, 1), &x(l, 2), |g, m| 0.5 * m + g);
        vec![zip(&x(l, 0), &m, |p, m| p - 0.25 * m), m]
    };
    out.push(example("sgd_momentum", THREE, momentum).data(&[Data::Real; 3]).near());
    for (name, decay) in [("adam", 0.0), ("adamw", 0.1)] {
        let adam = move |l: &LocalView<'_>| {
            let g = x(l, 1);
            let m = zip(&x(l, 2), &g, |m, g| 0.9 * m + 0.1 * g);
            let v = zip(&x(l, 3), &g, |v, g| 0.99 * v + 0.01 * g * g);
            let step = zip(&m, &v, |m, v| m / (v.sqrt() + 0.1));
            vec![zip(&x(l, 0), &step, |p, s| p * (1.0 - decay) - 0.5 * s), m, v]
        };
        let data = [Data::Real, Data::Real, Data::Real, Data::Positive];
        out.push(example(name, "6,5 6,5 6,5 6,5; 3 3 3 3", adam).data(&data).near().budget(300));
    }
    out.push(
        example("scale_by_norm", "6,5 (); 2,3 ()", |l| {
            let n = x(l, 1);
            vec![zip(&x(l, 0), &n, |a, n| a * (1.0_f64).min(2.0 / n))]
        })
        .data(&[Data::Real, Data::Positive])
        .near(),
    );
    for (name, value) in
        [("masked_fill(value=0)", 0.0), ("masked_fill(value=1)", 1.0), ("masked_fill(value=-5)", -5.0)]
    {
        let fill =
            move |l: &LocalView<'_>| vec![zip(&x(l, 0), &x(l, 1), |a, m| if m > 0.5 { value } else { a })];
        out.push(example(name, "6,5 6,5; 2,3 2,3; 5,4 4", fill).data(&[Data::Real, mask]));
    }
    out
}
