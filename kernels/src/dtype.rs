//! Element types: an opaque size for copies, arithmetic for some.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{CombineOp, Error};

/// The type of a tensor's elements; every one that safetensors files have.
///
/// Copies need only [`element_bytes`](DType::element_bytes); [`f64`](DType::F64), f32, f16, bf16 and the integers
/// also have arithmetic. Displays in lower case (`f32`, `bf16`, `f8_e4m3`); upper case parses too.
///
/// ```
/// use reshard_kernels::DType;
/// let dtype: DType = "BF16".parse()?; // also bfloat16 and torch.bfloat16
/// assert_eq!((dtype, dtype.to_string()), (DType::BF16, "bf16".to_string()));
/// assert_eq!(dtype.element_bytes()?, 2);
/// # Ok::<(), reshard_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, reason = "the names that the file format and the hardware use")]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum DType {
    Bool,
    F4,
    F6_E2M3,
    F6_E3M2,
    U8,
    I8,
    F8_E5M2,
    F8_E4M3,
    F8_E8M0,
    F8_E4M3FNUZ,
    F8_E5M2FNUZ,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    C64,
    F64,
    I64,
    U64,
}

impl DType {
    /// All of them, smallest elements first.
    pub const ALL: [DType; 22] = [
        DType::Bool,
        DType::F4,
        DType::F6_E2M3,
        DType::F6_E3M2,
        DType::U8,
        DType::I8,
        DType::F8_E5M2,
        DType::F8_E4M3,
        DType::F8_E8M0,
        DType::F8_E4M3FNUZ,
        DType::F8_E5M2FNUZ,
        DType::I16,
        DType::U16,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::U32,
        DType::F32,
        DType::C64,
        DType::F64,
        DType::I64,
        DType::U64,
    ];

