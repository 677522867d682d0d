//! The numbers of formulas whose rule is the same for all of them: PyTorch's names and defaults.
//!
//! Without a PyTorch default the default is none, so that a call may leave it out where only the rule is
//! requested.
//!
//! A bound is what the rule needs to be true: `leaky_relu` increases for slopes of at least 0.

const SCALAR: &str = "value: real = none";
const DROPOUT: &str = "p: real >= 0 = 0.5, key: numbers >= 0 = none";
/// The key that distinguishes random draws of one program.
const KEY: &str = "key: numbers >= 0 = none";
const ADAM: &str = "lr: real = 0.001, beta1: real = 0.9, beta2: real = 0.999, eps: real >= 0 = 0.00000001, \
                    weight_decay: real = 0, step: number >= 1 = none";
const ADAMW: &str = "lr: real = 0.001, beta1: real = 0.9, beta2: real = 0.999, eps: real >= 0 = 0.00000001, \
                     weight_decay: real = 0.01, step: number >= 1 = none";

/// Op names, and the parameters that all of them take.
#[rustfmt::skip]
pub(in crate::rules) const PARAMETERS: &[(&[&str], &str)] = &[
    (&["add_scalar", "sub_scalar", "rsub_scalar", "mul_scalar", "div_scalar"], SCALAR),
    (&["pow_scalar"], "exponent: real = none"),
    (&["full_like"], "fill_value: real = none"),
    (&["leaky_relu"], "negative_slope: real >= 0 = 0.01"),
    (&["elu", "celu"], "alpha: real >= 0 = 1"),
    (&["gelu"], "approximate: none|tanh = none"),
    // Beyond the threshold it is the identity; the two parts agree there within rounding, so it increases.
    (&["softplus"], "beta: real >= 0 = 1, threshold: real >= 20 = 20"),
    (&["threshold"], "threshold: real = none, value: real = none"),
    (&["hardtanh"], "min_val: real = -1, max_val: real = 1"),
    (&["hardshrink", "softshrink"], "lambd: real >= 0 = 0.5"),
    (&["clamp"], "min: real = none, max: real = none"),
    (&["clamp_min"], "min: real = none"),
    (&["clamp_max"], "max: real = none"),
    (&["round"], "decimals: number = 0"),
    // None means the greatest and the least number of the dtype.
    (&["nan_to_num"], "nan: real = 0, posinf: real = none, neginf: real = none"),
    (&["isclose"], "rtol: real >= 0 = 0.00001, atol: real >= 0 = 0.00000001"),
    (&["logit"], "eps: real >= 0 = none"),
    (&["polygamma"], "n: number >= 0 = 1"),
    (&["mvlgamma"], "p: number >= 1 = 2"),
    (&["addcmul", "addcdiv"], "value: real = 1"),
    // Steps of optimizers; without a step number there is no bias correction.
    (&["sgd"], "lr: real >= 0 = 0.001"),
    (&["sgd_momentum"], "lr: real = 0.001, momentum: real = 0, dampening: real = 0, nesterov: flag = false"),
    (&["adam"], ADAM),
    (&["adamw"], ADAMW),
    (&["adam_amsgrad", "radam"], "lr: real = 0.001, beta1: real = 0.9, beta2: real = 0.999, eps: real >= 0 = 0.00000001, step: number >= 1 = none"),
    (&["nadam"], "lr: real = 0.002, beta1: real = 0.9, beta2: real = 0.999, eps: real >= 0 = 0.00000001"),
    (&["adamax"], "lr: real = 0.002, beta1: real = 0.9, beta2: real = 0.999, eps: real >= 0 = 0.00000001"),
    (&["adagrad"], "lr: real = 0.01, eps: real >= 0 = 0.0000000001"),
    (&["rmsprop"], "lr: real = 0.01, alpha: real = 0.99, eps: real >= 0 = 0.00000001"),
    (&["adadelta"], "lr: real = 1, rho: real = 0.9, eps: real >= 0 = 0.000001"),
    (&["rprop"], "etaminus: real = 0.5, etaplus: real = 1.2, min_step: real >= 0 = 0.000001, max_step: real >= 0 = 50"),
    (&["lion"], "lr: real = 0.0001, beta1: real = 0.9, beta2: real = 0.99"),
    (&["scale_by_norm"], "max_norm: real = none, eps: real >= 0 = 0.000001"),
    // Drawn numbers.
    (&["dropout", "native_dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"], DROPOUT),
    (&["rand_like", "randn_like", "bernoulli", "poisson", "binomial", "normal"], KEY),
    (&["rrelu"], "lower: real >= 0 = 0.125, upper: real >= 0 = 0.3333333333333333, key: numbers >= 0 = none"),
    (&["uniform"], "from: real = 0, to: real = 1, key: numbers >= 0 = none"),
    (&["exponential"], "lambd: real >= 0 = 1, key: numbers >= 0 = none"),
    (&["geometric"], "p: real >= 0 = none, key: numbers >= 0 = none"),
    (&["log_normal"], "mean: real = 1, std: real >= 0 = 2, key: numbers >= 0 = none"),
    (&["cauchy"], "median: real = 0, sigma: real >= 0 = 1, key: numbers >= 0 = none"),
    (&["random"], "from: number = 0, to: number = none, key: numbers >= 0 = none"),
    (&["randint_like"], "low: number = 0, high: number = none, key: numbers >= 0 = none"),
];
