//! A tensor as a file declares it.

use std::collections::BTreeMap;

use safetensors::Dtype;

use crate::bytes::Bytes;

/// The largest number of dims of a tensor in PyTorch or NumPy.
pub(crate) const MOST_DIMS: usize = 64;

/// The `__metadata__` of a file: free texts that writers leave for readers.
pub(crate) type FreeTexts = BTreeMap<String, String>;

/// One tensor inside a file.
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Bytes,
}

/// Returns the bytes of a tensor; `None` past 2^64 or if its elements do not fill the last byte.
pub(crate) fn byte_len(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    let elements = shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim))?;
    let bits = elements.checked_mul(dtype.bitsize())?;
    bits.is_multiple_of(8).then_some(bits / 8)
}
