//! Element by element.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use libm::{erf, erfc};

use super::Body::{By, One, Two};
use super::Ops;
use crate::arrays::truth;
use crate::ask::{Ask, Made};

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `log(1 + exp(x))`, which equals x for large x.
fn softplus(x: f64) -> f64 {
    if x > 30.0 { x } else { x.exp().ln_1p() }
}

pub(crate) fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

/// Rounds to the nearest, and ties to even.
fn round(r: &Ask<'_>) -> Made {
    let by = 10f64.powi(r.number("decimals")?.clamp(-300, 300) as i32);
    r.map(&|x| (x * by).round_ties_even() / by)
}

fn gelu(r: &Ask<'_>) -> Made {
    let tanh = r.word("approximate")? == "tanh";
    r.map(&|x| {
        let inner = || (2.0 / PI).sqrt() * (x + 0.044_715 * x.powi(3));
        0.5 * x * if tanh { 1.0 + inner().tanh() } else { erfc(-x * FRAC_1_SQRT_2) }
    })
}

/// Converts to integers towards zero and modulo their range, and to booleans by a comparison with 0.
///
/// Floating-point results are rounded where they are stored.
fn cast(r: &Ask<'_>) -> Made {
    let to = if r.has("dtype")? { r.word("dtype")? } else { String::new() };
    let within = |low: f64, high: f64| {
        r.map(&|x| {
            let whole = x.trunc();
            // The remainder of a number in range would lose digits of wide integers.
            if low <= whole && whole < high { whole } else { low + (whole - low).rem_euclid(high - low) }
        })
    };
    match to.as_str() {
        "bool" => r.map(&|x| truth(x != 0.0)),
        "u8" => within(0.0, 256.0),
        "i8" => within(-128.0, 128.0),
        "i16" => within(-32_768.0, 32_768.0),
        "i32" => within(-2_147_483_648.0, 2_147_483_648.0),
        "i64" => r.map(&f64::trunc),
        _ => r.map(&|x| x),
    }
}

fn clamp(r: &Ask<'_>) -> Made {
    let (min, max) = (r.maybe_real("min")?, r.maybe_real("max")?);
    r.ensure(min.is_some() || max.is_some(), "needs the argument `min` or `max`")?;
    // If the minimum exceeds the maximum, the maximum wins.
    r.map(&|x| min.map_or(x, |min| x.max(min)).min(max.unwrap_or(f64::INFINITY)))
}

fn nan_to_num(r: &Ask<'_>) -> Made {
    let greatest = r.element.greatest;
    let nan = r.real("nan")?;
    let (up, down) =
        (r.maybe_real("posinf")?.unwrap_or(greatest), r.maybe_real("neginf")?.unwrap_or(-greatest));
    r.map(&|x| match x {
        x if x.is_nan() => nan,
        f64::INFINITY => up,
        f64::NEG_INFINITY => down,
        x => x,
    })
}

fn masked_fill(r: &Ask<'_>) -> Made {
    let value = filling(r)?;
    r.zip(&|x, mask| if mask == 0.0 { x } else { value })
}

/// The number in `value`, which may be infinite.
pub(crate) fn filling(r: &Ask<'_>) -> Result<f64, crate::Error> {
    r.ensure(r.has("value")?, "needs the argument `value`")?;
    let text = r.word("value")?;
    text.parse().map_err(|_| r.wrong("`value` is not a number"))
}

/// The greater of two logarithms, plus the contribution of the other.
pub(crate) fn logaddexp(a: f64, b: f64) -> f64 {
    let m = a.max(b);
    if m.is_infinite() { m } else { m + ((a - m).exp() + (b - m).exp()).ln() }
}

