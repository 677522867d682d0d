//! Reading of bytes in blocks.

use crate::bytes::Bytes;
use crate::error::Error;

/// The number of bytes that are read at once.
pub(crate) const PIECE: usize = 4 << 20;

/// Reads a part of a file.
pub(crate) fn read(file: &Bytes, at: usize, room: &mut [u8]) -> Result<(), Error> {
    let access = file.access()?;
    access.read_at(at, room)?;
    access.finish()
}

/// Returns the path of the file in messages.
pub(crate) fn path(file: &Bytes) -> String {
    file.input().map_or_else(|| "memory".to_owned(), |input| input.path().display().to_string())
}
