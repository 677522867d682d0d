//! Bytes of a tensor, wherever they live: a memory-mapped file, or memory of our own.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::Error;

/// A read-only range of bytes that many tensors of one file share.
#[derive(Clone)]
pub(crate) enum Bytes {
    /// A range of a mapped file.
    Mapped(Arc<Mmap>, Range<usize>),
    /// Bytes made by this program.
    Owned(Arc<Vec<u8>>),
}

impl Bytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            // The range was checked against the file when its header was read; an empty slice is never wrong about
            // memory, and the length checks of the exchange refuse it.
            Self::Mapped(file, range) => file.get(range.clone()).unwrap_or_default(),
            Self::Owned(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(Arc::new(bytes))
    }
}

/// Maps a whole file, so that a checkpoint larger than memory is read page by page as it is needed.
pub(crate) fn map(path: &Path) -> Result<Arc<Mmap>, Error> {
    let missing = |error: std::io::Error| {
        Error::refused("input", format!("{} cannot be read: {error}", path.display()))
    };
    let kind = std::fs::metadata(path).map_err(missing)?;
    if !kind.is_file() {
        return Err(Error::refused("input", format!("{} is not a regular file", path.display())));
    }
    let file = File::open(path).map_err(missing)?;
    #[allow(unsafe_code, reason = "memory-mapped reading has no safe form; this is the one call")]
    // SAFETY: the mapping is private and read-only, so no reference derived from it can be written through. What Rust
    // cannot exclude is another process that changes or truncates the file while we read: then the bytes we see are
    // undefined (a truncation ends the process with SIGBUS), as for every program that maps its input. The README says
    // so, and this program itself never writes to a file in place: it writes new files and renames them.
    let mapped = unsafe { Mmap::map(&file) };
    mapped.map(Arc::new).map_err(missing)
}
