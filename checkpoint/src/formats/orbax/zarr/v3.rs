//! The metadata of an array in zarr 3: `zarr.json`.
//!
//! ```text
//! {"zarr_format": 3, "node_type": "array", "shape": [..], "data_type": "float32", "fill_value": 0,
//!  "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [..]}},
//!  "chunk_key_encoding": {"name": "default"},
//!  "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [..], "codecs": [..], "index_codecs": [..]}}]}
//! ```

use safetensors::Dtype;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::bytes::packing::{Packing, Step};
use crate::error::Error;
use crate::formats::orbax::shown;
use crate::formats::orbax::zarr::dtype;
use crate::formats::orbax::zarr::fill::Fill;
use crate::formats::orbax::zarr::grid::Grid;
use crate::formats::orbax::zarr::shard::{IndexLocation, Sharding};
use crate::formats::orbax::zarr::{Array, Keys, Storage};

#[derive(Deserialize)]
struct Metadata {
    zarr_format: u64,
    node_type: String,
    shape: Vec<usize>,
    /// A text, or an extension with a configuration.
    data_type: Value,
    chunk_grid: Extension,
    chunk_key_encoding: Extension,
    fill_value: Value,
    codecs: Vec<Extension>,
    #[serde(default)]
    storage_transformers: Vec<Extension>,
    #[serde(default, rename = "attributes")]
    _attributes: Value,
    #[serde(default, rename = "dimension_names")]
    _dimension_names: Value,
    /// Members that a reader must understand, unless they declare that it need not.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A name with a configuration; the name alone is allowed too.
#[derive(Deserialize)]
#[serde(untagged)]
enum Extension {
    Name(String),
    Named {
        name: String,
        #[serde(default)]
        configuration: Map<String, Value>,
    },
}

#[derive(Deserialize)]
struct RegularGrid {
    chunk_shape: Vec<usize>,
}

#[derive(Deserialize)]
struct KeyEncoding {
    separator: Option<String>,
}

#[derive(Deserialize)]
struct BytesCodec {
    endian: Option<String>,
}

#[derive(Deserialize)]
struct ShardingCodec {
    chunk_shape: Vec<usize>,
    codecs: Vec<Extension>,
    index_codecs: Vec<Extension>,
    index_location: Option<String>,
}

impl Extension {
    fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::Named { name, .. } => name,
        }
    }

    fn configuration<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let configuration = match self {
            Self::Name(_) => Map::new(),
            Self::Named { configuration, .. } => configuration.clone(),
        };
        serde_json::from_value(Value::Object(configuration)).map_err(|error| {
            Error::malformed(
                "orbax",
                format!("the configuration of `{}` is invalid: {error}", shown(self.name())),
            )
        })
    }
}

/// Parses the metadata of an array.
pub(crate) fn parse(json: &[u8]) -> Result<Array, Error> {
    let metadata: Metadata = serde_json::from_slice(json)
        .map_err(|error| Error::malformed("orbax", format!("it is not the metadata of an array: {error}")))?;
    if metadata.zarr_format != 3 || metadata.node_type != "array" {
        return Err(Error::malformed(
            "orbax",
            format!(
                "its `zarr_format` is {} and its `node_type` is `{}`, but 3 and `array` are required",
                metadata.zarr_format,
                shown(&metadata.node_type)
            ),
        ));
    }
    let optional = |value: &Value| value.get("must_understand") == Some(&Value::Bool(false));
    if let Some((name, _)) = metadata.others.iter().find(|(_, value)| !optional(value)) {
        return Err(Error::unsupported("orbax", format!("its member `{}` is not supported", shown(name))));
    }
    if let Some(transformer) = metadata.storage_transformers.first() {
        return Err(Error::unsupported(
            "orbax",
            format!("its storage transformer `{}` is not supported", shown(transformer.name())),
        ));
    }
    let Value::String(dtype) = &metadata.data_type else {
        return Err(Error::unsupported(
            "orbax",
            format!(
                "its `data_type` is `{}`, for which safetensors has no type",
                shown(&metadata.data_type.to_string())
            ),
        ));
    };
    let dtype = dtype::from_v3(dtype)?;
    if metadata.chunk_grid.name() != "regular" {
        return Err(Error::unsupported(
            "orbax",
            format!("its chunk grid is `{}`; only `regular` is supported", shown(metadata.chunk_grid.name())),
        ));
    }
    let RegularGrid { chunk_shape } = metadata.chunk_grid.configuration()?;
    let grid = Grid::new(metadata.shape, chunk_shape)?;
    let storage = storage(&metadata.codecs, grid.chunk_shape(), dtype)?;
    Array::new(dtype, grid, storage, Fill(metadata.fill_value), keys(&metadata.chunk_key_encoding)?)
}

