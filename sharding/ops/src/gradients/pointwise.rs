//! Gradients of pointwise ops: one line each.

use super::Formula;
use super::builder::{GradientBuilder, Variable, number, numbers, whole};
use super::text::text;
use crate::Error;
use crate::rules::{OpCall, is_cast_to_integral};

/// Names of ops, and the formula that all of them have.
pub(super) type Alike = (&'static [&'static str], Formula);

/// Formulas of `dx` as text.
fn all(list: &[(&'static [&'static str], &str)]) -> Vec<Alike> {
    list.iter().map(|&(names, body)| (names, text(body))).collect()
}

#[rustfmt::skip]
pub(super) fn formulas() -> Vec<Alike> {
    let mut list = all(&[
        // Linear.
        (&["clone", "contiguous", "copy", "positive", "frac", "add_scalar", "sub_scalar"], "dy -> dx: dx = clone(dy)"),
        (&["neg", "rsub_scalar"], "dy -> dx: dx = neg(dy)"),
        (&["deg2rad"], "dy -> dx: dx = deg2rad(dy)"),
        (&["rad2deg"], "dy -> dx: dx = rad2deg(dy)"),
        (&["add"], "dy -> dx0, dx1: dx0 = clone(dy); dx1 = clone(dy)"),
        (&["sub"], "dy -> dx0, dx1: dx0 = clone(dy); dx1 = neg(dy)"),
        (&["lerp"], "x0, x1, x2, dy -> dx0, dx1, dx2: dx1 = mul(dy, x2); dx0 = sub(dy, dx1); d = sub(x1, x0); dx2 = mul(dy, d)"),
        // Products.
        (&["mul"], "x0, x1, dy -> dx0, dx1: dx0 = mul(dy, x1); dx1 = mul(dy, x0)"),
        (&["div"], "x1, y, dy -> dx0, dx1: dx0 = div(dy, x1); p = mul(dx0, y); dx1 = neg(p)"),
        (&["fma"], "x0, x1, dy -> dx0, dx1, dx2: dx0 = mul(dy, x1); dx1 = mul(dy, x0); dx2 = clone(dy)"),
        (&["square"], "x, dy -> dx: t = add(x, x); dx = mul(dy, t)"),
        (&["reciprocal"], "y, dy -> dx: s = square(y); p = mul(dy, s); dx = neg(p)"),
        // Exponentials and logarithms.
        (&["exp"], "y, dy -> dx: dx = mul(dy, y)"),
        (&["exp2"], "y, dy -> dx: p = mul(dy, y); dx = mul_scalar(p, value=0.6931471805599453)"),
        (&["expm1"], "y, dy -> dx: p = mul(dy, y); dx = add(p, dy)"),
        (&["log"], "x, dy -> dx: dx = div(dy, x)"),
        (&["log2"], "x, dy -> dx: q = div(dy, x); dx = mul_scalar(q, value=1.4426950408889634)"),
        (&["log10"], "x, dy -> dx: q = div(dy, x); dx = mul_scalar(q, value=0.4342944819032518)"),
        (&["log1p"], "x, dy -> dx: t = add_scalar(x, value=1); dx = div(dy, t)"),
        (&["sqrt"], "y, dy -> dx: t = add(y, y); dx = div(dy, t)"),
        (&["rsqrt"], "y, dy -> dx: s = square(y); c = mul(s, y); p = mul(dy, c); dx = mul_scalar(p, value=-0.5)"),
        (&["logaddexp"], "x0, x1, y, dy -> dx0, dx1: a = sub(x0, y); p = exp(a); dx0 = mul(dy, p); b = sub(x1, y); q = exp(b); dx1 = mul(dy, q)"),
        (&["pow"], "x0, x1, y, dy -> dx0, dx1: c = logical_not(x1); e = sub_scalar(x1, value=1); q = pow(x0, e); f = mul(x1, q); g = masked_fill(f, c, value=0); \
            dx0 = mul(dy, g); z = zeros_like(y); a = add(x0, z); b = add(x1, z); k = logical_not(a); h = ge(b, z); i = logical_and(k, h); l = log(x0); \
            p = mul(y, l); j = masked_fill(p, i, value=0); dx1 = mul(dy, j)"),
        (&["xlogy"], "x0, x1, dy -> dx0, dx1: z = zeros_like(x1); n = le(x1, z); k = logical_not(x0); i = logical_and(k, n); l = log(x1); z0 = zeros_like(i); e = add(l, z0); \
            m = masked_fill(e, i, value=0); dx0 = mul(dy, m); q = div(x0, x1); dx1 = mul(dy, q)"),
        // Angles.
        (&["sin"], "x, dy -> dx: c = cos(x); dx = mul(dy, c)"),
        (&["cos"], "x, dy -> dx: s = sin(x); p = mul(dy, s); dx = neg(p)"),
        (&["tan"], "y, dy -> dx: s = square(y); p = mul(dy, s); dx = add(dy, p)"),
        (&["asin"], "x, dy -> dx: s = square(x); c = rsub_scalar(s, value=1); r = rsqrt(c); dx = mul(dy, r)"),
        (&["acos"], "x, dy -> dx: s = square(x); c = rsub_scalar(s, value=1); r = rsqrt(c); p = mul(dy, r); dx = neg(p)"),
        (&["atan"], "x, dy -> dx: s = square(x); c = add_scalar(s, value=1); dx = div(dy, c)"),
        (&["sinh"], "x, dy -> dx: c = cosh(x); dx = mul(dy, c)"),
        (&["cosh"], "x, dy -> dx: s = sinh(x); dx = mul(dy, s)"),
        (&["tanh"], "y, dy -> dx: s = square(y); p = mul(dy, s); dx = sub(dy, p)"),
        (&["asinh"], "x, dy -> dx: s = square(x); c = add_scalar(s, value=1); r = rsqrt(c); dx = mul(dy, r)"),
        (&["acosh"], "x, dy -> dx: s = square(x); c = sub_scalar(s, value=1); r = rsqrt(c); dx = mul(dy, r)"),
        (&["atanh"], "x, dy -> dx: s = square(x); c = rsub_scalar(s, value=1); dx = div(dy, c)"),
        (&["atan2"], "x0, x1, dy -> dx0, dx1: a = square(x0); b = square(x1); s = add(a, b); z = logical_not(s); r = reciprocal(s); i = masked_fill(r, z, value=0); q = mul(dy, i); dx0 = mul(q, x1); p = mul(q, x0); dx1 = neg(p)"),
        (&["hypot"], "x0, x1, y, dy -> dx0, dx1: q = div(dy, y); dx0 = mul(q, x0); dx1 = mul(q, x1)"),
        // Sigmoids.
        (&["sigmoid"], "y, dy -> dx: s = square(y); t = sub(y, s); dx = mul(dy, t)"),
        (&["log_sigmoid"], "x, dy -> dx: n = neg(x); s = sigmoid(n); dx = mul(dy, s)"),
        (&["silu"], "x, y, dy -> dx: s = sigmoid(x); c = rsub_scalar(s, value=1); t = mul(y, c); u = add(s, t); dx = mul(dy, u)"),
        (&["mish"], "x, dy -> dx: p = softplus(x); t = tanh(p); s = sigmoid(x); q = square(t); c = rsub_scalar(q, value=1); e = mul(x, s); f = mul(e, c); g = add(t, f); dx = mul(dy, g)"),
        (&["tanhshrink"], "x, dy -> dx: t = tanh(x); s = square(t); dx = mul(dy, s)"),
        (&["softsign"], "x, dy -> dx: a = abs(x); c = add_scalar(a, value=1); s = square(c); dx = div(dy, s)"),
        (&["erf"], "x, dy -> dx: s = square(x); n = neg(s); e = exp(n); p = mul(dy, e); dx = mul_scalar(p, value=1.1283791670955126)"),
        (&["erfc"], "x, dy -> dx: s = square(x); n = neg(s); e = exp(n); p = mul(dy, e); dx = mul_scalar(p, value=-1.1283791670955126)"),
        (&["erfinv"], "y, dy -> dx: s = square(y); e = exp(s); p = mul(dy, e); dx = mul_scalar(p, value=0.886226925452758)"),
        (&["lgamma"], "x, dy -> dx: d = digamma(x); dx = mul(dy, d)"),
        (&["cbrt"], "y, dy -> dx: s = square(y); q = div(dy, s); dx = div_scalar(q, value=3)"),
        (&["digamma"], "x, dy -> dx: t = polygamma(x, n=1); dx = mul(dy, t)"),
        (&["entr"], "x, dy -> dx: l = log(x); a = add_scalar(l, value=1); p = mul(dy, a); dx = neg(p)"),
        (&["erfcx"], "x, y, dy -> dx: p = mul(x, y); d = add(p, p); e = sub_scalar(d, value=1.1283791670955126); dx = mul(dy, e)"),
        (&["ndtr"], "x, dy -> dx: s = square(x); n = mul_scalar(s, value=-0.5); e = exp(n); p = mul(dy, e); dx = mul_scalar(p, value=0.3989422804014327)"),
        (&["ndtri"], "y, dy -> dx: s = square(y); n = mul_scalar(s, value=0.5); e = exp(n); p = mul(dy, e); dx = mul_scalar(p, value=2.5066282746310002)"),
        (&["log_ndtr"], "x, dy -> dx: n = mul_scalar(x, value=-0.7071067811865476); e = erfcx(n); q = div(dy, e); dx = mul_scalar(q, value=0.7978845608028654)"),
        // Bessel functions: order 0 by those of order 1, order 1 by both.
        (&["i0"], "x, dy -> dx: b = i1(x); dx = mul(dy, b)"),
        (&["i0e"], "x, y, dy -> dx: b = i1e(x); s = sign(x); p = mul(s, y); c = sub(b, p); dx = mul(dy, c)"),
        (&["i1"], "x, y, dy -> dx: a = i0(x); z = logical_not(x); h = mul_scalar(z, value=0.5); q = div(y, x); r = masked_fill(q, z, value=0); b = sub(a, r); c = sub(b, h); dx = mul(dy, c)"),
        (&["i1e"], "x, y, dy -> dx: a = i0e(x); z = logical_not(x); h = mul_scalar(z, value=0.5); q = div(y, x); r = masked_fill(q, z, value=0); b = sub(a, r); c = sub(b, h); s = sign(x); p = mul(s, y); d = sub(c, p); dx = mul(dy, d)"),
        (&["bessel_j0"], "x, dy -> dx: b = bessel_j1(x); p = mul(dy, b); dx = neg(p)"),
        (&["bessel_y0"], "x, dy -> dx: b = bessel_y1(x); p = mul(dy, b); dx = neg(p)"),
        (&["modified_bessel_k0"], "x, dy -> dx: b = modified_bessel_k1(x); p = mul(dy, b); dx = neg(p)"),
        (&["bessel_j1"], "x, y, dy -> dx: a = bessel_j0(x); z = logical_not(x); h = mul_scalar(z, value=0.5); q = div(y, x); r = masked_fill(q, z, value=0); b = sub(a, r); c = sub(b, h); dx = mul(dy, c)"),
        (&["bessel_y1"], "x, y, dy -> dx: a = bessel_y0(x); q = div(y, x); b = sub(a, q); dx = mul(dy, b)"),
        (&["modified_bessel_k1"], "x, y, dy -> dx: a = modified_bessel_k0(x); q = div(y, x); b = add(a, q); p = mul(dy, b); dx = neg(p)"),
        (&["scaled_modified_bessel_k0"], "x, y, dy -> dx: b = scaled_modified_bessel_k1(x); c = sub(y, b); dx = mul(dy, c)"),
        (&["scaled_modified_bessel_k1"], "x, y, dy -> dx: a = scaled_modified_bessel_k0(x); b = sub(y, a); q = div(y, x); c = sub(b, q); dx = mul(dy, c)"),
        (&["spherical_bessel_j0"], "x, y, dy -> dx: z = logical_not(x); c = cos(x); d = sub(c, y); q = div(d, x); r = masked_fill(q, z, value=0); dx = mul(dy, r)"),
        (&["sinc"], "x, y, dy -> dx: z = logical_not(x); t = mul_scalar(x, value=3.141592653589793); c = cos(t); d = sub(c, y); q = div(d, x); r = masked_fill(q, z, value=0); dx = mul(dy, r)"),
        (&["logaddexp2"], "x0, x1, y, dy -> dx0, dx1: a = sub(x0, y); p = exp2(a); dx0 = mul(dy, p); b = sub(x1, y); q = exp2(b); dx1 = mul(dy, q)"),
        (&["xlog1py"], "x0, x1, dy -> dx0, dx1: b = add_scalar(x1, value=1); z = zeros_like(b); n = le(b, z); k = logical_not(x0); i = logical_and(k, n); l = log(b); \
            m = masked_fill(l, i, value=0); dx0 = mul(dy, m); q = div(x0, b); dx1 = mul(dy, q)"),
        (&["copysign"], "x0, y, dy -> dx0: a = sign(x0); s = sign(y); t = mul(a, s); dx0 = mul(dy, t)"),
        (&["copy_"], "x0, dy -> dx0, dx1: dx0 = zeros_like(x0); dx1 = clone(dy)"),
        (&["nan_to_num"], "x, dy -> dx: f = isfinite(x); dx = mul(dy, f)"),
        (&["frexp"], "y1, dy0 -> dx: e = exp2(y1); dx = div(dy0, e)"),
        // With corners: an unchanged element passes no gradient.
        (&["abs"], "x, dy -> dx: s = sign(x); dx = mul(dy, s)"),
        (&["relu"], "y, dy -> dx: s = sign(y); dx = mul(dy, s)"),
        (&["hardshrink", "softshrink"], "y, dy -> dx: a = abs(y); m = sign(a); dx = mul(dy, m)"),
        (&["hardsigmoid"], "y, dy -> dx: s = square(y); t = sub(y, s); m = sign(t); p = mul(dy, m); dx = div_scalar(p, value=6)"),
        (&["hardswish"], "x, dy -> dx: h = hardsigmoid(x); s = square(h); t = sub(h, s); m = sign(t); e = mul(x, m); f = div_scalar(e, value=6); g = add(h, f); dx = mul(dy, g)"),
        (&["maximum", "fmax"], "x0, x1, dy -> dx0, dx1: g = gt(x0, x1); e = eq(x0, x1); h = mul_scalar(e, value=0.5); m = add(g, h); dx0 = mul(dy, m); dx1 = sub(dy, dx0)"),
        (&["minimum", "fmin"], "x0, x1, dy -> dx0, dx1: g = lt(x0, x1); e = eq(x0, x1); h = mul_scalar(e, value=0.5); m = add(g, h); dx0 = mul(dy, m); dx1 = sub(dy, dx0)"),
        (&["fmod"], "x0, x1, dy -> dx0, dx1: q = div(x0, x1); t = trunc(q); p = mul(dy, t); dx0 = clone(dy); dx1 = neg(p)"),
        (&["remainder"], "x0, x1, dy -> dx0, dx1: q = div(x0, x1); t = floor(q); p = mul(dy, t); dx0 = clone(dy); dx1 = neg(p)"),
        (&["where"], "x0, dy -> dx1, dx2: z = zeros_like(dy); dx1 = where(x0, dy, z); dx2 = where(x0, z, dy)"),
    ]);
    list.extend(by_arguments());
    list
}

