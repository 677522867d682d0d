//! The declarations in the header of a safetensors file, read in one pass and with bounds.
//!
//! The library's own reader stores every part of the text before it interprets it, which takes 14 times the
//! memory of the text. Here every name is interpreted as it is read, and the number of entries is limited.
//! The library still checks that the tensors are contiguous.

use std::collections::BTreeMap;
use std::fmt;

use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::model::stored::{FreeTexts, MOST_DIMS};

/// The largest number of tensors in a header, and of free texts.
const MOST_ENTRIES: usize = 1 << 20;

/// The key of the free texts.
const TEXTS: &str = "__metadata__";

/// The declarations of a header.
pub(crate) struct Declared {
    pub(crate) texts: Option<FreeTexts>,
    /// In the order of the text.
    pub(crate) tensors: Vec<(String, TensorInfo)>,
}

/// A tensor, with at most one dim more than the limit.
#[derive(serde::Deserialize)]
struct Info {
    dtype: Dtype,
    shape: Shape,
    data_offsets: (usize, usize),
}

struct Shape(Vec<usize>);

struct Texts(FreeTexts);

impl<'de> Deserialize<'de> for Declared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Declared;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Declared, A::Error> {
                let mut declared = Declared { texts: None, tensors: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == TEXTS {
                        declared.texts = map.next_value::<Option<Texts>>()?.map(|texts| texts.0);
                        continue;
                    }
                    if declared.tensors.len() == MOST_ENTRIES {
                        return Err(too_many("tensors"));
                    }
                    let Info { dtype, shape, data_offsets } = map.next_value()?;
                    declared.tensors.push((name, TensorInfo { dtype, shape: shape.0, data_offsets }));
                }
                Ok(declared)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
                let mut texts = BTreeMap::new();
                while let Some((key, text)) = map.next_entry()? {
                    if texts.len() == MOST_ENTRIES {
                        return Err(too_many("free texts"));
                    }
                    texts.insert(key, text);
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Extents;

        impl<'de> Visitor<'de> for Extents {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of extents")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(extent) = list.next_element()? {
                    // One dim over the limit is enough to report that there are too many.
                    if shape.len() <= MOST_DIMS {
                        shape.push(extent);
                    }
                }
                Ok(Shape(shape))
            }
        }

        deserializer.deserialize_seq(Extents)
    }
}

fn too_many<E: Error>(what: &str) -> E {
    E::custom(format_args!("it has more than {MOST_ENTRIES} {what}, which is the limit"))
}
