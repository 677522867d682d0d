//! The manifest: the configuration of the database, and the root of its most recent version.
//!
//! ```text
//! config    uuid 16, kind u8, max inline value, max node bytes, arity log2 u8, compression [, level i32]
//! versions  data file table; the most recent ones, in order; nodes of the version tree, for older ones
//! ```
//!
//! The last version is the one that is read. Nodes of the version tree lead to older ones and stay unopened.

use crate::error::Error;
use crate::formats::orbax::ocdbt::cursor::Cursor;
use crate::formats::orbax::ocdbt::files::{self, Location};
use crate::formats::orbax::ocdbt::frame::{Magic, body};

/// The largest binary logarithm of the arity of the version tree, by the format.
const MOST_ARITY_LOG2: u8 = 16;

/// The root of a version's B+tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) node: Location,
    /// The number of levels below the root.
    pub(crate) height: u8,
}

/// Reads a manifest; `None` if the last version has no keys.
pub(crate) fn root(bytes: &[u8]) -> Result<Option<Root>, Error> {
    let body = body(bytes, Magic::Manifest)?;
    let mut cursor = Cursor::new(&body);
    let arity = config(&mut cursor)?;
    let files = files::table(&mut cursor, "")?;
    // Generation, height, three integers of a location, three statistics and 8 bytes of a time.
    let count = cursor.count(1 << arity, 16, "the number of versions")?;
    let generations = cursor.column(count, u64::MAX, "a generation")?;
    if generations.first().is_none_or(|first| *first == 0) || !generations.is_sorted_by(|a, b| a < b) {
        return Err(Error::malformed("orbax", "its versions are not one or more increasing generations"));
    }
    let heights = cursor.take(count as u64)?;
    let numbers = cursor.column(count, u64::MAX, "a data file")?;
    let offsets = cursor.column(count, u64::MAX, "an offset")?;
    let lens = cursor.column(count, u64::MAX, "a length")?;
    for statistic in ["the number of keys", "the bytes of the tree", "the bytes of values"] {
        cursor.column(count, u64::MAX, statistic)?;
    }
    cursor.take(8 * count as u64)?;
    version_nodes(&mut cursor, &files)?;
    cursor.end()?;
    let last = |column: &[u64]| column.last().copied().unwrap_or_default();
    let (number, offset, len) = (last(&numbers), last(&offsets), last(&lens));
    // How the format marks a version without a root.
    if (offset, len) == (u64::MAX, u64::MAX) {
        return Ok(None);
    }
    let height = heights.last().copied().unwrap_or_default();
    Ok(Some(Root { node: files::location(&files, number, offset, len)?, height }))
}

/// Reads the configuration and returns the binary logarithm of the arity of the version tree.
fn config(cursor: &mut Cursor<'_>) -> Result<u8, Error> {
    cursor.take(16)?;
    match cursor.byte()? {
        0 => {}
        1 => {
            return Err(Error::unsupported(
                "orbax",
                "its versions are in numbered manifests (`manifest_kind` 1); only a single manifest is supported",
            ));
        }
        other => {
            return Err(Error::malformed(
                "orbax",
                format!("its `manifest_kind` is {other}, which is undefined"),
            ));
        }
    }
    cursor.varint()?;
    cursor.varint()?;
    let arity = cursor.byte()?;
    if arity == 0 || arity > MOST_ARITY_LOG2 {
        return Err(Error::malformed(
            "orbax",
            format!("its version tree arity is 2^{arity}, but 2^1 to 2^{MOST_ARITY_LOG2} are allowed"),
        ));
    }
    match cursor.varint()? {
        0 => {}
        1 => {
            cursor.take(4)?;
        }
        other => {
            return Err(Error::unsupported(
                "orbax",
                format!("its compression method is {other}; only 0 (none) and 1 (Zstandard) are supported"),
            ));
        }
    }
    Ok(arity)
}

/// Reads the references to nodes of the version tree, whose locations are checked but not used.
fn version_nodes(cursor: &mut Cursor<'_>, files: &[files::DataFile]) -> Result<(), Error> {
    let count = cursor.count(64, 14, "the number of version nodes")?;
    cursor.column(count, u64::MAX, "a generation")?;
    let numbers = cursor.column(count, u64::MAX, "a data file")?;
    let offsets = cursor.column(count, u64::MAX, "an offset")?;
    let lens = cursor.column(count, u64::MAX, "a length")?;
    for ((number, offset), len) in numbers.into_iter().zip(offsets).zip(lens) {
        files::location(files, number, offset, len)?;
    }
    cursor.column(count, u64::MAX, "the number of generations")?;
    // A time of 8 bytes and a height of one.
    cursor.take(9 * count as u64)?;
    Ok(())
}
