//! Element by element.

use reshard_verify::{Data, Random};

use super::{Example, example};

const SHAPES: &str = "6,5; 2,3";
const TWO: &str = "6,5 6,5; 2,3 2,3; 5,4 4; 5,4 5,1; 1,4 6,1";
const THREE: &str = "6,5 6,5 6,5; 2,3 2,3 2,3";

/// Some numbers are NaN or infinite.
fn odd(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let of = |v: f64| match v {
        v if v > 1.5 => f64::INFINITY,
        v if v < -2.5 => f64::NEG_INFINITY,
        v if v < -1.5 => f64::NAN,
        v => v,
    };
    Data::Real.whole(shape, r).into_iter().map(of).collect()
}

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let (mask, real) = (Data::Mask { ones: 50 }, Data::Real);
    for call in [
        "relu",
        "relu6",
        "exp",
        "expm1",
        "sigmoid",
        "tanh",
        "sinh",
        "asinh",
        "atan",
        "erf",
        "erfc",
        "floor",
        "ceil",
        "round",
        "round(decimals=1)",
        "trunc",
        "sign",
        "leaky_relu",
        "leaky_relu(negative_slope=0.25)",
        "elu",
        "elu(alpha=0.5)",
        "celu",
        "celu(alpha=2.5)",
        "selu",
        "softplus",
        "softplus(beta=0.5,threshold=40)",
        "softplus(beta=20)",
        "hardtanh",
        "hardtanh(min_val=-0.5,max_val=2)",
        "clamp(min=-2,max=1.5)",
        "clamp(min=-2)",
        "clamp(max=0.5)",
        "hardsigmoid",
        "log_sigmoid",
        "hardshrink",
        "hardshrink(lambd=1.5)",
        "softshrink",
        "softshrink(lambd=1.5)",
        "tanhshrink",
        "cbrt",
        "sin",
        "cos",
        "tan",
        "cosh",
        "gelu",
        "gelu(approximate=tanh)",
        "silu",
        "mish",
        "hardswish",
        "softsign",
        "threshold(threshold=1,value=5)",
        "threshold(threshold=-0.5,value=-3)",
        "frac",
        "pow_scalar(exponent=2)",
        "abs",
        "square",
        "neg",
        "add_scalar(value=3)",
        "sub_scalar(value=3)",
        "rsub_scalar(value=3)",
        "mul_scalar(value=-2)",
        "mul_scalar(value=0.5)",
        "div_scalar(value=2)",
        "copy",
        "clone",
        "detach",
        "contiguous",
        "cast",
    ] {
        out.push(example(call, SHAPES).data(&[real]).near());
    }
    // Partial values are unbounded: the identity of an empty shard is one of them.
    let positive = Data::Made(|shape, r| Data::Positive.whole(shape, r));
    for call in ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "pow_scalar(exponent=-0.5)"]
    {
        out.push(example(call, SHAPES).data(&[positive]).near());
    }
    let unit = Data::Made(|shape, r| Data::Real.whole(shape, r).into_iter().map(|v| v / 4.0).collect());
    for call in ["asin", "acos", "atanh"] {
        out.push(example(call, SHAPES).data(&[unit]).near());
    }
    for call in ["isnan", "isinf", "isfinite", "nan_to_num", "nan_to_num(nan=2,posinf=7,neginf=-5)"] {
        out.push(example(call, "6,5; 4,3").data(&[Data::Made(odd)]));
    }
    out.push(example("logical_not", SHAPES).data(&[mask]));
    for call in ["zeros_like", "ones_like", "full_like(fill_value=7)"] {
        out.push(example(call, SHAPES).constant());
    }
    for call in [
        "add",
        "sub",
        "mul",
        "maximum",
        "minimum",
        "atan2",
        "hypot",
        "copysign",
        "lt",
        "le",
        "gt",
        "ge",
        "logaddexp",
        "sgd(lr=0.5)",
        "sgd",
    ] {
        out.push(example(call, TWO).data(&[real; 2]).near());
    }
    for call in ["eq", "ne"] {
        out.push(example(call, TWO).data(&[Data::Index { below: 4 }; 2]));
    }
    for call in ["div", "fmod", "remainder", "floor_divide", "xlogy"] {
        out.push(example(call, TWO).data(&[real, Data::Positive]).near());
    }
    out.push(example("pow", TWO).data(&[Data::Positive, Data::Positive]).near());
    for call in ["logical_and", "logical_or", "logical_xor"] {
        out.push(example(call, TWO).data(&[mask; 2]));
    }
    out.push(example("copy_", "6,5 6,5; 2,3 2,3").idle());
    out.push(example("where", "6,5 6,5 6,5; 2,3 2,3 2,3; 5,4 4 5,1").data(&[mask, real, real]));
    for call in ["lerp", "addcmul(value=0.5)", "addcmul", "clamp_tensor"] {
        out.push(example(call, THREE).data(&[real; 3]).near());
    }
    for call in ["addcdiv(value=0.5)", "addcdiv"] {
        out.push(example(call, THREE).data(&[real, real, Data::Positive]).near());
    }
    for call in ["scale_by_norm(max_norm=2)", "scale_by_norm(max_norm=0.5,eps=0.25)"] {
        out.push(example(call, "6,5 (); 2,3 ()").data(&[real, Data::Positive]).near());
    }
    for call in
        ["masked_fill(value=0)", "masked_fill(value=1)", "masked_fill(value=-5)", "masked_fill(value=-inf)"]
    {
        out.push(example(call, "6,5 6,5; 2,3 2,3; 5,4 4").data(&[real, mask]));
    }
    out
}
