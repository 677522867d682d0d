//! The types of elements: those that safetensors has too.

use safetensors::Dtype;

use crate::error::Error;
use crate::formats::orbax::shown;

/// Returns the bytes of an element; all types parsed here have whole ones.
pub(crate) fn bytes(dtype: Dtype) -> usize {
    dtype.bitsize() / 8
}

/// Parses a type of zarr 2: a NumPy type such as `<f4`, or one of TensorStore's names.
pub(crate) fn from_v2(text: &str) -> Result<Dtype, Error> {
    let (order, kind) = text.split_at_checked(1).unwrap_or(("", ""));
    let dtype = match kind {
        "b1" => Dtype::BOOL,
        "u1" => Dtype::U8,
        "i1" => Dtype::I8,
        "u2" => Dtype::U16,
        "i2" => Dtype::I16,
        "u4" => Dtype::U32,
        "i4" => Dtype::I32,
        "u8" => Dtype::U64,
        "i8" => Dtype::I64,
        "f2" => Dtype::F16,
        "f4" => Dtype::F32,
        "f8" => Dtype::F64,
        "c8" => Dtype::C64,
        _ => return machine_learning(text).ok_or_else(|| unsupported(text)),
    };
    match order {
        "<" => Ok(dtype),
        "|" | ">" if bytes(dtype) == 1 => Ok(dtype),
        ">" => Err(Error::unsupported(
            "orbax",
            format!("its elements `{}` are big-endian; only little-endian ones are supported", shown(text)),
        )),
        _ => Err(unsupported(text)),
    }
}

/// Parses a type of zarr 3, such as `float32`.
pub(crate) fn from_v3(text: &str) -> Result<Dtype, Error> {
    Ok(match text {
        "bool" => Dtype::BOOL,
        "uint8" => Dtype::U8,
        "int8" => Dtype::I8,
        "uint16" => Dtype::U16,
        "int16" => Dtype::I16,
        "uint32" => Dtype::U32,
        "int32" => Dtype::I32,
        "uint64" => Dtype::U64,
        "int64" => Dtype::I64,
        "float16" => Dtype::F16,
        "float32" => Dtype::F32,
        "float64" => Dtype::F64,
        "complex64" => Dtype::C64,
        _ => return machine_learning(text).ok_or_else(|| unsupported(text)),
    })
}

/// Returns a type that NumPy lacks, which both versions call by the name in `ml_dtypes`.
fn machine_learning(text: &str) -> Option<Dtype> {
    Some(match text {
        "bfloat16" => Dtype::BF16,
        "float8_e4m3fn" => Dtype::F8_E4M3,
        "float8_e5m2" => Dtype::F8_E5M2,
        "float8_e8m0fnu" => Dtype::F8_E8M0,
        "float8_e4m3fnuz" => Dtype::F8_E4M3FNUZ,
        "float8_e5m2fnuz" => Dtype::F8_E5M2FNUZ,
        _ => return None,
    })
}

fn unsupported(text: &str) -> Error {
    Error::unsupported(
        "orbax",
        format!("its elements are `{}`, for which safetensors has no type", shown(text)),
    )
}
