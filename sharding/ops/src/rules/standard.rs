//! The ops whose rule needs neither arguments nor shapes: each rule once, with the names that have it.

mod elementwise;
mod matrices;
mod optimizers;
mod parameters;
mod random;
mod special;

pub(super) use parameters::PARAMETERS;

use super::aliasing::OutputAliasing;
use super::builder::RuleBuilder;
use super::factor::Dim::{self, Rest};
use super::factor::FactorKind;
use super::terms::{
    ALL, AVG, MAX, MIN, NORM2, P, PROD, R, affine, decreasing, increasing, linear, multilinear, row,
    selecting,
};

use reshard_sharding::ReduceOp;

/// The dims of a scalar.
pub(super) const SCALAR: [Dim; 0] = [];

/// Returns the rule of `inputs` inputs, broadcast, and an output as large.
pub(super) fn pointwise(inputs: usize) -> RuleBuilder {
    RuleBuilder::new().inputs(inputs, [Rest]).output([Rest])
}

/// Only the shape of the input matters, so that partial values of it give replicas of the result.
fn shape_alone(rule: RuleBuilder) -> RuleBuilder {
    rule.passings([row([P], [R]), row([AVG], [R]), row([PROD], [R]), row([MIN], [R]), row([MAX], [R])])
}

fn one(factor: char) -> Dim {
    factor.into()
}

/// Names, and the rule that all of them have.
type Alike = (&'static [&'static str], RuleBuilder);

/// All of them.
pub(super) fn rules() -> Vec<Alike> {
    [
        common(),
        elementwise::rules(),
        special::rules(),
        random::rules(),
        matrices::rules(),
        optimizers::rules(),
    ]
    .concat()
}