    /// Returns the name in NumPy, ml_dtypes, PyTorch and JAX.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// assert_eq!((DType::BF16.framework_name(), DType::F8_E4M3.framework_name()), ("bfloat16", "float8_e4m3fn"));
    /// ```
    #[doc(hidden)]
    pub fn framework_name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I8 => "int8",
            DType::U8 => "uint8",
            DType::I16 => "int16",
            DType::U16 => "uint16",
            DType::I32 => "int32",
            DType::U32 => "uint32",
            DType::I64 => "int64",
            DType::U64 => "uint64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::C64 => "complex64",
            DType::F8_E5M2 => "float8_e5m2",
            DType::F8_E4M3 => "float8_e4m3fn",
            DType::F8_E8M0 => "float8_e8m0fnu",
            DType::F8_E4M3FNUZ => "float8_e4m3fnuz",
            DType::F8_E5M2FNUZ => "float8_e5m2fnuz",
            DType::F4 => "float4_e2m1fn",
            DType::F6_E2M3 => "float6_e2m3fn",
            DType::F6_E3M2 => "float6_e3m2fn",
        }
    }

    /// Returns the name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::F4 => "f4",
            DType::F6_E2M3 => "f6_e2m3",
            DType::F6_E3M2 => "f6_e3m2",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::F8_E5M2 => "f8_e5m2",
            DType::F8_E4M3 => "f8_e4m3",
            DType::F8_E8M0 => "f8_e8m0",
            DType::F8_E4M3FNUZ => "f8_e4m3fnuz",
            DType::F8_E5M2FNUZ => "f8_e5m2fnuz",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::F32 => "f32",
            DType::C64 => "c64",
            DType::F64 => "f64",
            DType::I64 => "i64",
            DType::U64 => "u64",
        }
    }

    /// Returns the bits of one element.
    #[inline]
    pub fn bits(self) -> usize {
        match self {
            DType::F4 => 4,
            DType::F6_E2M3 | DType::F6_E3M2 => 6,
            DType::Bool
            | DType::U8
            | DType::I8
            | DType::F8_E5M2
            | DType::F8_E4M3
            | DType::F8_E8M0
            | DType::F8_E4M3FNUZ
            | DType::F8_E5M2FNUZ => 8,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 16,
            DType::I32 | DType::U32 | DType::F32 => 32,
            DType::C64 | DType::F64 | DType::I64 | DType::U64 => 64,
        }
    }

    /// Returns the bytes of one element.
    ///
    /// Errors: [`Error::SubByte`] for f4 and f6, whose elements share bytes with their neighbours.
    #[inline]
    pub fn element_bytes(self) -> Result<usize, Error> {
        if self.bits().is_multiple_of(8) { Ok(self.bits() / 8) } else { Err(Error::SubByte { dtype: self }) }
    }

    /// Returns the arithmetic of the elements.
    #[inline]
    pub(crate) fn arithmetic(self) -> Arithmetic {
        match self {
            DType::Bool
            | DType::F4
            | DType::F6_E2M3
            | DType::F6_E3M2
            | DType::F8_E5M2
            | DType::F8_E4M3
            | DType::F8_E8M0
            | DType::F8_E4M3FNUZ
            | DType::F8_E5M2FNUZ
            | DType::C64 => Arithmetic::None,
            DType::U8 => Arithmetic::U8,
            DType::I8 => Arithmetic::I8,
            DType::I16 => Arithmetic::I16,
            DType::U16 => Arithmetic::U16,
            DType::I32 => Arithmetic::I32,
            DType::U32 => Arithmetic::U32,
            DType::I64 => Arithmetic::I64,
            DType::U64 => Arithmetic::U64,
            DType::F16 => Arithmetic::F16,
            DType::BF16 => Arithmetic::BF16,
            DType::F32 => Arithmetic::F32,
            DType::F64 => Arithmetic::F64,
        }
    }

    /// Returns `true` if elements are integers or truth values, not real or complex numbers.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// assert!(DType::Bool.is_integral() && DType::I64.is_integral() && !DType::C64.is_integral());
    /// ```
    #[inline]
    pub fn is_integral(self) -> bool {
        match self {
            DType::Bool
            | DType::U8
            | DType::I8
            | DType::I16
            | DType::U16
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64 => true,
            DType::F4
            | DType::F6_E2M3
            | DType::F6_E3M2
            | DType::F8_E5M2
            | DType::F8_E4M3
            | DType::F8_E8M0
            | DType::F8_E4M3FNUZ
            | DType::F8_E5M2FNUZ
            | DType::F16
            | DType::BF16
            | DType::F32
            | DType::C64
            | DType::F64 => false,
        }
    }

    /// Succeeds if elements can be combined with `op`.
    ///
    /// ```
    /// use reshard_kernels::{CombineOp, DType};
    /// DType::BF16.check_combine(CombineOp::Sum)?;
    /// assert_eq!(DType::Bool.check_combine(CombineOp::Max).unwrap_err().to_string(), "max is not defined for bool");
    /// # Ok::<(), reshard_kernels::Error>(())
    /// ```
    ///
    /// Errors: [`Error::NoArithmetic`] for bool, the 8-bit and smaller floats, and complex numbers; for
    /// norms, also integers.
    #[doc(hidden)]
    #[inline]
    pub fn check_combine(self, op: CombineOp) -> Result<(), Error> {
        if self.arithmetic() == Arithmetic::None || (op.is_of_floats() && !self.is_real()) {
            return Err(self.no_arithmetic(&op));
        }
        Ok(())
    }

    /// Succeeds if elements can be averaged, that is summed and divided.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// assert_eq!(DType::I32.check_average().unwrap_err().to_string(), "avg is not defined for i32");
    /// ```
    ///
    /// Errors: [`Error::NoArithmetic`] unless the dtype is f64, f32, f16 or bf16: an integer mean would have to round.
    #[doc(hidden)]
    #[inline]
    pub fn check_average(self) -> Result<(), Error> {
        if self.is_real() { Ok(()) } else { Err(self.no_arithmetic(&"avg")) }
    }

    #[cold]
    fn no_arithmetic(self, op: &dyn fmt::Display) -> Error {
        Error::NoArithmetic { dtype: self, op: op.to_string() }
    }

    /// Returns `true` if elements are floats with arithmetic.
    #[inline]
    fn is_real(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }
}