fn keys(encoding: &Extension) -> Result<Keys, Error> {
    let (prefix, default) = match encoding.name() {
        "default" => ("c", '/'),
        "v2" => ("", '.'),
        other => {
            return Err(Error::unsupported(
                "orbax",
                format!(
                    "its chunk key encoding is `{}`; only `default` and `v2` are supported",
                    shown(other)
                ),
            ));
        }
    };
    let KeyEncoding { separator } = encoding.configuration()?;
    let separator = match separator.as_deref() {
        None => default,
        Some(".") => '.',
        Some("/") => '/',
        Some(other) => {
            return Err(Error::malformed(
                "orbax",
                format!("the separator of its chunk keys is `{}`, not `.` or `/`", shown(other)),
            ));
        }
    };
    Ok(Keys { prefix, separator })
}

/// Parses the codecs of an array whose chunks have this shape.
fn storage(codecs: &[Extension], chunk_shape: &[usize], dtype: Dtype) -> Result<Storage, Error> {
    let [codec] = codecs else { return Ok(Storage::Chunk(packing(codecs, dtype)?)) };
    if codec.name() != "sharding_indexed" {
        return Ok(Storage::Chunk(packing(codecs, dtype)?));
    }
    let sharding: ShardingCodec = codec.configuration()?;
    let index_location = match sharding.index_location.as_deref() {
        None | Some("end") => IndexLocation::End,
        Some("start") => IndexLocation::Start,
        Some(other) => {
            return Err(Error::malformed(
                "orbax",
                format!("its `index_location` is `{}`, not `start` or `end`", shown(other)),
            ));
        }
    };
    let index =
        packing(&sharding.index_codecs, Dtype::U64).map_err(|error| error.about("the index codecs"))?;
    let index_has_crc = match index.0[..] {
        [] => false,
        [Step::Crc32c] => true,
        _ => {
            return Err(Error::unsupported(
                "orbax",
                "the index of its shards is compressed; only `bytes` and `crc32c` are supported",
            ));
        }
    };
    let packing = packing(&sharding.codecs, dtype)?;
    Sharding::new(chunk_shape, sharding.chunk_shape, packing, index_location, index_has_crc)
        .map(Storage::Shard)
}

/// Parses the codec `bytes`, then those of bytes.
fn packing(codecs: &[Extension], dtype: Dtype) -> Result<Packing, Error> {
    let [first, rest @ ..] = codecs else {
        return Err(Error::malformed("orbax", "it has no codecs, but `bytes` is required"));
    };
    if first.name() != "bytes" {
        return Err(unsupported(first));
    }
    let BytesCodec { endian } = first.configuration()?;
    match endian.as_deref() {
        Some("little") => {}
        Some("big") | None if dtype::bytes(dtype) == 1 => {}
        Some("big") => {
            return Err(Error::unsupported(
                "orbax",
                "its elements are big-endian; only little-endian ones are supported",
            ));
        }
        Some(other) => {
            return Err(Error::malformed(
                "orbax",
                format!("its `endian` is `{}`, not little or big", shown(other)),
            ));
        }
        None => return Err(Error::malformed("orbax", "its codec `bytes` declares no `endian`")),
    }
    let step = |codec: &Extension| match codec.name() {
        "zstd" => Ok(Step::Zstd),
        "crc32c" => Ok(Step::Crc32c),
        _ => Err(unsupported(codec)),
    };
    let steps = rest.iter().map(step).collect::<Result<Vec<_>, _>>()?;
    if steps.iter().filter(|step| **step == Step::Zstd).count() > 1 {
        return Err(Error::unsupported("orbax", "its chunks are compressed twice"));
    }
    Ok(Packing(steps))
}

fn unsupported(codec: &Extension) -> Error {
    Error::unsupported(
        "orbax",
        format!(
            "its codec `{}` is not supported; `bytes`, `zstd`, `crc32c` and `sharding_indexed` (alone) are",
            shown(codec.name())
        ),
    )
}
