//! The metadata of an array in zarr 2: `.zarray`.

use serde::Deserialize;
use serde_json::Value;

use crate::bytes::packing::{Packing, Step};
use crate::error::Error;
use crate::formats::orbax::shown;
use crate::formats::orbax::zarr::dtype;
use crate::formats::orbax::zarr::fill::Fill;
use crate::formats::orbax::zarr::grid::Grid;
use crate::formats::orbax::zarr::{Array, Keys, Storage};

#[derive(Deserialize)]
struct Metadata {
    zarr_format: u64,
    shape: Vec<usize>,
    chunks: Vec<usize>,
    /// A text, or a list of the fields of a record.
    dtype: Value,
    compressor: Value,
    fill_value: Value,
    order: String,
    filters: Option<Vec<Value>>,
    dimension_separator: Option<String>,
}

/// Parses the metadata of an array.
pub(crate) fn parse(json: &[u8]) -> Result<Array, Error> {
    let metadata: Metadata = serde_json::from_slice(json)
        .map_err(|error| Error::malformed("orbax", format!("it is not the metadata of an array: {error}")))?;
    if metadata.zarr_format != 2 {
        return Err(Error::malformed(
            "orbax",
            format!("its `zarr_format` is {}, but 2 is required", metadata.zarr_format),
        ));
    }
    let Value::String(dtype) = &metadata.dtype else {
        return Err(Error::unsupported(
            "orbax",
            "its elements are records, for which safetensors has no type",
        ));
    };
    let dtype = dtype::from_v2(dtype)?;
    match &metadata.order[..] {
        "C" => {}
        "F" => return Err(Error::unsupported("orbax", "its `order` is F; only C (row-major) is supported")),
        other => {
            return Err(Error::malformed("orbax", format!("its `order` is `{}`, not C or F", shown(other))));
        }
    }
    if let Some(filter) = metadata.filters.unwrap_or_default().first() {
        return Err(Error::unsupported("orbax", format!("its filter `{}` is not supported", id(filter))));
    }
    let steps = if metadata.compressor.is_null() {
        Vec::new()
    } else if id(&metadata.compressor) == "zstd" {
        vec![Step::Zstd]
    } else {
        return Err(Error::unsupported(
            "orbax",
            format!("its compressor is `{}`; only zstd and none are supported", id(&metadata.compressor)),
        ));
    };
    let separator = match metadata.dimension_separator.as_deref() {
        None | Some(".") => '.',
        Some("/") => '/',
        Some(other) => {
            return Err(Error::malformed(
                "orbax",
                format!("its `dimension_separator` is `{}`, not `.` or `/`", shown(other)),
            ));
        }
    };
    Array::new(
        dtype,
        Grid::new(metadata.shape, metadata.chunks)?,
        Storage::Chunk(Packing(steps)),
        Fill(metadata.fill_value),
        Keys { prefix: "", separator },
    )
}

/// Returns the name of a filter or compressor for a message.
fn id(value: &Value) -> String {
    let id = value.get("id").and_then(Value::as_str);
    shown(&id.map_or_else(|| value.to_string(), str::to_owned))
}
