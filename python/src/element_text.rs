//! One element of any type as a number, for messages.

use reshard_kernels::DType;

/// A binary float of at most 16 bits: exponent bits, mantissa bits, bias, and the encoding of special values.
struct Small {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

/// The encoding of infinities and NaNs in a small float.
#[derive(Clone, Copy)]
enum Special {
    /// The largest exponent: infinities, and NaNs with a mantissa.
    Ieee,
    /// All bits of exponent and mantissa: NaN.
    AllOnes,
    /// Minus zero: NaN.
    MinusZero,
}

impl Small {
    fn value(&self, bits: u64) -> f64 {
        let (ones, all) = ((1 << self.exponent) - 1, (1_u64 << (self.exponent + self.mantissa)) - 1);
        let (exponent, mantissa) = ((bits >> self.mantissa) & ones, bits & ((1 << self.mantissa) - 1));
        let sign = if bits > all { -1.0 } else { 1.0 };
        match self.special {
            Special::Ieee if exponent == ones => {
                return if mantissa == 0 { sign * f64::INFINITY } else { f64::NAN };
            }
            Special::AllOnes if bits & all == all => return f64::NAN,
            Special::MinusZero if bits == all + 1 => return f64::NAN,
            Special::Ieee | Special::AllOnes | Special::MinusZero => {}
        }
        let whole = if exponent == 0 { mantissa } else { mantissa + (1 << self.mantissa) };
        let power = (exponent.max(1) as i32) - self.bias - (self.mantissa as i32);
        sign * (whole as f64) * 2_f64.powi(power)
    }
}

/// Prints the number of one element's bytes; numbers whose text is ambiguous are followed by their bits.
pub(crate) fn element_text(dtype: DType, bytes: &[u8]) -> String {
    let join = |n: u64, byte: &u8| (n << 8) | u64::from(*byte);
    let bits = if cfg!(target_endian = "little") {
        bytes.iter().rev().fold(0, join)
    } else {
        bytes.iter().fold(0, join)
    };
    let small = |exponent, mantissa, bias, special| {
        float(Small { exponent, mantissa, bias, special }.value(bits), bits)
    };
    match dtype {
        DType::Bool if bits <= 1 => (bits == 1).to_string(),
        DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => bits.to_string(),
        DType::I8 => (bits as i8).to_string(),
        DType::I16 => (bits as i16).to_string(),
        DType::I32 => (bits as i32).to_string(),
        DType::I64 => (bits as i64).to_string(),
        DType::F32 if !f32::from_bits(bits as u32).is_nan() => f32::from_bits(bits as u32).to_string(),
        DType::F32 => float(f64::NAN, bits),
        DType::F64 => float(f64::from_bits(bits), bits),
        DType::C64 => {
            let (real, imaginary) = bytes.split_at(bytes.len() / 2);
            format!("{} + {}i", element_text(DType::F32, real), element_text(DType::F32, imaginary))
        }
        DType::F16 => small(5, 10, 15, Special::Ieee),
        DType::BF16 => small(8, 7, 127, Special::Ieee),
        DType::F8_E5M2 => small(5, 2, 15, Special::Ieee),
        DType::F8_E4M3 => small(4, 3, 7, Special::AllOnes),
        DType::F8_E5M2FNUZ => small(5, 2, 16, Special::MinusZero),
        DType::F8_E4M3FNUZ => small(4, 3, 8, Special::MinusZero),
        DType::F8_E8M0 if bits == 0xff => float(f64::NAN, bits),
        DType::F8_E8M0 => float(2_f64.powi(bits as i32 - 127), bits),
        // Their elements share bytes.
        DType::F4 | DType::F6_E2M3 | DType::F6_E3M2 => format!("{bits:#x}"),
    }
}

fn float(value: f64, bits: u64) -> String {
    if value.is_nan() { format!("NaN ({bits:#x})") } else { value.to_string() }
}
