//! A node of the B+tree: keys with values, or the first keys of further nodes.
//!
//! ```text
//! height u8, data file table, number of entries, then one column after the other
//! keys      lengths of prefixes shared with the previous key, of suffixes [, of the prefix of a subtree]; suffixes
//! interior  data file, offset, length; three statistics
//! leaf      length, kind u8 of each value; data file and offset of those in files; bytes of inline ones
//! ```

use crate::error::Error;
use crate::formats::orbax::ocdbt::Value;
use crate::formats::orbax::ocdbt::cursor::Cursor;
use crate::formats::orbax::ocdbt::files::{self, DataFile, Location};

/// The most entries of a node, by the format.
const MOST_ENTRIES: usize = 1 << 20;

/// The longest key in bytes, by the format.
const LONGEST_KEY: usize = 65_535;

/// The most bytes of all keys of a node: each may repeat 64 KiB of the previous one in three bytes.
const MOST_KEY_BYTES: usize = 256 << 20;

/// The largest inline value in bytes, by the format.
const MOST_INLINE: u64 = 1 << 20;

/// The kind of a value that is stored in a file; 0 is an inline one.
const IN_FILE: u8 = 1;

/// The entries of a node; keys are relative to the prefix of the node.
#[derive(Debug)]
pub(crate) enum Node {
    /// Keys with their values.
    Leaf(Vec<(Vec<u8>, Value)>),
    /// Nodes of the next lower level.
    Interior(Vec<Child>),
}

/// A node of the next lower level.
#[derive(Debug)]
pub(crate) struct Child {
    /// The lower bound of the keys below.
    pub(crate) key: Vec<u8>,
    /// The number of bytes of `key` that all keys below begin with; they are not repeated there.
    pub(crate) shared: usize,
    pub(crate) node: Location,
}

/// Parses the body of a node of this height, whose paths begin with `base`.
pub(crate) fn parse(body: &[u8], height: u8, base: &str) -> Result<Node, Error> {
    let mut cursor = Cursor::new(body);
    let stored = cursor.byte()?;
    if stored != height {
        return Err(Error::malformed(
            "orbax",
            format!("its height is {stored}, but its parent declares {height}"),
        ));
    }
    let files = files::table(&mut cursor, base)?;
    let node = if height == 0 { leaf(&mut cursor, &files)? } else { interior(&mut cursor, &files)? };
    cursor.end()?;
    Ok(node)
}

fn leaf(cursor: &mut Cursor<'_>, files: &[DataFile]) -> Result<Node, Error> {
    // A prefix (not of the first key), a suffix, a length and a kind.
    let count = entries(cursor, 3)?;
    let (prefixes, suffixes) = key_lengths(cursor, count)?;
    let keys = keys(cursor, &prefixes, &suffixes)?;
    let lens = cursor.column(count, u64::MAX, "the length of a value")?;
    let kinds = cursor.take(count as u64)?;
    if let Some(other) = kinds.iter().find(|kind| **kind > IN_FILE) {
        return Err(Error::malformed(
            "orbax",
            format!("a value has kind {other}, but 0 (inline) or 1 (in a file) are allowed"),
        ));
    }
    let in_files: usize = kinds.iter().map(|kind| usize::from(*kind)).sum();
    let numbers = cursor.column(in_files, u64::MAX, "a data file")?;
    let offsets = cursor.column(in_files, u64::MAX, "an offset")?;
    let mut locations = numbers.into_iter().zip(offsets);
    let mut entries = Vec::with_capacity(count);
    for ((key, kind), len) in keys.into_iter().zip(kinds).zip(lens) {
        let value = if let Some((number, offset)) = (*kind == IN_FILE).then(|| locations.next()).flatten() {
            let Location { file, offset, len } = files::location(files, number, offset, len)?;
            Value::InFile { path: file.path, offset, len }
        } else if len > MOST_INLINE {
            return Err(Error::malformed(
                "orbax",
                format!("an inline value has {len} bytes, but at most {MOST_INLINE} are allowed"),
            ));
        } else {
            Value::Inline(cursor.take(len)?.to_vec())
        };
        entries.push((key, value));
    }
    Ok(Node::Leaf(entries))
}