/// Formulas that depend on arguments of the call.
fn by_arguments() -> Vec<Alike> {
    fn formula(
        f: impl Fn(&mut GradientBuilder<'_>) -> Result<Variable, Error> + Send + Sync + 'static,
    ) -> Formula {
        Formula::new(move |b| Ok(vec![Some(f(b)?)]))
    }
    vec![
        (&["masked_fill", "index_fill"], Formula::new(super::moved::unfilled)),
        // Casts to the dtype of x, which the caller knows; integers and booleans are not smooth.
        (
            &["cast"],
            Formula::new(|b| {
                let is_smooth = !b.argument(is_cast_to_integral)?;
                Ok(vec![is_smooth.then(|| b.op("cast", &[b.dy(0)])).transpose()?])
            }),
        ),
        // Zero at the ends and beyond.
        (&["relu6"], formula(|b| within(b, Some(0.0), Some(6.0), "gt"))),
        (&["hardtanh"], formula(|b| ends(b, ["min_val", "max_val"], "gt"))),
        (&["clamp"], formula(|b| ends(b, ["min", "max"], "gt"))),
        (
            &["clamp_min"],
            formula(|b| {
                let min = b.real("min")?;
                within(b, Some(min), None, "gt")
            }),
        ),
        (
            &["clamp_max"],
            formula(|b| {
                let max = b.real("max")?;
                within(b, None, Some(max), "gt")
            }),
        ),
        (
            &["threshold"],
            formula(|b| {
                let threshold = b.real("threshold")?;
                within(b, Some(threshold), None, "gt")
            }),
        ),
        (
            &["logit"],
            formula(|b| {
                // 1 / (x (1 - x)); zero beyond eps, which itself counts as within.
                let square = b.op("square", &[b.x(0)])?;
                let spread = b.op("sub", &[b.x(0), square])?;
                let slope = b.op("reciprocal", &[spread])?;
                let eps = b.argument(|r| if r.has("eps")? { r.real("eps").map(Some) } else { Ok(None) })?;
                let slope = match eps {
                    None => slope,
                    Some(eps) => {
                        let counts = between(b, Some(eps), Some(1.0 - eps), "ge")?;
                        let zeros = b.op("zeros_like", &[slope])?;
                        b.op("where", &[counts, slope, zeros])?
                    }
                };
                b.op("mul", &[b.dy(0), slope])
            }),
        ),
        // The same call again.
        (
            &["polygamma"],
            formula(|b| {
                let n = b.argument(|r| r.size("n"))?;
                let slope = b.call(&OpCall::new("polygamma").with("n", whole(n + 1)), &[b.x(0)])?;
                b.op("mul", &[b.dy(0), slope])
            }),
        ),
        // The op's random numbers: the result on ones minus that on zeros is the slope.
        (
            &["alpha_dropout", "feature_alpha_dropout"],
            formula(|b| {
                let (one, zero) = (b.op("ones_like", &[b.x(0)])?, b.op("zeros_like", &[b.x(0)])?);
                let (one, zero) = (b.again(one)?, b.again(zero)?);
                let slope = b.op("sub", &[one, zero])?;
                b.op("mul", &[b.dy(0), slope])
            }),
        ),
        (
            &["rrelu"],
            formula(|b| {
                let one = b.op("ones_like", &[b.x(0)])?;
                let less = b.op("neg", &[one])?;
                let drawn = b.again(less)?;
                let slope = b.op("neg", &[drawn])?;
                let zero = b.op("zeros_like", &[b.x(0)])?;
                let right = b.op("gt", &[b.x(0), zero])?;
                let slope = b.op("where", &[right, one, slope])?;
                b.op("mul", &[b.dy(0), slope])
            }),
        ),
        (
            &["native_dropout"],
            formula(|b| {
                let kept = b.op("mul", &[b.dy(0), b.y(1)])?;
                let p = b.real("p")?;
                if p < 1.0 { b.scaled(kept, 1.0 / (1.0 - p)) } else { Ok(kept) }
            }),
        ),
        (&["mul_scalar", "div_scalar", "dropout", "feature_dropout"], formula(|b| b.again(b.dy(0)))),
        (
            &["pow_scalar"],
            formula(|b| {
                let exponent = b.real("exponent")?;
                if exponent == 0.0 {
                    return b.op("zeros_like", &[b.x(0)]);
                }
                let power = b.with_number("pow_scalar", "exponent", exponent - 1.0, b.x(0))?;
                let slope = b.scaled(power, exponent)?;
                b.op("mul", &[b.dy(0), slope])
            }),
        ),
        (
            &["prelu"],
            Formula::new(|b| {
                // A slope for each channel, dim 1.
                let (shape, slopes) = (b.forward().inputs()[0].clone(), b.forward().inputs()[1].clone());
                let beside = [&[1][..], &slopes, &vec![1; shape.len().saturating_sub(2)]].concat();
                let positive = b.op("relu", &[b.x(0)])?;
                let step = b.op("sign", &[positive])?;
                let other = b.with_number("rsub_scalar", "value", 1.0, step)?;
                let low = b.reshaped(b.x(1), &beside)?;
                let low = b.op("mul", &[other, low])?;
                let slope = b.op("add", &[step, low])?;
                let dx = b.op("mul", &[b.dy(0), slope])?;
                let below = b.op("sub", &[b.x(0), positive])?;
                let products = b.op("mul", &[b.dy(0), below])?;
                let sum = b.fitted(products, &beside)?;
                Ok(vec![Some(dx), Some(b.reshaped(sum, &slopes)?)])
            }),
        ),
        (
            &["addcmul"],
            Formula::new(|b| {
                let value = b.real("value")?;
                let dy = b.scaled(b.dy(0), value)?;
                let (by_1, by_2) = (b.op("mul", &[dy, b.x(2)])?, b.op("mul", &[dy, b.x(1)])?);
                fitted(b, &[b.dy(0), by_1, by_2])
            }),
        ),
        (
            &["addcdiv"],
            Formula::new(|b| {
                let value = b.real("value")?;
                let dy = b.scaled(b.dy(0), value)?;
                let by_1 = b.op("div", &[dy, b.x(2)])?;
                let quotient = b.op("div", &[b.x(1), b.x(2)])?;
                let product = b.op("mul", &[by_1, quotient])?;
                let by_2 = b.op("neg", &[product])?;
                fitted(b, &[b.dy(0), by_1, by_2])
            }),
        ),
        (
            &["leaky_relu"],
            formula(|b| {
                let low = b.real("negative_slope")?;
                let step = step(b)?;
                let rise = b.scaled(step, 1.0 - low)?;
                let slope = b.with_number("add_scalar", "value", low, rise)?;
                b.op("mul", &[b.dy(0), slope])
            }),
        ),
        (
            &["elu"],
            formula(|b| {
                // Left of 0 it is alpha (exp(x) - 1), whose slope is y + alpha.
                let alpha = b.real("alpha")?;
                let left = b.with_number("add_scalar", "value", alpha, b.y(0))?;
                one_sided(b, left, 1.0)
            }),
        ),
        (
            &["celu"],
            formula(|b| {
                let alpha = b.real("alpha")?;
                let part = b.scaled(b.y(0), 1.0 / alpha)?;
                let left = b.with_number("add_scalar", "value", 1.0, part)?;
                one_sided(b, left, 1.0)
            }),
        ),
        (
            &["selu"],
            formula(|b| {
                const SCALE: f64 = 1.050_700_987_355_480_5;
                const ALPHA: f64 = 1.673_263_242_354_377_2;
                let left = b.with_number("add_scalar", "value", SCALE * ALPHA, b.y(0))?;
                one_sided(b, left, SCALE)
            }),
        ),
        (
            &["softplus"],
            formula(|b| {
                let beta = b.real("beta")?;
                let x = b.scaled(b.x(0), beta)?;
                let slope = b.op("sigmoid", &[x])?;
                b.op("mul", &[b.dy(0), slope])
            }),
        ),
        (&["gelu"], formula(gelu)),
    ]
}

/// Returns a mask of the elements between two numbers, if given; `gt` excludes the ends, `ge` includes them.
fn between(
    b: &mut GradientBuilder<'_>,
    least: Option<f64>,
    most: Option<f64>,
    by: &str,
) -> Result<Variable, Error> {
    let end = |b: &mut GradientBuilder<'_>, end: f64| {
        b.call(&OpCall::new("full").with("shape", numbers(&[])).with("fill_value", number(end)), &[])
    };
    let above = match least {
        None => None,
        Some(least) => {
            let end = end(b, least)?;
            Some(b.op(by, &[b.x(0), end])?)
        }
    };
    let Some(most) = most else { return above.map_or_else(|| b.op("ones_like", &[b.x(0)]), Ok) };
    let end = end(b, most)?;
    let below = b.op(by, &[end, b.x(0)])?;
    above.map_or(Ok(below), |above| b.op("mul", &[above, below]))
}

