//! OCDBT, TensorStore's database in a folder: a B+tree from keys to byte strings.
//!
//! ```text
//! manifest.ocdbt --> root node --> interior nodes --> leaves --> values, inline or in data files
//! ```
//!
//! The whole tree is read once, in the order of its keys. Values in data files are located, not read. The format
//! is published with TensorStore (`tensorstore/kvstore/ocdbt/index.rst`). Every number is checked before it is
//! used, and the sum of all nodes is limited, because a small file can refer to one node a million times.

pub(crate) mod cursor;
pub(crate) mod files;
pub(crate) mod frame;
pub(crate) mod manifest;
pub(crate) mod node;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Error;
use crate::formats::orbax::shown;
use files::Location;
use frame::Magic;
use node::Node;

/// The name of the manifest in the folder of a database.
pub(crate) const MANIFEST: &str = "manifest.ocdbt";

/// The most keys of a tree: a million.
const MOST_KEYS: usize = 1 << 20;

/// The most bytes of all keys.
const MOST_KEY_BYTES: usize = 256 << 20;

/// The most bytes of all nodes, as stored and as decoded: 1 GiB.
const MOST_NODE_BYTES: usize = 1 << 30;

/// The bytes that every node counts at least, so that their number is limited too.
const LEAST_NODE: usize = 1 << 10;

/// The most levels of a tree.
const MOST_HEIGHT: u8 = 32;

/// The files of a folder, local or remote; paths are relative to the folder and stay inside it.
pub(crate) trait Source {
    /// Reads a whole file; an error if it has more than `most` bytes.
    fn whole(&self, path: &str, most: usize) -> Result<Vec<u8>, Error>;

    /// Reads `len` bytes from byte `offset` on; an error if the file is shorter, before memory is allocated.
    fn part(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, Error>;
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// The bytes, which are stored in the tree.
    Inline(Vec<u8>),
    /// A range of a file.
    InFile {
        /// The path relative to the folder of the database.
        path: Arc<str>,
        /// In bytes; the end is at most 2^63.
        offset: u64,
        /// In bytes.
        len: u64,
    },
}

/// The values of a database by key.
pub(crate) type Entries = BTreeMap<String, Value>;

/// Reads all keys of the most recent version of the database in a folder.
pub(crate) fn read(source: &dyn Source) -> Result<Entries, Error> {
    let bytes = source.whole(MANIFEST, frame::MOST)?;
    let root = manifest::root(&bytes).map_err(|error| error.about(MANIFEST))?;
    let mut walk = Walk { source, entries: Entries::new(), last: None, key_bytes: 0, node_bytes: 0 };
    if let Some(root) = root {
        if root.height > MOST_HEIGHT {
            let message = format!("its tree has {} levels; at most {MOST_HEIGHT} are supported", root.height);
            return Err(Error::unsupported("orbax", message).about(MANIFEST));
        }
        walk.visit(&root.node, root.height, &[], &[])?;
    }
    Ok(walk.entries)
}

/// The state of one pass over a tree.
struct Walk<'a> {
    source: &'a dyn Source,
    entries: Entries,
    /// The last key; keys increase from leaf to leaf.
    last: Option<Vec<u8>>,
    key_bytes: usize,
    node_bytes: usize,
}

impl Walk<'_> {
    /// Adds the keys of a subtree, all of which begin with `prefix` and are at least `first`.
    fn visit(&mut self, at: &Location, height: u8, prefix: &[u8], first: &[u8]) -> Result<(), Error> {
        let about =
            |error: Error| error.about(format_args!("{} at byte {}", shown(&at.file.path), at.offset));
        let len = usize::try_from(at.len).ok().filter(|len| *len <= frame::MOST).ok_or_else(|| {
            about(Error::unsupported(
                "orbax",
                format!("a node of {} bytes exceeds the limit of {} bytes", at.len, frame::MOST),
            ))
        })?;
        let bytes = self.source.part(&at.file.path, at.offset, len)?;
        if bytes.len() != len {
            return Err(about(Error::malformed(
                "orbax",
                format!("{} of {len} bytes are available", bytes.len()),
            )));
        }
        let body = frame::body(&bytes, Magic::Node).map_err(about)?;
        self.node_bytes += bytes.len() + body.len() + LEAST_NODE;
        if self.node_bytes > MOST_NODE_BYTES {
            return Err(about(Error::unsupported(
                "orbax",
                format!("the nodes of the tree exceed the limit of {MOST_NODE_BYTES} bytes"),
            )));
        }
        let node = node::parse(&body, height, &at.file.base).map_err(about)?;
        // Prefixes are expanded, so keys and paths may be much longer than the node.
        self.node_bytes += node.expanded_bytes();
        if self.node_bytes > MOST_NODE_BYTES {
            return Err(about(Error::unsupported(
                "orbax",
                format!("the keys and paths of its nodes exceed the limit of {MOST_NODE_BYTES} bytes"),
            )));
        }
        // Before the next level, so that memory holds the bytes of one node.
        drop(body);
        drop(bytes);
        match node {
            Node::Leaf(entries) => {
                for (key, value) in entries {
                    self.add([prefix, &key].concat(), value, first).map_err(about)?;
                }
            }
            Node::Interior(children) => {
                for child in children {
                    let key = [prefix, &child.key].concat();
                    let shared = key.get(..prefix.len() + child.shared).unwrap_or(&key);
                    // The height is that of a node that was parsed as interior, so at least 1.
                    self.visit(&child.node, height.saturating_sub(1), shared, &key)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, key: Vec<u8>, value: Value, first: &[u8]) -> Result<(), Error> {
        if &key[..] < first || self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(Error::malformed(
                "orbax",
                format!("key `{}` is outside the range that its parent declares", key.escape_ascii()),
            ));
        }
        self.key_bytes += key.len();
        if self.entries.len() == MOST_KEYS || self.key_bytes > MOST_KEY_BYTES {
            return Err(Error::unsupported(
                "orbax",
                format!("the tree has more than {MOST_KEYS} keys or {MOST_KEY_BYTES} bytes of keys"),
            ));
        }
        let text = std::str::from_utf8(&key)
            .map_err(|_| Error::malformed("orbax", format!("key `{}` is not UTF-8", key.escape_ascii())))?;
        self.entries.insert(text.to_owned(), value);
        self.last = Some(key);
        Ok(())
    }
}
