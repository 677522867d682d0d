//! A compressed (DEFLATE) range of a file: decompressed as a whole when one of its bytes is requested.
//!
//! Reads cannot begin in the middle, so the result is cached until another entry of the same archive is
//! requested. Memory holds one entry, and those that are being read at that moment. An entry of more than
//! [`MOST`] bytes is not inflated. The result must have exactly the declared length. If all of it is needed
//! once and in order, it is not cached.

use std::sync::{Arc, Mutex, PoisonError};

use miniz_oxide::inflate::decompress_to_vec_with_limit;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};
use reshard_layout::internal::counted;

use crate::bytes::{self as bytes, Input};
use crate::error::{Error, ErrorKind};

/// The largest number of bytes that are inflated: 512 MiB.
pub(crate) const MOST: u64 = 512 << 20;

/// The number of bytes inflated at a time if the result is not cached.
const PIECE: usize = 1 << 18;

/// The kind of the error for data that does not inflate.
pub(crate) const KIND: &str = "inflate";

/// The cache of an archive: the entry that was inflated last.
#[derive(Clone, Default)]
pub(crate) struct Last(Arc<Mutex<Option<Kept>>>);

/// An entry, by its start in the file.
struct Kept {
    start: u64,
    bytes: Arc<Vec<u8>>,
}

/// A compressed range of a file.
pub(crate) struct Inflated {
    input: Arc<Input>,
    start: u64,
    packed: usize,
    len: usize,
    last: Last,
}

impl Inflated {
    /// Describes `packed` compressed bytes that decompress to `len` bytes.
    pub(crate) fn new(
        input: Arc<Input>,
        start: u64,
        packed: u64,
        len: u64,
        last: Last,
    ) -> Result<Self, Error> {
        if len > MOST || packed > MOST {
            let message = format!(
                "{}: a compressed entry of {len} exceeds the limit of {MOST} bytes, because it is decompressed in memory; save it uncompressed, which has no limit",
                input.path().display(),
                len = counted(len, "byte", "bytes")
            );
            return Err(Error::unsupported("compressed", message));
        }
        Ok(Self { input, start, packed: packed as usize, len: len as usize, last })
    }

    pub(crate) fn input(&self) -> &Arc<Input> {
        &self.input
    }

    /// Returns the offset in the file.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Returns all bytes, from the cache if possible.
    pub(crate) fn bytes(&self) -> Result<Arc<Vec<u8>>, Error> {
        let mut last = self.last.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = last.as_ref().filter(|kept| kept.start == self.start) {
            return Ok(Arc::clone(&kept.bytes));
        }
        // Free the previous entry before the new one is allocated.
        *last = None;
        let packed = self.input.read(self.start, self.packed)?;
        let bytes = decompress_to_vec_with_limit(&packed, self.len).ok();
        let bytes = bytes.filter(|bytes| bytes.len() == self.len).ok_or_else(|| self.wrong())?;
        let bytes = Arc::new(bytes);
        *last = Some(Kept { start: self.start, bytes: Arc::clone(&bytes) });
        Ok(bytes)
    }

    /// Passes all bytes to `take`, a block at a time; none is cached, so memory use is small.
    pub(crate) fn each_piece(&self, take: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let file = self.input.open_again()?;
        let mut state = InflateState::new_boxed(DataFormat::Raw);
        let (mut packed, mut piece) = (Vec::new(), vec![0; PIECE]);
        let (mut at, mut made) = (0, 0);
        while at < self.packed {
            let len = PIECE.min(self.packed - at);
            bytes::resize(&mut packed, len)?;
            let read = file.read_exact_at(self.start + at as u64, &mut packed);
            read.map_err(|error| self.input.failed(&error))?;
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
                    Ok(MZStatus::StreamEnd) if made == self.len => return self.input.check(&file),
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
            "{}: a compressed entry does not decompress to its declared {}",
            self.input.path().display(),
            counted(self.len, "byte", "bytes")
        );
        Error::failed(ErrorKind::Parse, KIND, message)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use miniz_oxide::deflate::compress_to_vec;
    use reshard_test_support::Random;

    use super::{Inflated, KIND, Last, PIECE};
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
                    let inflated =
                        Inflated::new(input, 6, packed.len() as u64, len as u64, Last::default()).unwrap();
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
}
