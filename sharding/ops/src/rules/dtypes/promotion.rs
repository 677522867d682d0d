//! The narrowest element type that has the elements of two others.

use reshard_kernels::DType;

/// Returns the type of a sum of elements of these types.
///
/// Truth values count as 0 and 1, integers become real numbers next to real numbers, and real numbers complex ones next
/// to complex ones. Of two real types the wider one is taken; two different ones of the same width give f32. An
/// unsigned and a signed integer type give a signed one that has both, and i64 for u64, for which there is none.
pub(super) fn promoted(one: DType, two: DType) -> DType {
    match (one.is_integral(), two.is_integral()) {
        (true, true) => of_integers(one, two),
        (true, false) => two,
        (false, true) => one,
        (false, false) if one == two => one,
        (false, false) if one == DType::C64 || two == DType::C64 => DType::C64,
        (false, false) if one.bits() == two.bits() => DType::F32,
        (false, false) => wider(one, two),
    }
}

fn wider(one: DType, two: DType) -> DType {
    if two.bits() > one.bits() { two } else { one }
}

fn of_integers(one: DType, two: DType) -> DType {
    let is_unsigned = |d| matches!(d, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    if one == DType::Bool {
        return two;
    }
    if two == DType::Bool || is_unsigned(one) == is_unsigned(two) {
        return if two == DType::Bool { one } else { wider(one, two) };
    }
    let (unsigned, signed) = if is_unsigned(one) { (one, two) } else { (two, one) };
    let next = match unsigned.bits() {
        8 => DType::I16,
        16 => DType::I32,
        _ => DType::I64,
    };
    wider(next, signed)
}

#[cfg(test)]
mod tests {
    use super::promoted;
    use reshard_kernels::DType::{
        self, BF16, Bool, C64, F8_E4M3, F8_E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U32, U64,
    };

    #[test]
    fn a_promoted_type_has_the_elements_of_both() {
        let cases: [(DType, DType, DType); 14] = [
            (Bool, Bool, Bool),
            (Bool, U8, U8),
            (Bool, BF16, BF16),
            (I8, I32, I32),
            (U8, I8, I16),
            (U8, I32, I32),
            (U32, I32, I64),
            (U64, I64, I64),
            (I64, F16, F16),
            (F16, BF16, F32),
            (BF16, F32, F32),
            (F8_E4M3, F8_E5M2, F32),
            (F64, C64, C64),
            (I16, I16, I16),
        ];
        for (one, two, both) in cases {
            assert_eq!((promoted(one, two), promoted(two, one)), (both, both), "{one} and {two}");
        }
    }
}
