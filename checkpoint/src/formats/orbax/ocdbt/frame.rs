//! The frame around the manifest and every node of the B+tree.
//!
//! ```text
//! magic be32, length le64 of all, version varint (0), compression varint (0: none, 1: Zstandard), body, crc32c le32
//! ```

use std::borrow::Cow;

use crate::bytes::packing::{CRC_LEN, checked};
use crate::bytes::zstd;
use crate::error::Error;
use crate::formats::orbax::ocdbt::cursor::Cursor;

/// The largest body in bytes, and the largest frame: Orbax allows nodes of 100 MB.
pub(crate) const MOST: usize = 128 << 20;

/// The contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Magic {
    /// The configuration and the most recent versions.
    Manifest,
    /// A node of the B+tree of keys.
    Node,
}

impl Magic {
    pub(crate) fn value(self) -> u32 {
        match self {
            Self::Manifest => 0x0cdb_3a2a,
            Self::Node => 0x0cdb_20de,
        }
    }
}

/// Checks a frame and returns its body, decompressed.
pub(crate) fn body(bytes: &[u8], magic: Magic) -> Result<Cow<'_, [u8]>, Error> {
    let mut cursor = Cursor::new(&bytes[..bytes.len().saturating_sub(CRC_LEN)]);
    let begins = u32::from_be_bytes(cursor.bytes()?);
    if begins != magic.value() {
        return Err(Error::malformed(
            "orbax",
            format!("it begins with 0x{begins:08x}, but 0x{:08x} is required", magic.value()),
        ));
    }
    let len = u64::from_le_bytes(cursor.bytes()?);
    if len != bytes.len() as u64 {
        return Err(Error::malformed("orbax", format!("it has {} bytes, but declares {len}", bytes.len())));
    }
    // Before the version, so that a damaged file is not reported as one of a later version.
    checked(bytes)?;
    let version = cursor.varint()?;
    if version != 0 {
        return Err(Error::unsupported(
            "orbax",
            format!("its format version is {version}; only version 0 is supported"),
        ));
    }
    let compression = cursor.varint()?;
    let body = cursor.take(cursor.remaining() as u64)?;
    match compression {
        0 => Ok(Cow::Borrowed(body)),
        1 => Ok(Cow::Owned(zstd::decode(body, MOST)?)),
        other => Err(Error::unsupported(
            "orbax",
            format!("its compression is {other}; only 0 (none) and 1 (Zstandard) are supported"),
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::{Magic, body};
    use crate::bytes::checksum::crc32c;
    use crate::error::ErrorKind;

    /// Returns a frame with this body.
    pub(crate) fn frame(magic: Magic, body: &[u8], version: u8, compression: u8) -> Vec<u8> {
        let mut frame = magic.value().to_be_bytes().to_vec();
        let packed = match compression {
            1 => compress_to_vec(body, CompressionLevel::Fastest),
            _ => body.to_vec(),
        };
        frame.extend((packed.len() as u64 + 18).to_le_bytes());
        frame.extend([version, compression]);
        frame.extend(packed);
        frame.extend(crc32c(&frame).to_le_bytes());
        frame
    }

    #[test]
    fn only_whole_frames_are_opened() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        for compression in [0, 1] {
            let bytes = frame(Magic::Node, b"some bytes", 0, compression);
            assert_eq!(&body(&bytes, Magic::Node).unwrap()[..], b"some bytes");
            assert_eq!(body(&bytes, Magic::Manifest).unwrap_err().kind(), ErrorKind::Parse);
            for len in 0..bytes.len() {
                body(&bytes[..len], Magic::Node).unwrap_err();
            }
            for at in 0..bytes.len() * 8 {
                let mut bytes = bytes.clone();
                bytes[at / 8] ^= 1 << (at % 8);
                assert_eq!(body(&bytes, Magic::Node).unwrap_err().kind(), ErrorKind::Parse);
            }
        }
        for (version, compression) in [(1, 0), (0, 2), (127, 127)] {
            let bytes = frame(Magic::Node, b"", version, compression);
            assert_eq!(body(&bytes, Magic::Node).unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }
}
