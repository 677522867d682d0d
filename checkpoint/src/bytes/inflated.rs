//! Compressed bytes: decompressed as a whole when one of them is requested.
//!
//! Reads cannot begin in the middle, so the results are cached. Memory holds the last one of an archive, or the last
//! ones of a group up to a number of bytes, and those that are being read at that moment. More than [`MOST`] bytes are
//! not decompressed. The result must have exactly the declared length. If all of it is needed once and in order, it is
//! not cached.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use miniz_oxide::inflate::decompress_to_vec_with_limit;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};
use reshard_layout::internal::counted;

use crate::bytes::packing::Packing;
use crate::bytes::{self as bytes, Input};
use crate::error::{Error, ErrorKind};

/// The largest number of bytes that are inflated: 512 MiB.
pub(crate) const MOST: u64 = 512 << 20;

/// The number of bytes inflated at a time if the result is not cached.
const PIECE: usize = 1 << 18;

/// The kind of the error for data that does not inflate.
pub(crate) const KIND: &str = "inflate";

/// The compression of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Deflate,
    Packing(Packing),
}

/// The compressed bytes.
#[derive(Clone)]
pub(crate) enum Packed {
    InFile { input: Arc<Input>, start: u64, len: usize },
    Owned(Arc<Vec<u8>>),
}

/// The cache of a group of compressed bytes: the last ones, up to a number of bytes, and at least one.
#[derive(Clone, Default)]
pub(crate) struct Last {
    most: usize,
    kept: Arc<Mutex<VecDeque<Kept>>>,
}

/// Decompressed bytes, by the number of their [`Inflated`]; `None` while they are being decompressed.
struct Kept {
    number: u64,
    len: usize,
    bytes: Arc<Mutex<Option<Arc<Vec<u8>>>>>,
}

impl Last {
    /// Returns a cache of up to `most` bytes.
    pub(crate) fn of(most: usize) -> Self {
        Self { most, kept: Arc::default() }
    }

    /// Returns the slot of decompressed bytes, which may be empty; others are dropped for it.
    fn place(&self, number: u64, len: usize) -> Arc<Mutex<Option<Arc<Vec<u8>>>>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = kept.iter().find(|one| one.number == number) {
            return Arc::clone(&one.bytes);
        }
        let mut all = kept.iter().map(|one| one.len).sum::<usize>().saturating_add(len);
        while all > self.most
            && let Some(first) = kept.pop_front()
        {
            all -= first.len;
        }
        let bytes = Arc::default();
        kept.push_back(Kept { number, len, bytes: Arc::clone(&bytes) });
        bytes
    }
}

/// Compressed bytes, and how to decompress them.
pub(crate) struct Inflated {
    /// Different for each, so that it is a key of the cache.
    number: u64,
    packed: Packed,
    codec: Codec,
    len: usize,
    last: Last,
}

impl Inflated {
    /// Describes compressed bytes that decompress to `len` bytes.
    pub(crate) fn new(packed: Packed, codec: Codec, len: u64, last: Last) -> Result<Self, Error> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        if len > MOST || packed.len() as u64 > MOST {
            let message = format!(
                "a compressed entry of {len} exceeds the limit of {MOST} bytes, because it is decompressed in memory; save it uncompressed, which has no limit",
                len = counted(len, "byte", "bytes")
            );
            return Err(packed.about(Error::unsupported("compressed", message)));
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { number, packed, codec, len: len as usize, last })
    }

    /// Returns the file and the offset of the compressed bytes, if they are in one.
    pub(crate) fn place(&self) -> Option<(&Arc<Input>, u64)> {
        match &self.packed {
            Packed::InFile { input, start, .. } => Some((input, *start)),
            Packed::Owned(_) => None,
        }
    }

    /// Hashes the location of the compressed bytes, or the bytes themselves.
    pub(crate) fn hash_place(&self, hasher: &mut impl Hasher) {
        match &self.packed {
            Packed::InFile { start, len, .. } => (start, len).hash(hasher),
            Packed::Owned(bytes) => bytes.hash(hasher),
        }
    }

    /// Returns all bytes, from the cache if possible.
    pub(crate) fn bytes(&self) -> Result<Arc<Vec<u8>>, Error> {
        let place = self.last.place(self.number, self.len);
        // Others wait for the same bytes, and for no others.
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = &*place {
            return Ok(Arc::clone(bytes));
        }
        let bytes = Arc::new(self.decompressed()?);
        *place = Some(Arc::clone(&bytes));
        Ok(bytes)
    }

    fn decompressed(&self) -> Result<Vec<u8>, Error> {
        let read;
        let packed: &[u8] = match &self.packed {
            Packed::InFile { input, start, len } => {
                read = input.read(*start, *len)?;
                &read
            }
            Packed::Owned(bytes) => bytes,
        };
        let bytes = match &self.codec {
            Codec::Deflate => decompress_to_vec_with_limit(packed, self.len).ok(),
            Codec::Packing(packing) => {
                return packing.decode(packed, self.len).map_err(|error| self.packed.about(error));
            }
        };
        bytes.filter(|bytes| bytes.len() == self.len).ok_or_else(|| self.wrong())
    }

    /// Passes all bytes to `take`, a block at a time; none is cached. Of DEFLATE in a file, memory holds a block.
    pub(crate) fn each_piece(&self, take: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let (Codec::Deflate, Packed::InFile { input, start, len: packed_len }) = (&self.codec, &self.packed)
        else {
            self.decompressed()?.chunks(PIECE).for_each(take);
            return Ok(());
        };
        let file = input.open_again()?;
        let mut state = InflateState::new_boxed(DataFormat::Raw);
        let (mut packed, mut piece) = (Vec::new(), vec![0; PIECE]);
        let (mut at, mut made) = (0, 0);
        while at < *packed_len {
            let len = PIECE.min(packed_len - at);
            bytes::resize(&mut packed, len)?;
            let read = file.read_exact_at(start + at as u64, &mut packed);
            read.map_err(|error| input.failed(&error))?;
            at += len;
            let mut rest = &packed[..];
            loop {
                let done = inflate(&mut state, rest, &mut piece, MZFlush::None);
                rest = &rest[done.bytes_consumed..];
                made += done.bytes_written;
                if made > self.len {
                    return Err(self.wrong());
                }
                take(&piece[..done.bytes_written]);
                match done.status {
                    Ok(MZStatus::StreamEnd) if made == self.len => return input.check(&file),
                    // The decoder needs more input than there is.
                    Err(MZError::Buf) => break,
                    Ok(MZStatus::Ok) if rest.is_empty() && done.bytes_written < piece.len() => break,
                    Ok(MZStatus::Ok) => {}
                    Ok(MZStatus::StreamEnd | MZStatus::NeedDict) | Err(_) => return Err(self.wrong()),
                }
            }
        }
        Err(self.wrong())
    }

    fn wrong(&self) -> Error {
        let message = format!(
            "a compressed entry does not decompress to its declared {}",
            counted(self.len, "byte", "bytes")
        );
        self.packed.about(Error::failed(ErrorKind::Parse, KIND, message))
    }
}