pub(super) const OPS: Ops = &[
    ("relu", One(|x| x.max(0.0))),
    ("relu6", One(|x| x.clamp(0.0, 6.0))),
    ("exp", One(f64::exp)),
    ("expm1", One(f64::exp_m1)),
    ("sigmoid", One(sigmoid)),
    ("tanh", One(f64::tanh)),
    ("sinh", One(f64::sinh)),
    ("asinh", One(f64::asinh)),
    ("atan", One(f64::atan)),
    ("erf", One(erf)),
    ("erfc", One(erfc)),
    ("floor", One(f64::floor)),
    ("ceil", One(f64::ceil)),
    ("round", By(round)),
    ("trunc", One(f64::trunc)),
    ("sign", One(sign)),
    (
        "leaky_relu",
        By(|r| {
            let slope = r.real("negative_slope")?;
            r.map(&|x| if x > 0.0 { x } else { slope * x })
        }),
    ),
    (
        "elu",
        By(|r| {
            let alpha = r.real("alpha")?;
            r.map(&|x| if x > 0.0 { x } else { alpha * x.exp_m1() })
        }),
    ),
    (
        "celu",
        By(|r| {
            let alpha = r.real("alpha")?;
            r.map(&|x| if x > 0.0 || alpha == 0.0 { x.max(0.0) } else { alpha * (x / alpha).exp_m1() })
        }),
    ),
    (
        "selu",
        One(|x| 1.050_700_987_355_480_5 * if x > 0.0 { x } else { 1.673_263_242_354_377_2 * x.exp_m1() }),
    ),
    (
        "softplus",
        By(|r| {
            let (beta, threshold) = (r.real("beta")?, r.real("threshold")?);
            r.map(&|x| if beta * x > threshold { x } else { (beta * x).exp().ln_1p() / beta })
        }),
    ),
    (
        "hardtanh",
        By(|r| {
            let (min, max) = (r.real("min_val")?, r.real("max_val")?);
            r.map(&|x| x.max(min).min(max))
        }),
    ),
    ("clamp", By(clamp)),
    (
        "clamp_min",
        By(|r| {
            let min = r.given("min")?;
            r.map(&|x| x.max(min))
        }),
    ),
    (
        "clamp_max",
        By(|r| {
            let max = r.given("max")?;
            r.map(&|x| x.min(max))
        }),
    ),
    ("hardsigmoid", One(|x| (x / 6.0 + 0.5).clamp(0.0, 1.0))),
    ("log_sigmoid", One(|x| -softplus(-x))),
    (
        "hardshrink",
        By(|r| {
            let lambd = r.real("lambd")?;
            r.map(&|x| if x.abs() > lambd { x } else { 0.0 })
        }),
    ),
    (
        "softshrink",
        By(|r| {
            let lambd = r.real("lambd")?;
            r.map(&|x| sign(x) * (x.abs() - lambd).max(0.0))
        }),
    ),
    ("tanhshrink", One(|x| x - x.tanh())),
    ("cbrt", One(f64::cbrt)),
    ("sin", One(f64::sin)),
    ("cos", One(f64::cos)),
    ("tan", One(f64::tan)),
    ("asin", One(f64::asin)),
    ("acos", One(f64::acos)),
    ("atanh", One(f64::atanh)),
    ("acosh", One(f64::acosh)),
    ("cosh", One(f64::cosh)),
    ("log", One(f64::ln)),
    ("log2", One(f64::log2)),
    ("log10", One(f64::log10)),
    ("log1p", One(f64::ln_1p)),
    ("sqrt", One(f64::sqrt)),
    ("rsqrt", One(|x| 1.0 / x.sqrt())),
    ("reciprocal", One(|x| 1.0 / x)),
    ("gelu", By(gelu)),
    ("silu", One(|x| x * sigmoid(x))),
    ("mish", One(|x| x * softplus(x).tanh())),
    ("hardswish", One(|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0)),
    ("softsign", One(|x| x / (1.0 + x.abs()))),
    (
        "threshold",
        By(|r| {
            let (threshold, value) = (r.given("threshold")?, r.given("value")?);
            r.map(&|x| if x > threshold { x } else { value })
        }),
    ),
    ("frac", One(f64::fract)),
    ("abs", One(f64::abs)),
    ("square", One(|x| x * x)),
    ("neg", One(|x| -x)),
    (
        "pow_scalar",
        By(|r| {
            let n = r.given("exponent")?;
            r.map(&|x| x.powf(n))
        }),
    ),
    (
        "add_scalar",
        By(|r| {
            let n = r.given("value")?;
            r.map(&|x| x + n)
        }),
    ),
    (
        "sub_scalar",
        By(|r| {
            let n = r.given("value")?;
            r.map(&|x| x - n)
        }),
    ),
    (
        "rsub_scalar",
        By(|r| {
            let n = r.given("value")?;
            r.map(&|x| n - x)
        }),
    ),
    (
        "mul_scalar",
        By(|r| {
            let n = r.given("value")?;
            r.map(&|x| x * n)
        }),
    ),
    (
        "div_scalar",
        By(|r| {
            let n = r.given("value")?;
            r.map(&|x| x / n)
        }),
    ),
    ("copy", One(|x| x)),
    ("clone", One(|x| x)),
    ("detach", One(|x| x)),
    ("contiguous", One(|x| x)),
    ("cast", By(cast)),
    ("isnan", One(|x| truth(x.is_nan()))),
    ("isinf", One(|x| truth(x.is_infinite()))),
    ("isfinite", One(|x| truth(x.is_finite()))),
    ("nan_to_num", By(nan_to_num)),
    ("logical_not", One(|x| truth(x == 0.0))),
    ("zeros_like", One(|_| 0.0)),
    ("ones_like", One(|_| 1.0)),
    (
        "full_like",
        By(|r| {
            let n = r.given("fill_value")?;
            r.map(&|_| n)
        }),
    ),
    // Two inputs, broadcast.
    ("add", Two(|a, b| a + b)),
    ("sub", Two(|a, b| a - b)),
    ("mul", Two(|a, b| a * b)),
    ("div", Two(|a, b| a / b)),
    ("fmod", Two(|a, b| a % b)),
    ("remainder", Two(|a, b| a - b * (a / b).floor())),
    ("floor_divide", Two(|a, b| (a / b).floor())),
    ("pow", Two(f64::powf)),
    ("xlogy", Two(|a, b| if a == 0.0 { 0.0 } else { a * b.ln() })),
    (
        "maximum",
        Two(|a, b| {
            if a.is_nan() {
                a
            } else if b.is_nan() || b > a {
                b
            } else {
                a
            }
        }),
    ),
    (
        "minimum",
        Two(|a, b| {
            if a.is_nan() {
                a
            } else if b.is_nan() || b < a {
                b
            } else {
                a
            }
        }),
    ),
    ("atan2", Two(f64::atan2)),
    ("hypot", Two(f64::hypot)),
    ("copysign", Two(f64::copysign)),
    ("logaddexp", Two(logaddexp)),
    ("eq", Two(|a, b| truth(a == b))),
    ("ne", Two(|a, b| truth(a != b))),
    ("lt", Two(|a, b| truth(a < b))),
    ("le", Two(|a, b| truth(a <= b))),
    ("gt", Two(|a, b| truth(a > b))),
    ("ge", Two(|a, b| truth(a >= b))),
    ("logical_and", Two(|a, b| truth(a != 0.0 && b != 0.0))),
    ("logical_or", Two(|a, b| truth(a != 0.0 || b != 0.0))),
    ("logical_xor", Two(|a, b| truth((a != 0.0) != (b != 0.0)))),
    ("copy_", Two(|_, b| b)),
    ("masked_fill", By(masked_fill)),
    // Three.
    ("where", By(|r| r.zip3(&|c, a, b| if c == 0.0 { b } else { a }))),
    ("lerp", By(|r| r.zip3(&|a, b, w| a + w * (b - a)))),
    (
        "addcmul",
        By(|r| {
            let n = r.real("value")?;
            r.zip3(&|a, b, c| a + n * b * c)
        }),
    ),
    (
        "addcdiv",
        By(|r| {
            let n = r.real("value")?;
            r.zip3(&|a, b, c| a + n * b / c)
        }),
    ),
    ("clamp_tensor", By(|r| r.zip3(&|x, min, max| x.max(min).min(max)))),
    (
        "scale_by_norm",
        By(|r| {
            let (most, eps) = (r.given("max_norm")?, r.real("eps")?);
            r.zip(&|x, norm| x * (most / (norm + eps)).min(1.0))
        }),
    ),
];
