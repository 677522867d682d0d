//! Random numbers: functions of the global index, so that a rank draws what any other sharding would have drawn.

use super::{Alike, pointwise};
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim::Rest;
use crate::rules::terms::{ALL, AVG, MAX, MIN, P, PROD, R, affine, increasing, linear, row};

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Alike> {
    vec![
        // Of the input the shape alone matters.
        (&[
            "randn_like", "randint_like", "uniform", "exponential", "geometric", "log_normal", "cauchy", "random",
        ], pointwise(1)
            .passings([row([P], [R]), row([AVG], [R]), row([PROD], [R]), row([MIN], [R]), row([MAX], [R])])),
        (&["poisson"], pointwise(1).passings([])),
        (&["binomial"], pointwise(2).passings([])),
        // Mean and deviation.
        (&["normal"], pointwise(2).passings([linear(ALL), affine(ALL), increasing([0])])),
        (&["rrelu"], pointwise(1).passing(increasing(ALL))),
        // What is dropped becomes a constant other than 0.
        (&["alpha_dropout"], pointwise(1).passings([affine(ALL), increasing(ALL)])),
        // All of a channel or none.
        (&["feature_dropout"], channels().passings([linear(ALL), increasing(ALL)])),
        (&["feature_alpha_dropout"], channels().passings([affine(ALL), increasing(ALL)])),
    ]
}

fn channels() -> RuleBuilder {
    let dims = ['b'.into(), 'c'.into(), Rest];
    RuleBuilder::new().input(dims.clone()).output(dims)
}
