//! A file range that is read while a checkpoint is opened; such reads are not counted as tensor bytes.

use reshard_layout::internal::counted;
use std::io;
use std::sync::Arc;

use crate::bytes::{Bytes, Handle, Input, reserve};
use crate::error::Error;

/// A range of an open file.
#[derive(Clone, Copy)]
pub(crate) struct Peek<'a> {
    pub(crate) input: &'a Arc<Input>,
    file: &'a Handle,
    start: u64,
    len: u64,
}

impl<'a> Peek<'a> {
    /// Returns a range of an open file, if the file is long enough.
    pub(crate) fn new(input: &'a Arc<Input>, file: &'a Handle, start: u64, len: u64) -> Result<Self, Error> {
        if start.checked_add(len).is_none_or(|end| end > input.len()) {
            let message = format!(
                "{} has {}, but {len} from byte {start} on are required",
                input.path().display(),
                counted(input.len(), "byte", "bytes")
            );
            return Err(Error::malformed("input", message));
        }
        Ok(Self { input, file, start, len })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns a part of it, if it is within range.
    pub(crate) fn part(&self, at: u64, count: u64) -> Option<Self> {
        let within = at.checked_add(count).is_some_and(|end| end <= self.len);
        within.then_some(Self { start: self.start + at, len: count, ..*self })
    }

    /// Reads all of its bytes; only used for short ranges.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, self.len as usize)?;
        bytes.resize(self.len as usize, 0);
        self.file.read_exact_at(self.start, &mut bytes).map_err(|error| self.input.failed(&error))?;
        Ok(bytes)
    }

    /// Returns the same range as bytes of a tensor.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::InFile { input: Arc::clone(self.input), start: self.start, len: self.len as usize }
    }

    /// Returns the offset in the file.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }
}

impl rawzip::ReaderAt for Peek<'_> {
    fn read_at(&self, room: &mut [u8], at: u64) -> io::Result<usize> {
        let count = self.len.saturating_sub(at).min(room.len() as u64) as usize;
        if count > 0 {
            self.file.read_exact_at(self.start + at, &mut room[..count])?;
        }
        Ok(count)
    }
}
