//! The encoding of a chunk's bytes: compression and checksums, in the order of their application.

use std::borrow::Cow;

use crate::bytes::checksum::crc32c;
use crate::bytes::zstd;
use crate::error::Error;

/// One encoding of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Zstandard.
    Zstd,
    /// The bytes, then their CRC-32C in 4 bytes.
    Crc32c,
}

/// The bytes of a CRC-32C.
pub(crate) const CRC_LEN: usize = 4;

/// The encodings of a chunk, the first applied first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packing(pub(crate) Vec<Step>);

impl Packing {
    /// Returns `true` if chunks are stored as they are, so that any range of them can be read.
    pub(crate) fn is_raw(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the decoded bytes, of which there must be exactly `len`.
    pub(crate) fn decode(&self, bytes: &[u8], len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Cow::Borrowed(bytes);
        for (before, step) in self.0.iter().enumerate().rev() {
            bytes = match step {
                // Each step before this one may have added a checksum.
                Step::Zstd => zstd::decode(&bytes, len.saturating_add(before * CRC_LEN))?.into(),
                Step::Crc32c => checked(&bytes)?.to_vec().into(),
            };
        }
        if bytes.len() != len {
            return Err(Error::malformed(
                "compressed",
                format!("a chunk has {} bytes, but its shape requires {len}", bytes.len()),
            ));
        }
        Ok(bytes.into_owned())
    }
}

/// Returns the bytes before a CRC-32C, which must be theirs.
pub(crate) fn checked(bytes: &[u8]) -> Result<&[u8], Error> {
    let (bytes, stored) = bytes.split_last_chunk::<CRC_LEN>().ok_or_else(|| {
        Error::malformed("compressed", format!("{} bytes are too few for a checksum", bytes.len()))
    })?;
    let (stored, computed) = (u32::from_le_bytes(*stored), crc32c(bytes));
    if stored != computed {
        return Err(Error::malformed(
            "compressed",
            format!("its CRC-32C is 0x{computed:08x}, but 0x{stored:08x} is stored"),
        ));
    }
    Ok(bytes)
}