impl Node {
    /// Returns the bytes of its keys and of the paths that it refers to.
    pub(crate) fn expanded_bytes(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries
                .iter()
                .map(|(key, value)| match value {
                    Value::Inline(_) => key.len(),
                    Value::InFile { path, .. } => key.len() + path.len(),
                })
                .sum(),
            Self::Interior(children) => {
                children.iter().map(|child| child.key.len() + child.node.file.path.len()).sum()
            }
        }
    }
}

fn interior(cursor: &mut Cursor<'_>, files: &[DataFile]) -> Result<Node, Error> {
    let count = entries(cursor, 8)?;
    let (prefixes, suffixes) = key_lengths(cursor, count)?;
    let shared = cursor.column(count, LONGEST_KEY as u64, "the length of the prefix of a subtree")?;
    let keys = keys(cursor, &prefixes, &suffixes)?;
    let numbers = cursor.column(count, u64::MAX, "a data file")?;
    let offsets = cursor.column(count, u64::MAX, "an offset")?;
    let lens = cursor.column(count, u64::MAX, "a length")?;
    for statistic in ["the number of keys", "the bytes of the tree", "the bytes of values"] {
        cursor.column(count, u64::MAX, statistic)?;
    }
    let mut children = Vec::with_capacity(count);
    let locations = numbers.into_iter().zip(offsets).zip(lens);
    for ((key, shared), ((number, offset), len)) in keys.into_iter().zip(shared).zip(locations) {
        let shared = shared as usize;
        if shared > key.len() {
            return Err(Error::malformed(
                "orbax",
                format!("the keys below a key of {} bytes share {shared} bytes", key.len()),
            ));
        }
        children.push(Child { key, shared, node: files::location(files, number, offset, len)? });
    }
    Ok(Node::Interior(children))
}

fn entries(cursor: &mut Cursor<'_>, each: usize) -> Result<usize, Error> {
    match cursor.count(MOST_ENTRIES, each, "the number of entries")? {
        0 => Err(Error::malformed("orbax", "it has no entries")),
        count => Ok(count),
    }
}

/// Reads the lengths of prefixes, of which the first key has none, and of suffixes.
fn key_lengths(cursor: &mut Cursor<'_>, count: usize) -> Result<(Vec<u64>, Vec<u64>), Error> {
    let mut prefixes = vec![0];
    prefixes.extend(cursor.column(count - 1, LONGEST_KEY as u64, "the length of a key prefix")?);
    Ok((prefixes, cursor.column(count, LONGEST_KEY as u64, "the length of a key suffix")?))
}

/// Reads the suffixes of keys and returns the keys, which must increase.
fn keys(cursor: &mut Cursor<'_>, prefixes: &[u64], suffixes: &[u64]) -> Result<Vec<Vec<u8>>, Error> {
    let mut keys: Vec<Vec<u8>> = Vec::with_capacity(prefixes.len());
    let mut total = 0;
    for (prefix, suffix) in prefixes.iter().zip(suffixes) {
        let suffix = cursor.take(*suffix)?;
        let before = keys.last().map_or(&[][..], |key| &key[..]);
        let prefix = usize::try_from(*prefix).ok().and_then(|len| before.get(..len)).ok_or_else(|| {
            Error::malformed(
                "orbax",
                format!("a key shares {prefix} bytes with a key of {} bytes", before.len()),
            )
        })?;
        let key = [prefix, suffix].concat();
        total += key.len();
        if key.len() > LONGEST_KEY || total > MOST_KEY_BYTES {
            return Err(Error::unsupported(
                "orbax",
                format!(
                    "a key of {} bytes, {total} with those before it, exceeds the limit of {LONGEST_KEY} and {MOST_KEY_BYTES}",
                    key.len()
                ),
            ));
        }
        if !keys.is_empty() && before >= &key[..] {
            return Err(Error::malformed(
                "orbax",
                format!(
                    "its keys do not increase: `{}` follows `{}`",
                    key.escape_ascii(),
                    before.escape_ascii()
                ),
            ));
        }
        keys.push(key);
    }
    Ok(keys)
}
