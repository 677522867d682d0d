//! The names of element types in JSON, and chains of conversions.

use reshard_mapping::Dtype;

use crate::error::{Error, shown};

const ALL: [Dtype; 22] = [
    Dtype::BOOL,
    Dtype::F4,
    Dtype::F6_E2M3,
    Dtype::F6_E3M2,
    Dtype::U8,
    Dtype::I8,
    Dtype::F8_E5M2,
    Dtype::F8_E4M3,
    Dtype::F8_E8M0,
    Dtype::F8_E4M3FNUZ,
    Dtype::F8_E5M2FNUZ,
    Dtype::I16,
    Dtype::U16,
    Dtype::F16,
    Dtype::BF16,
    Dtype::I32,
    Dtype::U32,
    Dtype::F32,
    Dtype::C64,
    Dtype::F64,
    Dtype::I64,
    Dtype::U64,
];

/// Returns the name of a dtype: that of safetensors in lower case.
pub(crate) fn name(dtype: Dtype) -> String {
    dtype.to_string().to_lowercase()
}

/// Returns the dtype of this name, whose elements are whole bytes.
pub(crate) fn named(text: &str) -> Result<Dtype, Error> {
    let lower = text.to_lowercase();
    let found = ALL.into_iter().find(|dtype| name(*dtype) == lower);
    let Some(dtype) = found else {
        let message = format!("unknown dtype `{}`; expected a name such as f32, bf16 or i64", shown(text));
        return Err(Error::invalid(message));
    };
    if !dtype.bitsize().is_multiple_of(8) {
        let message = format!("elements of {lower} share bytes; transfer the tensor as u8");
        return Err(Error::invalid(message));
    }
    Ok(dtype)
}

/// Returns the bytes of an element where it is smallest, in a chain of conversions: it is sent in that type.
pub(crate) fn sent_bytes(chain: &[Dtype]) -> u64 {
    chain.iter().map(|dtype| dtype.bitsize() as u64 / 8).min().unwrap_or(0)
}
