//! Element by element: bits, truth values, steps, scales and complex numbers, stored in a last dim of two.

use reshard_verify::Data;

use super::{Example, example};

const ONE: &str = "6,5; 2,3";
const TWO: &str = "6,5 6,5; 2,3 3";

pub fn all() -> Vec<Example> {
    let mut out = Vec::new();
    let real = Data::Real;
    let infinite = Data::Made(|shape, r| {
        let odd = |v: f64| if v.abs() > 6.0 { v.signum() * f64::INFINITY } else { v };
        Data::Integers.whole(shape, r).into_iter().map(odd).collect()
    });
    let beyond_one =
        Data::Made(|shape, r| Data::Positive.whole(shape, r).into_iter().map(|v| v + 1.0).collect());
    for (call, data) in [
        ("clamp_min(min=-1)", real),
        ("clamp_max(max=1)", real),
        ("isposinf", infinite),
        ("isneginf", infinite),
        ("signbit", real),
        ("angle", real),
        ("exp2", real),
        ("deg2rad", real),
        ("rad2deg", real),
        ("positive", real),
        ("bitwise_not", Data::Integers),
        ("acosh", beyond_one),
    ] {
        out.push(example(call, ONE).data(&[data]).near());
    }
    for call in ["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"] {
        out.push(example(call, TWO).data(&[Data::Index { below: 16 }; 2]));
    }
    let (some, shift) = (Data::Integers, Data::Index { below: 4 });
    let steps = Data::Made(|shape, r| {
        Data::Integers.whole(shape, r).into_iter().map(|v| (v / 4.0).trunc()).collect()
    });
    for (call, data) in [
        ("bitwise_left_shift", [some, shift]),
        ("bitwise_right_shift", [some, shift]),
        ("ldexp", [real, some]),
        ("heaviside", [steps, real]),
        ("fmax", [real; 2]),
        ("fmin", [real; 2]),
        ("isclose(rtol=0.25,atol=1)", [real; 2]),
        ("isclose", [Data::Index { below: 3 }; 2]),
        ("logaddexp2", [real; 2]),
    ] {
        out.push(example(call, TWO).data(&data).near());
    }
    // To the last bit, which is all that it changes.
    out.push(example("nextafter", TWO).data(&[real; 2]));
    out.push(example("frexp", ONE).data(&[real]));
    out.push(example("fma", "6,5 6,5 6,5; 2,3 3 2,3").data(&[real; 3]).near().budget(300));
    out.push(example("prelu", "6,5,2 5; 2,3,2 3").data(&[real; 2]));
    out.push(example("complex", TWO).data(&[real; 2]));
    out.push(example("polar", TWO).data(&[real; 2]).near());
    for call in ["real", "imag", "conj"] {
        out.push(example(call, "6,5,2; 2,3,2"));
    }
    out
}