#[rustfmt::skip]
fn common() -> Vec<Alike> {
    vec![
        // Pointwise, one input. Increasing ops pass greatest and least partial values, also the identities of
        // empty shards: log and sqrt do not, which have no value for -inf.
        (&[
            "relu", "relu6", "expm1", "sigmoid", "tanh", "sinh", "asinh", "atan", "erf", "floor", "ceil",
            "round", "trunc", "leaky_relu", "elu", "selu", "celu", "softplus", "hardtanh", "hardsigmoid",
            "log_sigmoid", "hardshrink", "softshrink", "tanhshrink", "clamp",
        ], pointwise(1).passing(increasing(ALL))),
        (&["exp"], pointwise(1).passings([increasing(ALL), row([P], [PROD])])),
        (&["sign", "cbrt"], pointwise(1).passings([increasing(ALL), row([PROD], [PROD])])),
        (&[
            "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atanh",
            "cosh", "gelu", "silu", "mish", "hardswish", "softsign", "threshold", "frac", "isnan", "isinf",
            "isfinite", "pow_scalar", "nan_to_num", "logical_not",
        ], pointwise(1).passings([])),
        (&["abs"], pointwise(1).passings([row([PROD], [PROD]), row([NORM2], [NORM2])])),
        (&["square"], pointwise(1).passings([row([PROD], [PROD]), row([NORM2], [P])])),
        (&["reciprocal"], pointwise(1).passing(row([PROD], [PROD]))),
        (&["neg"], pointwise(1).passings([linear(ALL), decreasing(ALL)])),
        (&["erfc"], pointwise(1).passing(decreasing(ALL))),
        (&["add_scalar", "sub_scalar"], pointwise(1).passings([affine(ALL), increasing(ALL)])),
        (&["rsub_scalar"], pointwise(1).passings([affine(ALL), decreasing(ALL)])),
        (&["mul_scalar", "div_scalar"], pointwise(1).passing(linear(ALL))),
        (&["copy", "clone", "detach", "contiguous"], pointwise(1).passing(selecting(ALL))),
        (&["zeros_like", "ones_like", "full_like"], shape_alone(pointwise(1)).passing(row([NORM2], [R]))),
        // Pointwise, several inputs, broadcast.
        (&["add"], pointwise(2).passings([linear(ALL), affine(ALL), increasing(ALL)])),
        (&["sub", "sgd"], pointwise(2).passings([linear(ALL), affine(ALL), increasing([0]), decreasing([1])])),
        (&["mul"], pointwise(2).passings([multilinear(ALL), row([PROD, PROD], [PROD])])),
        (&["div"], pointwise(2).passings([multilinear([0]), row([PROD, PROD], [PROD])])),
        (&[
            "pow", "atan2", "hypot", "xlogy", "copysign", "fmod", "remainder", "floor_divide", "eq", "ne",
            "logical_xor", "logical_and", "logical_or",
        ], pointwise(2).passings([])),
        (&["maximum"], pointwise(2).passings([increasing(ALL), row([MAX, MAX], [MAX])])),
        (&["minimum"], pointwise(2).passings([increasing(ALL), row([MIN, MIN], [MIN])])),
        (&["logaddexp"], pointwise(2).passing(increasing(ALL))),
        (&["lt", "le"], pointwise(2).passings([decreasing([0]), increasing([1])])),
        (&["gt", "ge"], pointwise(2).passings([increasing([0]), decreasing([1])])),
        (&["copy_"], pointwise(2).passing(selecting(ALL)).aliasing(OutputAliasing::InPlace(vec![0]))),
        (&["where"], pointwise(3).passings([selecting([1, 2]), affine([1, 2]), increasing([1, 2])])),
        (&["lerp"], pointwise(3).passings([linear([0, 1]), affine(ALL)])),
        (&["addcmul"], pointwise(3).passings([linear([0, 1]), linear([0, 2]), affine(ALL), increasing([0])])),
        (&["addcdiv"], pointwise(3).passings([linear([0, 1]), affine([0, 1]), increasing([0])])),
        (&["clamp_tensor"], pointwise(3)
            .passings([increasing(ALL), row([MAX, MAX, R], [MAX]), row([MIN, R, MIN], [MIN]),
                row([R, MIN, MIN], [MIN])])),
        // Products.
        (&["mm"], RuleBuilder::new().input(['m', 'k']).input(['k', 'n']).output(['m', 'n'])),
        (&["bmm"], RuleBuilder::new().input(['b', 'm', 'k']).input(['b', 'k', 'n']).output(['b', 'm', 'n'])),
        (&["dot", "vdot"], RuleBuilder::new().input(['k']).input(['k']).output(SCALAR)),
        (&["mv"], RuleBuilder::new().input(['m', 'k']).input(['k']).output(['m'])),
        (&["outer"], RuleBuilder::new().input(['m']).input(['n']).output(['m', 'n'])
            .passings([multilinear(ALL), row([PROD, PROD], [PROD])])),
        // Indexing.
        (&["embedding"], RuleBuilder::new().input(['v', 'd']).input([Rest]).output([Rest, one('d')])
            .regions(['v']).passings([multilinear([0]), row([PROD, R], [PROD]), row([MIN, R], [MIN]), row([MAX, R], [MAX]),
                row([NORM2, R], [NORM2])])),
        (&["searchsorted"], RuleBuilder::new().input(['n']).input([Rest]).output([Rest])
            .passings([row([R, MIN], [MIN]), row([R, MAX], [MAX])])),
        (&["bucketize"], RuleBuilder::new().input([Rest]).input(['n']).output([Rest])
            .passings([row([MIN, R], [MIN]), row([MAX, R], [MAX])])),
        (&["isin"], RuleBuilder::new().input([Rest]).input(['n']).output([Rest])
            .role('n', FactorKind::Reduction(ReduceOp::Max)).passings([])),
        // Matrices.
        (&["t"], RuleBuilder::new().input(['i', 'j']).output(['j', 'i']).passing(selecting(ALL))),
        (&["tril", "triu"], RuleBuilder::new().input([Rest, one('i'), one('j')])
            .output([Rest, one('i'), one('j')]).regions(['i', 'j']).passing(selecting(ALL))),
        (&["diagonal"], RuleBuilder::new().input([Rest, one('i'), one('i')])
            .output([Rest, one('i')]).passing(selecting(ALL))),
        (&["trace"], RuleBuilder::new().input(['i', 'i']).output(SCALAR).passing(linear(ALL))),
        // Attention and optimisers.
        (&["rotary"], RuleBuilder::new().input([Rest, one('s'), one('d')]).input(['s', 'd']).input(['s', 'd'])
            .output([Rest, one('s'), one('d')]).role('d', FactorKind::NeedReplication)
            .passings([multilinear([0]), linear([1, 2])])),
        (&["sgd_momentum"], RuleBuilder::new().inputs(3, [Rest]).outputs(2, [Rest])
            .passings([linear(ALL), row([AVG, R, R], [AVG, R]), row([MIN, R, R], [MIN, R]),
                row([MAX, R, R], [MAX, R])])),
        (&["adam", "adamw"], RuleBuilder::new().inputs(4, [Rest]).outputs(3, [Rest]).passings([])),
        (&["scale_by_norm"], RuleBuilder::new().input([Rest]).input(SCALAR)
            .output([Rest]).passing(multilinear([0]))),
    ]
}
