//! The built-in formulas.

use super::Formula;
use super::pointwise::Alike;
use super::{
    attention, definitions, einsum, indexed, linear, losses, normalized, pointwise, pools, product, reduced,
    sampled, scans, windows,
};

/// All of them, with the names of their ops.
pub(crate) fn formulas() -> Vec<Alike> {
    [
        nothing(),
        pointwise::formulas(),
        linear::formulas(),
        reduced::formulas(),
        normalized::formulas(),
        product::formulas(),
        indexed::formulas(),
        losses::formulas(),
        attention::formulas(),
        windows::formulas(),
        pools::formulas(),
        sampled::formulas(),
        scans::formulas(),
        definitions::formulas(),
    ]
    .concat()
}

/// Ops whose outputs are indices, truth values or steps, or depend on no number.
fn nothing() -> Vec<Alike> {
    let none: Formula = Formula::new(|b| Ok(vec![None; b.forward().inputs().len()]));
    let einsum: Formula = Formula::new(|b| {
        let op = b.forward().clone();
        let rule = op.rule().ok_or_else(|| super::refused(op.name()))?;
        einsum::of_letters(b, rule)
    });
    vec![
        (
            &[
                "eq",
                "ne",
                "lt",
                "le",
                "gt",
                "ge",
                "isnan",
                "isinf",
                "isfinite",
                "isneginf",
                "isposinf",
                "isclose",
                "logical_and",
                "logical_or",
                "logical_xor",
                "logical_not",
                "signbit",
                "sign",
                "floor",
                "ceil",
                "round",
                "trunc",
                "floor_divide",
                "argmax",
                "argmin",
                "argsort",
                "any",
                "all",
                "count_nonzero",
                "one_hot",
                "bincount",
                "searchsorted",
                "bucketize",
                "zeros_like",
                "ones_like",
                "full_like",
                "rand_like",
                "randn_like",
                "zeros",
                "ones",
                "full",
                "arange",
                "eye",
                "rand",
                "randn",
                "detach",
                "bitwise_and",
                "bitwise_or",
                "bitwise_xor",
                "bitwise_not",
                "bitwise_left_shift",
                "bitwise_right_shift",
                "gcd",
                "lcm",
                "angle",
                "isin",
                "nonzero",
                "bernoulli",
                "binomial",
                "poisson",
                "multinomial",
                "normal",
                "uniform",
                "exponential",
                "geometric",
                "cauchy",
                "log_normal",
                "random",
                "randint",
                "randint_like",
                "randperm",
                "linspace",
                "logspace",
                "fftfreq",
                "rfftfreq",
                "tril_indices",
                "triu_indices",
                "bartlett_window",
                "blackman_window",
                "hamming_window",
                "hann_window",
                "kaiser_window",
            ],
            none,
        ),
        (&["mm", "bmm", "mv", "dot", "vdot", "outer"], einsum),
    ]
}
