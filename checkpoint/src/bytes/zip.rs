//! The entries of a zip archive, by name, with the locations of their bytes.
//!
//! The archive may be a part of a file. No entry is read here, but its stated location must be within the
//! archive.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use miniz_oxide::inflate::decompress_to_vec_with_limit;
use rawzip::{CompressionMethod, ErrorKind, RECOMMENDED_BUFFER_SIZE, ZipLocator};
use reshard_layout::internal::counted;

use crate::bytes::Bytes;
use crate::bytes::inflated::{Codec, Inflated, Last, Packed};
use crate::bytes::peek::Peek;
use crate::error::Error;
use crate::shown::Shown;

/// The largest number of entries of an archive.
const MOST_ENTRIES: usize = 1 << 20;

/// A zip archive.
pub(crate) struct Zip<'a> {
    entries: BTreeMap<String, Entry<'a>>,
    archive: Peek<'a>,
    last: Last,
}

/// An entry of an archive.
pub(crate) struct Entry<'a> {
    /// The stored bytes, which may be compressed.
    packed: Peek<'a>,
    method: CompressionMethod,
    /// The number of bytes after decompression.
    len: u64,
    /// The checksum in the directory.
    crc32: u32,
}

/// Returns a buffer for the records of an archive, which can be reused for the next.
pub(crate) fn room() -> Vec<u8> {
    vec![0; RECOMMENDED_BUFFER_SIZE]
}

impl<'a> Zip<'a> {
    pub(crate) fn open(archive: Peek<'a>, room: &mut [u8]) -> Result<Self, Error> {
        let said =
            |why: String| format!("{} is not a valid zip archive: {why}", archive.input.path().display());
        let bad = |why: String| Error::malformed("zip", said(why));
        let failed = |error: rawzip::Error| {
            if let ErrorKind::IO(error) = error.kind() {
                archive.input.failed(error)
            } else {
                bad(error.to_string())
            }
        };
        let zip = ZipLocator::new().locate_in_reader(archive, room, archive.len());
        let zip = zip.map_err(|(_, error)| failed(error))?;
        let (mut found, mut first) = (Vec::new(), u64::MAX);
        let mut entries = zip.entries(room);
        while let Some(entry) = entries.next_entry().map_err(failed)? {
            if found.len() == MOST_ENTRIES {
                return Err(Error::unsupported(
                    "zip",
                    said(format!("it has more than {MOST_ENTRIES} entries")),
                ));
            }
            let name = std::str::from_utf8(entry.file_path().as_bytes());
            let name = name.map_err(|_| bad("the name of an entry is not UTF-8".to_owned()))?.to_owned();
            first = first.min(entry.local_header_offset());
            found.push((name, entry.wayfinder(), entry.compression_method(), entry.crc32()));
        }
        if first != 0 && !found.is_empty() {
            return Err(bad(format!(
                "{first} precede its first entry; read a file of a distributed checkpoint by its folder",
                first = counted(first, "byte", "bytes")
            )));
        }
        let mut entries = BTreeMap::new();
        for (name, wayfinder, method, crc32) in found {
            let (start, end) = zip.get_entry(wayfinder).map_err(failed)?.compressed_data_range();
            let packed = archive.part(start, end.saturating_sub(start));
            let packed = packed.ok_or_else(|| bad(format!("`{}` goes past its end", name.shown())))?;
            let entry = Entry { packed, method, len: wayfinder.uncompressed_size_hint(), crc32 };
            if entry.method == CompressionMethod::STORE && entry.len != packed.len() {
                return Err(bad(format!("`{}` has two lengths", name.shown())));
            }
            if entries.insert(name.clone(), entry).is_some() {
                return Err(bad(format!("`{}` is in it twice", name.shown())));
            }
        }
        Ok(Self { entries, archive, last: Last::default() })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Entry<'a>)> {
        self.entries.iter().map(|(name, entry)| (&name[..], entry))
    }

    /// Returns the location of the archive.
    pub(crate) fn place(&self) -> Peek<'a> {
        self.archive
    }

    /// Returns `true` if the directory has any checksum.
    pub(crate) fn has_checksums(&self) -> bool {
        self.entries.values().any(|entry| entry.crc32 != 0)
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Entry<'a>, Error> {
        self.entries.get(name).ok_or_else(|| {
            let message = format!(
                "{} has no entry `{}`",
                self.archive.input.path().display(),
                name.chars().take(200).collect::<String>().shown()
            );
            Error::malformed("zip", message)
        })
    }

    /// Returns the bytes of an entry, which are decompressed on demand.
    pub(crate) fn bytes(&self, entry: &Entry<'a>) -> Result<Bytes, Error> {
        if entry.method == CompressionMethod::STORE {
            return Ok(entry.packed.bytes());
        }
        if entry.method != CompressionMethod::DEFLATE {
            return Err(entry.compressed("only stored and deflated entries are supported"));
        }
        let (input, start) = (Arc::clone(entry.packed.input), entry.packed.start());
        let packed = Packed::InFile { input, start, len: entry.packed.len() as usize };
        let inflated = Inflated::new(packed, Codec::Deflate, entry.len, self.last.clone())?;
        Ok(Bytes::Inflated { inflated: Arc::new(inflated), start: 0, len: entry.len as usize })
    }
}

impl<'a> Entry<'a> {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn crc32(&self) -> u32 {
        self.crc32
    }

    /// Returns the range of the entry in the file, compressed if it is.
    pub(crate) fn place(&self) -> Range<u64> {
        self.packed.start()..self.packed.start() + self.packed.len()
    }

    /// Reads the start of the entry: at most `most` bytes, decompressed if necessary.
    pub(crate) fn head(&self, most: usize) -> Result<Vec<u8>, Error> {
        if self.method != CompressionMethod::STORE && self.method != CompressionMethod::DEFLATE {
            return Err(self.compressed("only stored and deflated entries are supported"));
        }
        let head = self
            .packed
            .part(0, self.packed.len().min(most as u64))
            .map_or(Ok(Vec::new()), |head| head.read())?;
        if self.method != CompressionMethod::DEFLATE {
            return Ok(head);
        }
        // The input is truncated, or there is more output than requested; both yield partial output.
        Ok(decompress_to_vec_with_limit(&head, most).unwrap_or_else(|error| error.output))
    }

    /// Returns the location of the bytes; an error if they are compressed.
    pub(crate) fn stored(&self) -> Result<Peek<'a>, Error> {
        if self.method == CompressionMethod::STORE {
            return Ok(self.packed);
        }
        Err(self.compressed("it is read in place; save it uncompressed"))
    }

    /// Returns the error for an unsupported compression method; `what` describes the supported ones.
    fn compressed(&self, what: &str) -> Error {
        let method = match self.method {
            CompressionMethod::DEFLATE => "DEFLATE".to_owned(),
            CompressionMethod::DEFLATE64 => "Deflate64".to_owned(),
            CompressionMethod::BZIP2 => "bzip2".to_owned(),
            CompressionMethod::LZMA => "LZMA".to_owned(),
            CompressionMethod::XZ => "xz".to_owned(),
            CompressionMethod::ZSTD | CompressionMethod::ZSTD_DEPRECATED => "Zstandard".to_owned(),
            other => format!("method {other}"),
        };
        Error::unsupported("compressed", format!("an entry is compressed by {method}; {what}"))
    }
}
