//! The header of a safetensors file: read from a file, or computed before any data exists.

mod declared;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use reshard_layout::internal::counted;
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};

use crate::bytes::checksum::checksum;
use crate::bytes::{Bytes, Input};
use crate::error::{Error, ErrorKind};
use crate::model::stored::{FreeTexts, MOST_DIMS, Stored, byte_len};
use declared::Declared;

/// The size of the header length at the start of a file.
const LENGTH: usize = size_of::<u64>();

/// The longest header that the format allows, in bytes.
const LONGEST: u64 = 100_000_000;

/// A file whose header has been read and checked against its length.
pub(crate) struct Opened {
    pub(crate) tensors: BTreeMap<String, Stored>,
    pub(crate) free_texts: Option<FreeTexts>,
    /// The checksum of its header, including the length before it.
    pub(crate) checksum: u64,
}

/// Reads the header of `path`; rejects offsets that overlap, leave gaps or pass the end of the file.
pub(crate) fn open(path: &Path) -> Result<Opened, Error> {
    let input = Arc::new(Input::open(path)?);
    let bad = |error: SafeTensorError| {
        Error::malformed(
            "safetensors",
            format!("{} is not a valid safetensors file: {error}", path.display()),
        )
    };
    let mut head = input.read(0, input.len().min(LENGTH as u64) as usize)?;
    let length = head.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let length = length.ok_or_else(|| bad(SafeTensorError::HeaderTooSmall))?;
    if length > LONGEST {
        return Err(bad(SafeTensorError::HeaderTooLarge));
    }
    let data = LENGTH as u64 + length;
    if data > input.len() {
        return Err(bad(SafeTensorError::InvalidHeaderLength));
    }
    head.extend(input.read(LENGTH as u64, length as usize)?);
    let Declared { texts: free_texts, mut tensors } = serde_json::from_slice(&head[LENGTH..])
        .map_err(|error| bad(SafeTensorError::InvalidHeaderDeserialization(error)))?;
    let checksum = checksum(&head);
    drop(head);
    if let Some((name, _)) = tensors.iter().find(|(_, info)| info.shape.len() > MOST_DIMS) {
        let message = format!("it has more than {MOST_DIMS} dims, which is the limit");
        return Err(Error::unsupported("safetensors", message).about_tensor(name).about(path.display()));
    }
    let count = tensors.len();
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    // Checks that the tensors are contiguous and as long as their shapes require.
    let metadata = Metadata::new(None, tensors).map_err(bad)?;
    if data.checked_add(metadata.data_len() as u64) != Some(input.len()) {
        return Err(bad(SafeTensorError::MetadataIncompleteBuffer));
    }
    let stored = |info: &TensorInfo| Stored {
        dtype: info.dtype,
        shape: info.shape.clone(),
        bytes: Bytes::InFile {
            input: Arc::clone(&input),
            start: data + info.data_offsets.0 as u64,
            len: info.data_offsets.1 - info.data_offsets.0,
        },
    };
    let mut tensors = BTreeMap::new();
    tensors.extend(metadata.tensors().into_iter().map(|(name, info)| (name, stored(info))));
    if tensors.len() != count {
        let message = format!("{} has two tensors of the same name", path.display());
        return Err(Error::malformed("safetensors", message));
    }
    Ok(Opened { tensors, free_texts, checksum })
}

/// Encodes the first bytes of a file that will hold these tensors, contiguous and in this order.
///
/// They are the length of the header, the header, and blanks that align the data to 8 bytes.
pub(crate) fn encode<'a>(
    tensors: &mut dyn Iterator<Item = (&'a str, Dtype, &'a [usize])>,
    free_texts: Option<&FreeTexts>,
) -> Result<Vec<u8>, Error> {
    let bad = |why: String| {
        Error::failed(ErrorKind::Internal, "safetensors", format!("cannot write the header: {why}"))
    };
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
    if len as u64 > LONGEST {
        return Err(bad(format!(
            "it has {len}, but the format allows {LONGEST}; write fewer tensors per file",
            len = counted(len, "byte", "bytes")
        )));
    }
    let mut header = (len as u64).to_le_bytes().to_vec();
    header.extend_from_slice(text.as_bytes());
    header.resize(size_of::<u64>() + len, b' ');
    Ok(header)
}