/// The dtypes with arithmetic, one for each instance of the kernels in `combine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    None,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Further names: of scalar types, and PyTorch's older ones.
const ALIASES: [(&str, DType); 10] = [
    ("bool_", DType::Bool),
    ("byte", DType::U8),
    ("short", DType::I16),
    ("int", DType::I32),
    ("long", DType::I64),
    ("half", DType::F16),
    ("single", DType::F32),
    ("float", DType::F32),
    ("double", DType::F64),
    ("cfloat", DType::C64),
];

/// Module prefixes that a name may have, as in `torch.float32`.
const MODULES: [&str; 6] = ["torch", "numpy", "np", "ml_dtypes", "jax.numpy", "jnp"];

/// Parses [`DType::name`], the names of NumPy (`bfloat16`) and PyTorch's older names (`half`, `double`).
///
/// A module prefix is optional.
impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = |name: &str| {
            let is = |one: &str| one.eq_ignore_ascii_case(name);
            let ours = DType::ALL.into_iter().find(|dtype| is(dtype.name()) || is(dtype.framework_name()));
            ours.or_else(|| ALIASES.into_iter().find(|(alias, _)| is(alias)).map(|(_, dtype)| dtype))
        };
        let bare = MODULES.into_iter().find_map(|module| text.strip_prefix(module)?.strip_prefix('.'));
        known(bare.unwrap_or(text)).ok_or_else(|| Error::UnknownDType { text: text.to_string() })
    }
}

impl Serialize for DType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse::<DType>(), Ok(dtype));
            assert_eq!(dtype.to_string().to_uppercase().parse::<DType>(), Ok(dtype));
            let json = serde_json::to_string(&dtype).unwrap();
            assert_eq!(serde_json::from_str::<DType>(&json).unwrap(), dtype);
            assert_eq!(dtype.element_bytes().is_ok(), dtype.bits() % 8 == 0);
        }
        assert_eq!(DType::F4.element_bytes().unwrap_err().code(), "dtype");
    }

    #[test]
    fn names_of_frameworks_are_read_with_and_without_their_modules() {
        for dtype in DType::ALL {
            for module in ["", "torch.", "np.", "jax.numpy.", "ml_dtypes."] {
                let name = format!("{module}{}", dtype.framework_name());
                assert_eq!(name.parse::<DType>(), Ok(dtype), "{name}");
            }
        }
        let older = [
            ("half", DType::F16),
            ("torch.double", DType::F64),
            ("np.single", DType::F32),
            ("Float", DType::F32),
        ];
        for (name, dtype) in older {
            assert_eq!(name.parse::<DType>(), Ok(dtype), "{name}");
        }
        for unknown in
            ["", "torch", "torch.", "tensorflow.float32", "float33", "torch.torch.float32", ".float32"]
        {
            let said = unknown.parse::<DType>().unwrap_err().to_string();
            assert!(said.contains(&format!("`{unknown}`")) && said.contains("bf16, i32"), "{said}");
        }
    }

    #[test]
    fn no_average_of_integers_and_no_arithmetic_on_bool() {
        for dtype in DType::ALL {
            let float = matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16);
            assert_eq!(dtype.check_average().is_ok(), float, "{dtype}");
        }
        for op in CombineOp::ALL {
            assert!(DType::Bool.check_combine(op).is_err() && DType::U8.check_combine(op).is_ok());
        }
        for (dtype, op) in DType::ALL.into_iter().flat_map(|d| CombineOp::NORMS.map(|op| (d, op))) {
            assert_eq!(dtype.check_combine(op).is_ok(), dtype.check_average().is_ok(), "{op} of {dtype}");
        }
        let norm = CombineOp::NORMS[1];
        assert_eq!(DType::I32.check_combine(norm).unwrap_err().to_string(), "norm2 is not defined for i32");
    }
}