impl Packed {
    fn len(&self) -> usize {
        match self {
            Self::InFile { len, .. } => *len,
            Self::Owned(bytes) => bytes.len(),
        }
    }

    fn about(&self, error: Error) -> Error {
        match self {
            Self::InFile { input, .. } => error.about(input.path().display()),
            Self::Owned(_) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use miniz_oxide::deflate::compress_to_vec;
    use reshard_test_support::Random;

    use super::{Codec, Inflated, KIND, Last, PIECE, Packed};
    use crate::bytes::Input;

    #[test]
    fn pieces_are_all_bytes_in_order_and_few_at_once() {
        let mut r = Random(11);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packed");
        for len in [0, 1, 1000, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 77] {
            for kinds in [1, 4, 256] {
                let bytes: Vec<u8> = (0..len).map(|_| r.below(kinds) as u8).collect();
                let packed = compress_to_vec(&bytes, 6);
                let pieces = |packed: &[u8], len: usize| {
                    fs::write(&path, [b"before", packed, b"behind"].concat()).unwrap();
                    let input = Arc::new(Input::open(&path).unwrap());
                    let packed = Packed::InFile { input, start: 6, len: packed.len() };
                    let inflated =
                        Inflated::new(packed, Codec::Deflate, len as u64, Last::default()).unwrap();
                    let mut all = Vec::new();
                    let done = inflated.each_piece(&mut |piece| {
                        assert!(piece.len() <= PIECE);
                        all.extend_from_slice(piece);
                    });
                    done.map(|()| all)
                };
                assert!(pieces(&packed, len).unwrap() == bytes, "{len} {kinds}");
                assert_eq!(pieces(&packed[..packed.len() - 1], len).unwrap_err().code(), KIND);
                assert_eq!(pieces(&packed, len + 1).unwrap_err().code(), KIND);
                if let Some(less) = len.checked_sub(1) {
                    assert_eq!(pieces(&packed, less).unwrap_err().code(), KIND);
                }
            }
        }
    }

    /// The cache holds the last ones up to its bytes, and always the last one.
    #[test]
    fn the_last_ones_are_cached() {
        let of = |byte: u8, last: &Last| {
            let packed = Packed::Owned(Arc::new(compress_to_vec(&[byte; 10], 6)));
            Inflated::new(packed, Codec::Deflate, 10, last.clone()).unwrap()
        };
        for (most, held) in [(0, 1), (9, 1), (20, 2), (25, 2), (30, 3)] {
            let last = Last::of(most);
            let all: Vec<Inflated> = (0..5).map(|byte| of(byte, &last)).collect();
            for (byte, one) in all.iter().enumerate() {
                assert_eq!(*one.bytes().unwrap(), [byte as u8; 10]);
                assert!(Arc::ptr_eq(&one.bytes().unwrap(), &one.bytes().unwrap()));
                assert_eq!(last.kept.lock().unwrap().len(), held.min(byte + 1), "{most}");
            }
            let before = all[4].bytes().unwrap();
            assert_eq!(*all[0].bytes().unwrap(), [0; 10]);
            assert_eq!(Arc::ptr_eq(&before, &all[4].bytes().unwrap()), held > 1, "{most}");
        }
    }
}
