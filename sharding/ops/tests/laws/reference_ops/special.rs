//! Special functions.

use reshard_verify::Data;

use super::{Example, example};

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let shapes = "6,5; 2,3";
    let positive = Data::Made(|shape, r| Data::Positive.whole(shape, r));
    let beyond_one =
        Data::Made(|shape, r| Data::Positive.whole(shape, r).into_iter().map(|v| v + 1.0).collect());
    let chance =
        Data::Made(|shape, r| Data::Real.whole(shape, r).into_iter().map(|v| (v + 3.5) / 7.0).collect());
    let unit = Data::Made(|shape, r| Data::Real.whole(shape, r).into_iter().map(|v| v / 4.0).collect());
    for (call, data) in [
        ("ndtr", Data::Real),
        ("log_ndtr", Data::Real),
        ("erfcx", Data::Real),
        ("i0", Data::Real),
        ("i1", Data::Real),
        ("i0e", Data::Real),
        ("i1e", Data::Real),
        ("bessel_j0", Data::Real),
        ("bessel_j1", Data::Real),
        ("bessel_y0", positive),
        ("bessel_y1", positive),
        ("modified_bessel_k0", positive),
        ("modified_bessel_k1", positive),
        ("scaled_modified_bessel_k0", positive),
        ("scaled_modified_bessel_k1", positive),
        ("spherical_bessel_j0", Data::Real),
        ("sinc", Data::Real),
        ("airy_ai", Data::Real),
        ("digamma", positive),
        ("lgamma", positive),
        ("polygamma", positive),
        ("polygamma(n=0)", positive),
        ("polygamma(n=2)", positive),
        ("mvlgamma", beyond_one),
        ("entr", positive),
        ("erfinv", unit),
        ("ndtri", chance),
        ("logit", chance),
        ("logit(eps=0.25)", chance),
        ("mvlgamma(p=3)", beyond_one),
    ] {
        out.push(example(call, shapes).data(&[data]).near());
    }
    let degree = Data::Index { below: 5 };
    for (call, data) in [
        ("zeta", [beyond_one, positive]),
        ("igamma", [positive, positive]),
        ("igammac", [positive, positive]),
        ("xlog1py", [Data::Real, positive]),
        ("chebyshev_polynomial_t", [Data::Real, degree]),
        ("chebyshev_polynomial_u", [Data::Real, degree]),
        ("chebyshev_polynomial_v", [Data::Real, degree]),
        ("chebyshev_polynomial_w", [Data::Real, degree]),
        ("shifted_chebyshev_polynomial_t", [Data::Real, degree]),
        ("shifted_chebyshev_polynomial_u", [Data::Real, degree]),
        ("shifted_chebyshev_polynomial_v", [Data::Real, degree]),
        ("shifted_chebyshev_polynomial_w", [Data::Real, degree]),
        ("hermite_polynomial_h", [Data::Real, degree]),
        ("hermite_polynomial_he", [Data::Real, degree]),
        ("laguerre_polynomial_l", [Data::Real, degree]),
        ("legendre_polynomial_p", [Data::Real, degree]),
    ] {
        out.push(example(call, "6,5 6,5; 2,3 3").data(&data).near());
    }
    out
}
