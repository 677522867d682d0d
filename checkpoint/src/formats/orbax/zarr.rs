//! Zarr arrays, versions 2 and 3: metadata, the grid of stored chunks, and their decoding.
//!
//! A chunk at the edge of an array is stored at full size. A chunk of a sharded array (zarr 3) is a file of inner
//! chunks with an index. Elements are little-endian and in row-major order; other orders, filters and compressors
//! are rejected by name.

pub(crate) mod dtype;
pub(crate) mod fill;
pub(crate) mod grid;
pub(crate) mod shard;
#[cfg(test)]
mod tests;
pub(crate) mod v2;
pub(crate) mod v3;

use safetensors::Dtype;

use crate::bytes::inflated::MOST;
use crate::bytes::packing::Packing;
use crate::error::Error;
use fill::Fill;
use grid::Grid;
use shard::Sharding;

/// The largest number of dims.
const MOST_DIMS: usize = 64;

/// The largest chunk that is decompressed, in bytes.
pub(crate) const MOST_CHUNK: usize = MOST as usize;

/// The version of an array's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Zarr 2.
    Two,
    /// Zarr 3.
    Three,
}

impl Version {
    /// Returns the key of the metadata, relative to the array.
    pub(crate) fn metadata_key(self) -> &'static str {
        match self {
            Self::Two => ".zarray",
            Self::Three => "zarr.json",
        }
    }
}

/// An array as its metadata declares it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) dtype: Dtype,
    /// The shape of the array, and of its chunks at full size.
    pub(crate) grid: Grid,
    pub(crate) storage: Storage,
    fill: Fill,
    keys: Keys,
}

/// The contents of a stored chunk.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Storage {
    /// The elements, possibly compressed.
    Chunk(Packing),
    /// Inner chunks with an index.
    Shard(Sharding),
}

/// The keys of chunks: a prefix, then indices with a separator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Keys {
    /// `c`, or empty.
    prefix: &'static str,
    separator: char,
}

/// A stored chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The key relative to the array: `1.0` or `c/1/0`.
    pub(crate) key: String,
    /// The index of its first element.
    pub(crate) start: Vec<usize>,
    /// The shape of its elements inside the array; at most the full shape.
    pub(crate) shape: Vec<usize>,
}

impl Array {
    /// Parses the metadata of an array.
    pub(crate) fn parse(version: Version, json: &[u8]) -> Result<Self, Error> {
        let parsed = match version {
            Version::Two => v2::parse(json),
            Version::Three => v3::parse(json),
        };
        parsed.map_err(|error| error.about(version.metadata_key()))
    }

    fn new(dtype: Dtype, grid: Grid, storage: Storage, fill: Fill, keys: Keys) -> Result<Self, Error> {
        let element = dtype::bytes(dtype);
        let decoded = match &storage {
            Storage::Chunk(packing) => (!packing.is_raw()).then_some(&grid),
            Storage::Shard(sharding) => (!sharding.packing.is_raw()).then_some(&sharding.grid),
        };
        if let Some(len) = decoded.and_then(|grid| grid.chunk_bytes(element)).filter(|len| *len > MOST_CHUNK)
        {
            return Err(Error::unsupported(
                "orbax",
                format!(
                    "its compressed chunks of {len} bytes exceed the limit of {MOST_CHUNK} bytes, because they are decompressed in memory; save it with a smaller `chunk_byte_size`"
                ),
            ));
        }
        if grid.array_bytes(element).is_none() || grid.chunk_bytes(element).is_none() {
            return Err(Error::unsupported(
                "orbax",
                format!(
                    "its shape {:?} or the shape {:?} of its chunks exceeds 2^63 bytes",
                    grid.shape(),
                    grid.chunk_shape()
                ),
            ));
        }
        Ok(Self { dtype, grid, storage, fill, keys })
    }

    /// Returns all chunks in row-major order of the grid; those that are not stored consist of the fill value.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Chunk> {
        self.grid.blocks().map(|block| {
            let mut key = self.keys.prefix.to_owned();
            for index in &block.index {
                if !key.is_empty() {
                    key.push(self.keys.separator);
                }
                key.push_str(&index.to_string());
            }
            // The only chunk of an array of rank 0 in zarr 2.
            if key.is_empty() {
                key.push('0');
            }
            Chunk { key, start: block.start, shape: block.shape }
        })
    }

    /// Returns the bytes of an element that is not stored.
    pub(crate) fn fill(&self) -> Result<Vec<u8>, Error> {
        self.fill.element(self.dtype)
    }
}
