//! The header of a safetensors file: read from a mapped file, or computed before any data exists.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use safetensors::tensor::{Metadata, SafeTensors, TensorInfo};
use safetensors::{Dtype, SafeTensorError};

use super::mapped::{self, Bytes};
use crate::error::Error;

/// The `__metadata__` of a file: free texts that writers leave for readers.
pub(crate) type FreeTexts = BTreeMap<String, String>;

/// One tensor inside a file.
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Bytes,
}

/// A file whose header has been read and checked against its length.
pub(crate) struct Opened {
    pub(crate) tensors: BTreeMap<String, Stored>,
    pub(crate) free_texts: Option<FreeTexts>,
}

/// Maps `path` and reads its header. Offsets that overlap, leave gaps or pass the end of the file are refused here.
pub(crate) fn open(path: &Path) -> Result<Opened, Error> {
    let file = mapped::map(path)?;
    let bad = |error: SafeTensorError| {
        Error::refused("safetensors", format!("{} is not a whole safetensors file: {error}", path.display()))
    };
    let (header_len, metadata) = SafeTensors::read_metadata(&file).map_err(bad)?;
    let data = size_of::<u64>() + header_len;
    let stored = |info: &TensorInfo| Stored {
        dtype: info.dtype,
        shape: info.shape.clone(),
        bytes: Bytes::Mapped(
            Arc::<Mmap>::clone(&file),
            data + info.data_offsets.0..data + info.data_offsets.1,
        ),
    };
    let tensors = metadata.tensors().into_iter().map(|(name, info)| (name, stored(info))).collect();
    let free_texts = metadata.metadata().as_ref().map(|texts| texts.clone().into_iter().collect());
    Ok(Opened { tensors, free_texts })
}

/// The first bytes of a file that will hold these tensors, one after the other in this order: the length of the
/// header, the header, and blanks that align the data to 8 bytes.
pub(crate) fn encode<'a>(
    tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize])>,
    free_texts: Option<&FreeTexts>,
) -> Result<Vec<u8>, Error> {
    let bad = |why: String| Error::failed("safetensors", format!("no header can be written: {why}"));
    let mut end = 0_usize;
    let mut infos = Vec::new();
    for (name, dtype, shape) in tensors {
        let start = end;
        let bytes =
            byte_len(dtype, shape).ok_or_else(|| bad(format!("`{name}` of {shape:?} is too large")))?;
        end = end.checked_add(bytes).ok_or_else(|| bad(format!("the file ends past 2^64 at `{name}`")))?;
        infos
            .push((name.to_owned(), TensorInfo { dtype, shape: shape.to_vec(), data_offsets: (start, end) }));
    }
    let free_texts: Option<HashMap<String, String>> =
        free_texts.map(|texts| texts.clone().into_iter().collect());
    let metadata = Metadata::new(free_texts, infos).map_err(|error| bad(error.to_string()))?;
    // Through a JSON value, whose keys are sorted: the same tensors give the same bytes in every run.
    let text = serde_json::to_value(&metadata).map_err(|error| bad(error.to_string()))?.to_string();
    let len = text.len().next_multiple_of(size_of::<u64>());
    let mut header = (len as u64).to_le_bytes().to_vec();
    header.extend_from_slice(text.as_bytes());
    header.resize(size_of::<u64>() + len, b' ');
    Ok(header)
}

/// How many bytes a tensor takes; None past 2^64 or where its elements do not fill its last byte.
pub(crate) fn byte_len(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    let elements = shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim))?;
    let bits = elements.checked_mul(dtype.bitsize())?;
    bits.is_multiple_of(8).then_some(bits / 8)
}