/// `dy` where the input lies between two numbers.
fn within(
    b: &mut GradientBuilder<'_>,
    least: Option<f64>,
    most: Option<f64>,
    by: &str,
) -> Result<Variable, Error> {
    let counts = between(b, least, most, by)?;
    b.op("mul", &[b.dy(0), counts])
}

/// The same, with bounds from two arguments of the call.
fn ends(b: &mut GradientBuilder<'_>, keys: [&str; 2], by: &str) -> Result<Variable, Error> {
    let [least, most] =
        keys.map(|key| b.argument(|r| if r.has(key)? { r.real(key).map(Some) } else { Ok(None) }));
    within(b, least?, most?, by)
}

/// Gradients of inputs that were broadcast.
fn fitted(b: &mut GradientBuilder<'_>, gradients: &[Variable]) -> Result<Vec<Option<Variable>>, Error> {
    let shapes = b.forward().inputs().to_vec();
    gradients.iter().zip(&shapes).map(|(&gradient, shape)| b.fitted(gradient, shape).map(Some)).collect()
}

/// One for positive inputs, else zero.
fn step(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let positive = b.op("relu", &[b.x(0)])?;
    b.op("sign", &[positive])
}

/// `dy` times `right` for positive inputs, and times `left` for others.
fn one_sided(b: &mut GradientBuilder<'_>, left: Variable, right: f64) -> Result<Variable, Error> {
    let step = step(b)?;
    let other = b.with_number("rsub_scalar", "value", 1.0, step)?;
    let low = b.op("mul", &[other, left])?;
    let high = b.scaled(step, right)?;
    let slope = b.op("add", &[high, low])?;
    b.op("mul", &[b.dy(0), slope])
}

