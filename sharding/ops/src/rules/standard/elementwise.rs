//! Element by element: bits, truth values, steps, scales and complex numbers, stored in a last dim of two.

use super::{Alike, pointwise};
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim::{self, Rest};
use crate::rules::factor::FactorKind;
use crate::rules::terms::{
    ALL, MAX, MIN, P, PROD, R, affine, decreasing, increasing, linear, multilinear, row, selecting,
};

/// The dims of a complex tensor: any, and one of the real and the imaginary part.
fn complex() -> [Dim; 2] {
    [Rest, 'z'.into()]
}

/// Keeps the last dim of two whole.
fn whole_pair(rule: RuleBuilder) -> RuleBuilder {
    rule.role('z', FactorKind::NeedReplication).size('z', 2)
}

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Alike> {
    vec![
        // One input.
        (&["clamp_min", "clamp_max", "isposinf"], pointwise(1).passing(increasing(ALL))),
        (&["signbit", "isneginf", "angle"], pointwise(1).passing(decreasing(ALL))),
        (&["exp2"], pointwise(1).passings([increasing(ALL), row([P], [PROD])])),
        (&["deg2rad", "rad2deg"], pointwise(1).passings([linear(ALL), increasing(ALL)])),
        (&["positive"], pointwise(1).passing(selecting(ALL))),
        (&["bitwise_not"], pointwise(1).passings([affine(ALL), decreasing(ALL)])),
        // If the least partial value has a result, all others have one.
        (&["acosh"], pointwise(1).passing(row([MIN], [MIN]))),
        (&["frexp"], RuleBuilder::new().inputs(1, [Rest]).outputs(2, [Rest]).passings([])),
        // Several inputs, broadcast.
        (&["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm", "isclose"], pointwise(2).passings([])),
                // A shift amount may not be partial: some partial values are negative.
        (&["bitwise_left_shift"], pointwise(2).passings([multilinear([0]), increasing([0])])),
        (&["bitwise_right_shift"], pointwise(2).passing(increasing([0]))),
        (&["ldexp"], pointwise(2).passings([multilinear([0]), increasing([0]), row([PROD, P], [PROD])])),
        (&["heaviside"], pointwise(2).passings([affine([1]), increasing([1]), row([R, PROD], [PROD])])),
        (&["fmax"], pointwise(2).passings([increasing(ALL), row([MAX, MAX], [MAX])])),
        (&["fmin"], pointwise(2).passings([increasing(ALL), row([MIN, MIN], [MIN])])),
        (&["logaddexp2", "nextafter"], pointwise(2).passing(increasing(ALL))),
        (&["fma"], pointwise(3).passings([linear([0, 2]), linear([1, 2]), affine(ALL), increasing([2])])),
        (&["prelu"], RuleBuilder::new().input(['b'.into(), 'c'.into(), Rest]).input(['c'])
            .output(['b'.into(), 'c'.into(), Rest]).passings([affine([1]), decreasing([1])])),
        // Complex numbers.
        (&["complex"], whole_pair(pointwise_to_pairs()).passings([selecting(ALL), affine(ALL), increasing(ALL)])),
        (&["polar"], whole_pair(pointwise_to_pairs()).passing(multilinear([0]))),
        (&["real", "imag"], whole_pair(RuleBuilder::new().input(complex()).output([Rest])).passing(selecting(ALL))),
        (&["conj"], whole_pair(RuleBuilder::new().input(complex()).output(complex())).passing(linear(ALL))),
    ]
}

fn pointwise_to_pairs() -> RuleBuilder {
    RuleBuilder::new().inputs(2, [Rest]).output(complex())
}
