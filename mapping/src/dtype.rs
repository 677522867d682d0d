//! Floating-point types: their names, and chains of conversions.

use safetensors::Dtype;

use crate::error::{Error, ErrorKind, shown};

/// The types that elements can be converted between, with their names in rules.
const FLOATS: [(&str, Dtype); 4] =
    [("f16", Dtype::F16), ("bf16", Dtype::BF16), ("f32", Dtype::F32), ("f64", Dtype::F64)];

/// The same types as PyTorch and NumPy name them.
const ALIASES: [(&str, &str); 8] = [
    ("float16", "f16"),
    ("half", "f16"),
    ("bfloat16", "bf16"),
    ("float32", "f32"),
    ("float", "f32"),
    ("float64", "f64"),
    ("double", "f64"),
    ("torch.bfloat16", "bf16"),
];

/// Returns the dtype of this name.
pub(crate) fn float(name: &str) -> Result<Dtype, Error> {
    let known = ALIASES.into_iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    FLOATS.into_iter().find(|(float, _)| *float == known).map(|(_, dtype)| dtype).ok_or_else(|| {
        let message = format!("unknown type `{}`; expected one of: f16, bf16, f32, f64", shown(name));
        Error::new(ErrorKind::Syntax, message)
    })
}

/// Returns the name of a type in rules; `None` if its elements cannot be converted.
pub(crate) fn name(dtype: Dtype) -> Option<&'static str> {
    FLOATS.into_iter().find(|(_, float)| *float == dtype).map(|(name, _)| name)
}

/// Returns `true` if every value of `from` is a value of `to`.
fn is_exact(from: Dtype, to: Dtype) -> bool {
    let narrow = from == Dtype::F16 || from == Dtype::BF16;
    (narrow && (to == Dtype::F32 || to == Dtype::F64)) || (from == Dtype::F32 && to == Dtype::F64)
}

/// Adds a conversion to a chain that starts at `stored`.
///
/// A wider type in the middle changes no value, so it is left out: bf16 to f32 to bf16 converts nothing.
pub(crate) fn push_cast(casts: &mut Vec<Dtype>, stored: Dtype, to: Dtype) {
    if let [before @ .., last] = &casts[..]
        && is_exact(before.last().copied().unwrap_or(stored), *last)
    {
        casts.pop();
    }
    if casts.last().copied().unwrap_or(stored) != to {
        casts.push(to);
    }
}

#[cfg(test)]
mod tests {
    use super::push_cast;
    use safetensors::Dtype::{self, BF16, F16, F32, F64};

    #[test]
    fn only_conversions_that_round_stay_in_a_chain() {
        let cases: [(Dtype, &[Dtype], &[Dtype]); 6] = [
            (BF16, &[F32, BF16], &[]),
            (F32, &[F64, BF16], &[BF16]),
            (F32, &[F16, F32], &[F16, F32]),
            (F32, &[F16, F32, F64, F16], &[F16]),
            (F32, &[F16, BF16], &[F16, BF16]),
            (F16, &[F16], &[]),
        ];
        for (stored, given, expected) in cases {
            let mut casts = Vec::new();
            for to in given {
                push_cast(&mut casts, stored, *to);
            }
            assert_eq!(casts, expected, "{stored:?} {given:?}");
        }
    }
}