/// `x F(x)` for the normal distribution `F`, or for its approximation by tanh.
fn gelu(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let body = match b.argument(|r| r.word("approximate"))?.as_str() {
        // F + x F' with F = (1 + tanh u) / 2, u = sqrt(2/pi) (x + 0.044715 x^3).
        "tanh" => {
            "x, dy -> dx: q = square(x); k = mul_scalar(q, value=0.044715); l = add_scalar(k, value=1); m = mul(x, l); \
             u = mul_scalar(m, value=0.7978845608028654); t = tanh(u); a = add_scalar(t, value=1); f = mul_scalar(a, value=0.5); \
             s = square(t); c = rsub_scalar(s, value=1); v = mul_scalar(q, value=0.134145); w = add_scalar(v, value=1); \
             g = mul(c, w); h = mul(x, g); i = mul_scalar(h, value=0.3989422804014327); j = add(f, i); dx = mul(dy, j)"
        }
        _ => {
            "x, dy -> dx: u = mul_scalar(x, value=0.7071067811865476); e = erf(u); a = add_scalar(e, value=1); \
             f = mul_scalar(a, value=0.5); s = square(x); n = mul_scalar(s, value=-0.5); d = exp(n); p = mul(x, d); \
             g = mul_scalar(p, value=0.3989422804014327); h = add(f, g); dx = mul(dy, h)"
        }
    };
    let made = b.spliced(&body.parse()?, &[b.x(0), b.dy(0)])?;
    Ok(made[0])
}
