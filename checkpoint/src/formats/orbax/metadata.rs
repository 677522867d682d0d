//! `_METADATA`: the leaves of the tree that was saved, with their key paths and types.
//!
//! ```text
//! {"tree_metadata": {"('a', 'b')": {"key_metadata": [{"key": "a", "key_type": 2}, ..],
//!                                   "value_metadata": {"value_type": "jax.Array", ..}}, ..}, "use_zarr3": false, ..}
//! ```
//!
//! The texts such as `('a', 'b')` are not parsed. The keys of a path joined with dots are the name of a leaf, and
//! the folder of its array, or the prefix of its keys in OCDBT.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::error::Error;
use crate::formats::orbax::ocdbt::files::check;
use crate::formats::orbax::shown;
use crate::formats::orbax::zarr::Version;

/// The name of the file.
pub(crate) const FILE: &str = "_METADATA";

/// The most leaves: a million.
const MOST_LEAVES: usize = 1 << 20;

/// The deepest leaf.
const MOST_KEYS: usize = 256;

/// The saved tree.
#[derive(Debug)]
pub(crate) struct Metadata {
    /// In the order of the file; the names are different.
    pub(crate) leaves: Vec<Leaf>,
    /// `true` if arrays are in an OCDBT database; `None` if an old writer does not declare it.
    pub(crate) use_ocdbt: Option<bool>,
    pub(crate) version: Version,
    /// `true` if chunks of the fill value are stored too, so that a missing chunk is lost data.
    pub(crate) stores_fill: bool,
}

/// A leaf of the saved tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// The keys from the root.
    pub(crate) path: Vec<Key>,
    pub(crate) kind: LeafKind,
    /// The type as the writer calls it: `jax.Array`, `np.ndarray`, `scalar`, `string`, `None`, ..
    pub(crate) value_type: String,
}

/// A key of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The index of a list or tuple, as text.
    Index(String),
    /// The key of a dict, or the name of an attribute.
    Name(String),
}

/// The kind of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafKind {
    /// An array of JAX or NumPy.
    Array,
    /// A Python or NumPy number, stored as an array of rank 0.
    Scalar,
    /// A text in the file `_strings.json`.
    Text,
    /// `None`, or an empty dict, list or tuple, of which nothing is stored.
    Empty,
    /// A type of a custom handler, or one that is not known.
    Other,
}

impl Metadata {
    /// Parses the file.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, Error> {
        let file: File = serde_json::from_slice(json).map_err(|error| {
            Error::malformed("orbax", format!("it is not the metadata of an Orbax checkpoint: {error}"))
                .about(FILE)
        })?;
        let mut names = BTreeSet::new();
        for leaf in &file.tree_metadata.0 {
            if !names.insert(leaf.name()) {
                let message = format!("two leaves have the name `{}`", shown(&leaf.name()));
                return Err(Error::malformed("orbax", message).about(FILE));
            }
        }
        Ok(Self {
            leaves: file.tree_metadata.0,
            use_ocdbt: file.use_ocdbt,
            version: if file.use_zarr3.unwrap_or(false) { Version::Three } else { Version::Two },
            stores_fill: file.store_array_data_equal_to_fill_value.unwrap_or(false),
        })
    }
}

impl Leaf {
    /// Returns the name: the keys joined with dots.
    pub(crate) fn name(&self) -> String {
        let keys: Vec<&str> = self.path.iter().map(Key::text).collect();
        keys.join(".")
    }

    /// Returns the key in an OCDBT database of a part of the leaf's array, such as `.zarray` or `0.1`.
    pub(crate) fn database_key(&self, part: &str) -> String {
        let name = self.name();
        // TensorStore adds a slash unless there is one, and none to an empty path.
        if name.is_empty() || name.ends_with('/') { name + part } else { format!("{name}/{part}") }
    }

    /// Returns the path of a file of the leaf's array, which is inside the folder of the checkpoint.
    pub(crate) fn file(&self, part: &str) -> Result<String, Error> {
        let file = format!("{}/{part}", self.name());
        check(&file)?;
        Ok(file)
    }
}

impl Key {
    fn text(&self) -> &str {
        match self {
            Self::Index(text) | Self::Name(text) => text,
        }
    }
}

impl LeafKind {
    fn of(value_type: &str) -> Self {
        match value_type {
            "jax.Array" | "np.ndarray" => Self::Array,
            "scalar" => Self::Scalar,
            "string" => Self::Text,
            "None" | "Dict" | "List" | "Tuple" | "NamedTuple" => Self::Empty,
            _ => Self::Other,
        }
    }
}

#[derive(Deserialize)]
struct File {
    tree_metadata: Leaves,
    use_ocdbt: Option<bool>,
    use_zarr3: Option<bool>,
    store_array_data_equal_to_fill_value: Option<bool>,
}

struct Leaves(Vec<Leaf>);

