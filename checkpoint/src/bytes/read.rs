//! Reading of small files, written by people or programs: whole files up to a limit.

use reshard_layout::internal::counted;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::bytes::place;

/// The most bytes of an index, a manifest, a spec or a topology: 64 MiB, for a million tensors.
#[doc(hidden)]
pub const MOST_BYTES: u64 = 64 << 20;

/// Reads a regular file of at most [`MOST_BYTES`].
///
/// Pipes and devices are rejected without being opened, since a read of one may never end, or never begin.
///
/// ```
/// assert!(reshard_checkpoint::read("Cargo.toml".as_ref())?.starts_with(b"[package]"));
/// assert!(reshard_checkpoint::read("/dev/zero".as_ref()).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(hidden)]
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, MOST_BYTES)
}

/// Reads a regular file of at most `most` bytes.
pub(crate) fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if let Some(bytes) = place::read_at_most(path, most)? {
        return Ok(bytes);
    }
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!(
            "it is longer than {most}",
            most = counted(most, "byte", "bytes")
        )));
    }
    Ok(bytes)
}

/// Reads a regular UTF-8 file of at most [`MOST_BYTES`].
#[doc(hidden)]
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| {
        io::Error::other(format!("it is not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
    })
}
