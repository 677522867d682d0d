//! The types of elements that safetensors has too.

use safetensors::Dtype;

use crate::error::Error;
use crate::formats::orbax::shown;

/// The type of an element; the names are those of safetensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DType {
    /// One byte, 0 or 1.
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    /// `float8_e4m3fn`.
    F8E4M3,
    F8E5M2,
    F8E8M0,
    F8E4M3Fnuz,
    F8E5M2Fnuz,
    F16,
    Bf16,
    F32,
    F64,
    /// Two `F32`: the real and the imaginary part.
    C64,
}

impl DType {
    /// Returns the bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Bool
            | Self::U8
            | Self::I8
            | Self::F8E4M3
            | Self::F8E5M2
            | Self::F8E8M0
            | Self::F8E4M3Fnuz
            | Self::F8E5M2Fnuz => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::C64 => 8,
        }
    }

    /// Returns the type of safetensors.
    pub(crate) fn stored(self) -> Dtype {
        match self {
            Self::Bool => Dtype::BOOL,
            Self::U8 => Dtype::U8,
            Self::I8 => Dtype::I8,
            Self::U16 => Dtype::U16,
            Self::I16 => Dtype::I16,
            Self::U32 => Dtype::U32,
            Self::I32 => Dtype::I32,
            Self::U64 => Dtype::U64,
            Self::I64 => Dtype::I64,
            Self::F8E4M3 => Dtype::F8_E4M3,
            Self::F8E5M2 => Dtype::F8_E5M2,
            Self::F8E8M0 => Dtype::F8_E8M0,
            Self::F8E4M3Fnuz => Dtype::F8_E4M3FNUZ,
            Self::F8E5M2Fnuz => Dtype::F8_E5M2FNUZ,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::BF16,
            Self::F32 => Dtype::F32,
            Self::F64 => Dtype::F64,
            Self::C64 => Dtype::C64,
        }
    }

    /// Parses a type of zarr 2: a NumPy type such as `<f4`, or one of TensorStore's names.
    pub(crate) fn from_v2(text: &str) -> Result<Self, Error> {
        let (order, kind) = text.split_at_checked(1).unwrap_or(("", ""));
        let dtype = match kind {
            "b1" => Self::Bool,
            "u1" => Self::U8,
            "i1" => Self::I8,
            "u2" => Self::U16,
            "i2" => Self::I16,
            "u4" => Self::U32,
            "i4" => Self::I32,
            "u8" => Self::U64,
            "i8" => Self::I64,
            "f2" => Self::F16,
            "f4" => Self::F32,
            "f8" => Self::F64,
            "c8" => Self::C64,
            _ => return Self::machine_learning(text).ok_or_else(|| unsupported(text)),
        };
        match order {
            "<" => Ok(dtype),
            "|" | ">" if dtype.bytes() == 1 => Ok(dtype),
            ">" => Err(Error::unsupported(
                "orbax",
                format!(
                    "its elements `{}` are big-endian; only little-endian ones are supported",
                    shown(text)
                ),
            )),
            _ => Err(unsupported(text)),
        }
    }

    /// Parses a type of zarr 3, such as `float32`.
    pub(crate) fn from_v3(text: &str) -> Result<Self, Error> {
        Ok(match text {
            "bool" => Self::Bool,
            "uint8" => Self::U8,
            "int8" => Self::I8,
            "uint16" => Self::U16,
            "int16" => Self::I16,
            "uint32" => Self::U32,
            "int32" => Self::I32,
            "uint64" => Self::U64,
            "int64" => Self::I64,
            "float16" => Self::F16,
            "float32" => Self::F32,
            "float64" => Self::F64,
            "complex64" => Self::C64,
            _ => return Self::machine_learning(text).ok_or_else(|| unsupported(text)),
        })
    }

    /// Returns a type that NumPy lacks, which both versions call by the name in `ml_dtypes`.
    fn machine_learning(text: &str) -> Option<Self> {
        Some(match text {
            "bfloat16" => Self::Bf16,
            "float8_e4m3fn" => Self::F8E4M3,
            "float8_e5m2" => Self::F8E5M2,
            "float8_e8m0fnu" => Self::F8E8M0,
            "float8_e4m3fnuz" => Self::F8E4M3Fnuz,
            "float8_e5m2fnuz" => Self::F8E5M2Fnuz,
            _ => return None,
        })
    }
}

fn unsupported(text: &str) -> Error {
    Error::unsupported(
        "orbax",
        format!("its elements are `{}`, for which safetensors has no type", shown(text)),
    )
}