#[derive(Deserialize)]
struct Entry {
    key_metadata: Vec<KeyEntry>,
    value_metadata: ValueEntry,
}

#[derive(Deserialize)]
struct KeyEntry {
    key: String,
    key_type: u64,
}

#[derive(Deserialize)]
struct ValueEntry {
    value_type: String,
}

impl<'de> Deserialize<'de> for Leaves {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Leaves;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of leaves")
            }

            // Not through a map: one would drop the first of two equal keys.
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Leaves, A::Error> {
                let mut leaves = Vec::new();
                while map.next_key::<IgnoredAny>()?.is_some() {
                    if leaves.len() == MOST_LEAVES {
                        return Err(A::Error::custom(format_args!("more than {MOST_LEAVES} leaves")));
                    }
                    leaves.push(leaf(map.next_value()?).map_err(A::Error::custom)?);
                }
                Ok(Leaves(leaves))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

fn leaf(entry: Entry) -> Result<Leaf, String> {
    if entry.key_metadata.len() > MOST_KEYS {
        return Err(format!("a leaf has more than {MOST_KEYS} keys"));
    }
    let key = |entry: KeyEntry| match entry.key_type {
        1 => Ok(Key::Index(entry.key)),
        2 => Ok(Key::Name(entry.key)),
        other => Err(format!("key `{}` has key_type {other}, not 1 or 2", shown(&entry.key))),
    };
    let path = entry.key_metadata.into_iter().map(key).collect::<Result<_, _>>()?;
    let value_type = entry.value_metadata.value_type;
    Ok(Leaf { path, kind: LeafKind::of(&value_type), value_type })
}

#[cfg(test)]
mod tests {
    use super::{Key, LeafKind, Metadata};

    const LEAVES: &str = r#"{"tree_metadata": {
        "('a', '0')": {"key_metadata": [{"key": "a", "key_type": 2}, {"key": "0", "key_type": 1}],
            "value_metadata": {"value_type": "jax.Array", "skip_deserialize": false, "write_shape": [2]}},
        "('é',)": {"key_metadata": [{"key": "é", "key_type": 2}], "value_metadata": {"value_type": "None", "skip_deserialize": true}},
        "('',)": {"key_metadata": [{"key": "", "key_type": 2}], "value_metadata": {"value_type": "scalar", "skip_deserialize": false}},
        "('..',)": {"key_metadata": [{"key": "..", "key_type": 2}], "value_metadata": {"value_type": "my.Type", "skip_deserialize": false}}
        }, "use_ocdbt": true, "use_zarr3": false, "store_array_data_equal_to_fill_value": true, "custom_metadata": null}"#;

    #[test]
    fn leaves_are_named_by_their_keys() {
        let metadata = Metadata::parse(LEAVES.as_bytes()).unwrap();
        let names: Vec<_> = metadata.leaves.iter().map(|leaf| (leaf.name(), leaf.kind)).collect();
        let expected = [
            ("a.0", LeafKind::Array),
            ("é", LeafKind::Empty),
            ("", LeafKind::Scalar),
            ("..", LeafKind::Other),
        ];
        assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
        assert_eq!(metadata.leaves[0].path, [Key::Name("a".into()), Key::Index("0".into())]);
        assert_eq!(metadata.leaves[0].database_key(".zarray"), "a.0/.zarray");
        assert_eq!(metadata.leaves[2].database_key(".zarray"), ".zarray");
        assert_eq!(metadata.leaves[0].file("c/0").unwrap(), "a.0/c/0");
        metadata.leaves[2].file("0").unwrap_err();
        metadata.leaves[3].file("0").unwrap_err();
        assert!(metadata.stores_fill && metadata.use_ocdbt == Some(true));
    }

    #[test]
    fn damaged_metadata_is_an_error() {
        for at in 0..LEAVES.len() {
            if let Some(part) = LEAVES.get(..at) {
                Metadata::parse(part.as_bytes()).unwrap_err();
            }
            for byte in [0, b'9', b'"', b'}', b'\\', 0xff] {
                let mut damaged = LEAVES.as_bytes().to_vec();
                damaged[at] = byte;
                let _ = Metadata::parse(&damaged);
            }
        }
        let equal_names = LEAVES.replace("\"é\"", "\"a.0\"");
        Metadata::parse(equal_names.as_bytes()).unwrap_err();
        let equal_keys = LEAVES.replace("('é',)", "('',)");
        assert_eq!(Metadata::parse(equal_keys.as_bytes()).unwrap().leaves.len(), 4);
        Metadata::parse(LEAVES.replace("\"key_type\": 1", "\"key_type\": 3").as_bytes()).unwrap_err();
        // Older writers declare neither.
        let old = LEAVES.replace(
            r#", "use_ocdbt": true, "use_zarr3": false, "store_array_data_equal_to_fill_value": true"#,
            "",
        );
        assert_eq!(Metadata::parse(old.as_bytes()).unwrap().use_ocdbt, None);
    }
}
