//! The fill value: the elements of chunks that are not stored.

use safetensors::Dtype;
use serde_json::Value;

use crate::error::Error;
use crate::formats::orbax::shown;
use crate::formats::orbax::zarr::dtype::bytes;

/// A fill value as the metadata declares it; it is interpreted only if a chunk is missing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fill(pub(crate) Value);

impl Fill {
    /// Returns the bytes of one element; zero if no value is declared.
    pub(crate) fn element(&self, dtype: Dtype) -> Result<Vec<u8>, Error> {
        let bytes = match &self.0 {
            Value::Null => Some(vec![0; bytes(dtype)]),
            Value::String(text) if text.starts_with("0x") => bits(text, dtype),
            Value::Array(parts) => complex(parts, dtype),
            value @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                element(value, dtype)
            }
        };
        bytes.ok_or_else(|| {
            Error::unsupported(
                "orbax",
                format!(
                    "a chunk is missing, and its fill value `{}` is not supported for {dtype:?}",
                    shown(&self.0.to_string())
                ),
            )
        })
    }
}

fn element(value: &Value, dtype: Dtype) -> Option<Vec<u8>> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "types of another crate, which may gain more")]
    match dtype {
        Dtype::BOOL => Some(vec![u8::from(value.as_bool()?)]),
        Dtype::U8 => integer::<u8>(value).map(|value| value.to_le_bytes().to_vec()),
        Dtype::I8 => integer::<i8>(value).map(|value| value.to_le_bytes().to_vec()),
        Dtype::U16 => integer::<u16>(value).map(|value| value.to_le_bytes().to_vec()),
        Dtype::I16 => integer::<i16>(value).map(|value| value.to_le_bytes().to_vec()),
        Dtype::U32 => integer::<u32>(value).map(|value| value.to_le_bytes().to_vec()),
        Dtype::I32 => integer::<i32>(value).map(|value| value.to_le_bytes().to_vec()),
        Dtype::U64 => integer::<u64>(value).map(|value| value.to_le_bytes().to_vec()),
        Dtype::I64 => integer::<i64>(value).map(|value| value.to_le_bytes().to_vec()),
        Dtype::F32 => float(value).map(|value| (value as f32).to_le_bytes().to_vec()),
        Dtype::F64 => float(value).map(|value| value.to_le_bytes().to_vec()),
        // Only zero, which every writer of such types uses; other values need a conversion per type.
        _ => {
            let zero = float(value)?.to_bits() == 0 && dtype != Dtype::F8_E8M0;
            zero.then(|| vec![0; bytes(dtype)])
        }
    }
}

fn integer<T: TryFrom<i128>>(value: &Value) -> Option<T> {
    let wide = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))?;
    T::try_from(wide).ok()
}

fn float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => value.as_f64(),
    }
}

/// Parses the bits of a float in zarr 3: `0x7fc0`, of all its bytes.
fn bits(text: &str, dtype: Dtype) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 2 * bytes(dtype))?;
    let bits =
        u64::from_str_radix(digits, 16).ok().filter(|_| digits.bytes().all(|c| c.is_ascii_hexdigit()))?;
    (dtype != Dtype::C64).then_some(())?;
    bits.to_le_bytes().get(..bytes(dtype)).map(<[u8]>::to_vec)
}

/// Parses a real and an imaginary part.
fn complex(parts: &[Value], dtype: Dtype) -> Option<Vec<u8>> {
    let (Dtype::C64, [real, imaginary]) = (dtype, parts) else { return None };
    Some([element(real, Dtype::F32)?, element(imaginary, Dtype::F32)?].concat())
}
