//! Random numbers: functions of the global index, so that they are the same in every sharding.

use super::{Alike, pointwise, shape_alone};
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim::Rest;
use crate::rules::terms::{ALL, AVG, MAX, MIN, NORM2, P, R, affine, increasing, linear, row};

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Alike> {
    vec![
        (&["rand_like"], shape_alone(drawn(1)).passing(row([NORM2], [R]))),
        (&[
            "randn_like", "randint_like", "uniform", "exponential", "geometric", "log_normal", "cauchy", "random",
        ], shape_alone(drawn(1))),
        (&["bernoulli"], drawn(1).passings([])),
        (&["dropout"], drawn(1).passings([linear(ALL), increasing(ALL)])),
        (&["native_dropout"], RuleBuilder::new().inputs(1, [Rest]).outputs(2, [Rest]).regions([Rest])
            .passings([row([P], [P, R]), row([AVG], [AVG, R]), row([MIN], [MIN, R]), row([MAX], [MAX, R])])),
        (&["poisson"], drawn(1).passings([])),
        (&["binomial"], drawn(2).passings([])),
        // Mean and deviation.
        (&["normal"], drawn(2).passings([linear(ALL), affine(ALL), increasing([0])])),
        (&["rrelu"], drawn(1).passing(increasing(ALL))),
        // Dropped elements become a constant other than 0.
        (&["alpha_dropout"], drawn(1).passings([affine(ALL), increasing(ALL)])),
        // Drops all of a channel or none.
        (&["feature_dropout"], channels().passings([linear(ALL), increasing(ALL)])),
        (&["feature_alpha_dropout"], channels().passings([affine(ALL), increasing(ALL)])),
    ]
}

/// A rank has to know the indices of its random numbers.
fn drawn(inputs: usize) -> RuleBuilder {
    pointwise(inputs).regions([Rest])
}

fn channels() -> RuleBuilder {
    let dims = ['b'.into(), 'c'.into(), Rest];
    RuleBuilder::new().input(dims.clone()).output(dims).regions(['b', 'c'])
}
