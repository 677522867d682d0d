//! The archive around the bytes of one chunk, as `torch.save` would write it.
//!
//! ```text
//! head:     archive/data.pkl  archive/byteorder  archive/version  archive/data/0: its header, up to a multiple of 64 bytes
//! bytes of the chunk
//! tail:     the directory of the four entries, and its offset
//! ```
//!
//! Type and shape determine the lengths of head and tail, so every chunk has its offset before its bytes
//! exist. Only the checksum (the CRC-32 of zip archives) is missing; it is filled in after the bytes. Lengths
//! are stored in 64 bits.

use crate::formats::pickle::{Element, Writer, torch_types};
use safetensors::Dtype;

/// The alignment in bytes of a storage, as in PyTorch.
const ALIGNMENT: usize = 64;

/// The name of the entry that holds the bytes.
const STORAGE: &str = "archive/data/0";

/// The extra fields of an entry: lengths in 64 bits, and PyTorch's padding.
const LENGTHS: u16 = 1;
const FILLING: u16 = 0x4246;

/// 1 January 1980, the first day of a zip archive.
const DAY: u16 = 0x21;

/// Version 4.5 knows lengths of 64 bits.
const VERSION: u16 = 45;

/// An archive without the bytes of its chunk.
pub(crate) struct Frame {
    pub(crate) head: Vec<u8>,
    pub(crate) tail: Vec<u8>,
}

/// One entry of the archive.
struct Entry<'a> {
    name: &'a str,
    start: usize,
    len: u64,
    crc: u32,
    /// `true` if its lengths are stored in 64 bits.
    long: bool,
}

/// Returns PyTorch's names of a storage of this type and of the type; `None` if PyTorch lacks it.
pub(crate) fn names(dtype: Dtype) -> Option<(Option<&'static str>, &'static str)> {
    torch_types(Element::Known(dtype))
}

impl Frame {
    /// Returns the archive of a chunk of `len` bytes with this checksum.
    pub(crate) fn new(dtype: Dtype, shape: &[usize], len: u64, crc: u32) -> Option<Self> {
        let pickle = pickle(dtype, shape)?;
        let mut head = Vec::new();
        let mut entries = Vec::new();
        for (name, bytes) in
            [("archive/data.pkl", &pickle[..]), ("archive/byteorder", b"little"), ("archive/version", b"3\n")]
        {
            let crc = crate::bytes::checksum::crc32(bytes);
            let entry = Entry { name, start: head.len(), len: bytes.len() as u64, crc, long: false };
            entry.header(&mut head, &[]);
            head.extend(bytes);
            entries.push(entry);
        }
        let entry = Entry { name: STORAGE, start: head.len(), len, crc, long: true };
        let mut extra = Vec::new();
        put(&mut extra, &[LENGTHS, 16]);
        extra.extend(len.to_le_bytes());
        extra.extend(len.to_le_bytes());
        let bare = head.len() + LOCAL + STORAGE.len() + extra.len() + 4;
        let fill = bare.next_multiple_of(ALIGNMENT) - bare;
        put(&mut extra, &[FILLING, fill as u16]);
        extra.resize(extra.len() + fill, b'Z');
        entry.header(&mut head, &extra);
        entries.push(entry);
        let mut tail = Vec::new();
        for entry in &entries {
            entry.record(&mut tail);
        }
        let (at, directory) = (head.len() as u64 + len, tail.len() as u64);
        end(&mut tail, entries.len() as u64, at, directory);
        Some(Self { head, tail })
    }
}

/// The length of an entry's header, without name and extra fields.
const LOCAL: usize = 30;

impl Entry<'_> {
    /// Writes the local header, which precedes the bytes.
    fn header(&self, out: &mut Vec<u8>, extra: &[u8]) {
        out.extend(b"PK\x03\x04");
        put(out, &[VERSION, 0, 0, 0, DAY]);
        self.lengths(out);
        put(out, &[self.name.len() as u16, extra.len() as u16]);
        out.extend(self.name.as_bytes());
        out.extend(extra);
    }

    /// Writes the record in the directory.
    fn record(&self, out: &mut Vec<u8>) {
        out.extend(b"PK\x01\x02");
        put(out, &[VERSION, VERSION, 0, 0, 0, DAY]);
        self.lengths(out);
        put(out, &[self.name.len() as u16, if self.long { 20 } else { 0 }, 0, 0, 0, 0, 0]);
        out.extend((self.start as u32).to_le_bytes());
        out.extend(self.name.as_bytes());
        if self.long {
            put(out, &[LENGTHS, 16]);
            out.extend(self.len.to_le_bytes());
            out.extend(self.len.to_le_bytes());
        }
    }

    fn lengths(&self, out: &mut Vec<u8>) {
        let len = if self.long { u32::MAX } else { self.len as u32 };
        for word in [self.crc, len, len] {
            out.extend(word.to_le_bytes());
        }
    }
}

/// Writes the end of an archive: the location of its directory, in 64 bits, and the locator of that record.
fn end(out: &mut Vec<u8>, entries: u64, directory: u64, len: u64) {
    let at = directory + len;
    out.extend(b"PK\x06\x06");
    out.extend(44_u64.to_le_bytes());
    put(out, &[VERSION, VERSION, 0, 0, 0, 0]);
    for word in [entries, entries, len, directory] {
        out.extend(word.to_le_bytes());
    }
    out.extend(b"PK\x06\x07\0\0\0\0");
    out.extend(at.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    out.extend(b"PK\x05\x06\0\0\0\0");
    put(out, &[entries as u16, entries as u16]);
    for word in [len, directory] {
        out.extend(u32::try_from(word).unwrap_or(u32::MAX).to_le_bytes());
    }
    put(out, &[0]);
}

fn put(out: &mut Vec<u8>, halves: &[u16]) {
    for half in halves {
        out.extend(half.to_le_bytes());
    }
}

/// Pickles the tensor over the storage `0`.
fn pickle(dtype: Dtype, shape: &[usize]) -> Option<Vec<u8>> {
    let (storage, name) = names(dtype)?;
    let numel: usize = shape.iter().product();
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim].max(1);
    }
    let mut w = Writer::new();
    let rebuild = if storage.is_some() { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" };
    w.call("torch._utils", rebuild, |w| {
        w.persistent(|w| {
            w.text("storage");
            match storage {
                Some(storage) => w.global("torch", storage),
                None => w.global("torch.storage", "UntypedStorage"),
            }
            w.text("0");
            w.text("cpu");
            w.size((if storage.is_some() { numel } else { numel * dtype.bitsize() / 8 }) as u64);
        });
        w.size(0);
        w.sizes(shape);
        w.sizes(&strides);
        w.no();
        w.call("collections", "OrderedDict", |_| {});
        if storage.is_none() {
            w.global("torch", name);
        }
    });
    Some(w.finish())
}
