//! Special functions: those monotonic on the whole line pass greatest and least partial values.

use super::{Alike, pointwise};
use crate::rules::terms::{ALL, MAX, MIN, decreasing, increasing, multilinear, row};

#[rustfmt::skip]
pub(super) fn rules() -> Vec<Alike> {
    vec![
        (&["ndtr", "log_ndtr", "i1"], pointwise(1).passing(increasing(ALL))),
        (&["erfcx"], pointwise(1).passing(decreasing(ALL))),
        // They decrease where they have values: if the least partial value has one, all others have one.
        (&[
            "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
        ], pointwise(1).passing(row([MIN], [MAX]))),
        (&[
            "i0", "i0e", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0", "airy_ai",
            "digamma", "lgamma", "polygamma", "mvlgamma", "entr", "erfinv", "ndtri", "logit", "sinc",
        ], pointwise(1).passings([])),
        (&[
            "zeta", "igamma", "igammac", "chebyshev_polynomial_t", "chebyshev_polynomial_u",
            "chebyshev_polynomial_v", "chebyshev_polynomial_w", "shifted_chebyshev_polynomial_t",
            "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
            "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
        ], pointwise(2).passings([])),
        (&["xlog1py"], pointwise(2).passing(multilinear([0]))),
    ]
}
