//! A stretch of a file that is compressed (DEFLATE): inflated as a whole when a byte of it is asked for.
//!
//! There is no reading in the middle of it, so it stays in memory, until another one of the same archive is asked for: memory
//! holds one of them, and those that somebody reads at that moment. More than [`MOST`] bytes are not inflated. What it inflates to
//! was said before, and has to be just that long.

use std::sync::{Arc, Mutex, PoisonError};

use miniz_oxide::inflate::decompress_to_vec_with_limit;

use super::bytes::Input;
use crate::error::Error;

/// More bytes than this are not inflated: 512 MiB.
pub(crate) const MOST: u64 = 512 << 20;

/// The kind of the error of what does not inflate.
pub(crate) const KIND: &str = "inflate";

/// What was inflated last of an archive.
#[derive(Clone, Default)]
pub(crate) struct Last(Arc<Mutex<Option<Kept>>>);

/// An entry, by where it begins in the file.
struct Kept {
    start: u64,
    bytes: Arc<Vec<u8>>,
}

/// A compressed stretch of a file.
pub(crate) struct Inflated {
    input: Arc<Input>,
    start: u64,
    packed: usize,
    len: usize,
    last: Last,
}

impl Inflated {
    /// A stretch of `packed` bytes that holds `len`.
    pub(crate) fn new(
        input: Arc<Input>,
        start: u64,
        packed: u64,
        len: u64,
        last: Last,
    ) -> Result<Self, Error> {
        if len > MOST || packed > MOST {
            let message = format!(
                "{}: a compressed entry of {len} bytes is not read, since it would be inflated in memory; {MOST} bytes are the most, and what is saved without compression has no limit",
                input.path().display()
            );
            return Err(Error::refused("compressed", message));
        }
        Ok(Self { input, start, packed: packed as usize, len: len as usize, last })
    }

    pub(crate) fn input(&self) -> &Arc<Input> {
        &self.input
    }

    /// Where it begins in the file.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// All of them.
    pub(crate) fn bytes(&self) -> Result<Arc<Vec<u8>>, Error> {
        let mut last = self.last.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = last.as_ref().filter(|kept| kept.start == self.start) {
            return Ok(Arc::clone(&kept.bytes));
        }
        // Before there is a new one.
        *last = None;
        let packed = self.input.read(self.start, self.packed)?;
        let bytes = decompress_to_vec_with_limit(&packed, self.len).ok();
        let bytes = bytes.filter(|bytes| bytes.len() == self.len).ok_or_else(|| {
            let message = format!(
                "{}: a compressed entry does not inflate to the {} bytes that it says",
                self.input.path().display(),
                self.len
            );
            Error::failed(KIND, message)
        })?;
        let bytes = Arc::new(bytes);
        *last = Some(Kept { start: self.start, bytes: Arc::clone(&bytes) });
        Ok(bytes)
    }
}
