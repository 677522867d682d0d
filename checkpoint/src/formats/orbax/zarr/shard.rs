//! The codec `sharding_indexed` of zarr 3: a stored chunk that consists of inner chunks and an index of them.
//!
//! ```text
//! inner chunks in any order, index: for each in row-major order offset le64, length le64; crc32c le32
//! ```
//!
//! An inner chunk whose offset and length are 2^64 - 1 is not stored and consists of the fill value.

use std::ops::Range;

use crate::bytes::packing::{CRC_LEN, Packing, checked};
use crate::error::Error;
use crate::formats::orbax::zarr::Chunk;
use crate::formats::orbax::zarr::grid::Grid;

/// The bytes of an entry of the index.
const ENTRY: usize = 16;

/// The location of the index in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexLocation {
    Start,
    End,
}

/// The division of a shard into inner chunks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sharding {
    /// The shape of the shard at full size, and of its inner chunks.
    pub(crate) grid: Grid,
    pub(crate) packing: Packing,
    pub(crate) index_location: IndexLocation,
    /// `true` if a CRC-32C follows the index.
    pub(crate) index_has_crc: bool,
}

/// An inner chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InnerChunk {
    /// The index of its first element in the array.
    pub(crate) start: Vec<usize>,
    /// The shape of its elements inside the array.
    pub(crate) shape: Vec<usize>,
    /// The range of bytes in the shard; `None` if it consists of the fill value.
    pub(crate) range: Option<Range<u64>>,
}

impl Sharding {
    /// Checks that inner chunks fill the shard.
    pub(crate) fn new(
        shard: &[usize],
        inner: Vec<usize>,
        packing: Packing,
        index_location: IndexLocation,
        index_has_crc: bool,
    ) -> Result<Self, Error> {
        let grid = Grid::new(shard.to_vec(), inner)?;
        if !shard.iter().zip(grid.chunk_shape()).all(|(shard, inner)| shard.is_multiple_of(*inner)) {
            return Err(Error::malformed(
                "orbax",
                format!("its inner chunks of {:?} do not divide its shards of {shard:?}", grid.chunk_shape()),
            ));
        }
        Ok(Self { grid, packing, index_location, index_has_crc })
    }

    /// Returns the bytes of the index.
    pub(crate) fn index_len(&self) -> usize {
        self.grid.count() * ENTRY + if self.index_has_crc { CRC_LEN } else { 0 }
    }

    /// Returns the range of the index in a shard of this length.
    pub(crate) fn index_range(&self, shard_len: u64) -> Result<Range<u64>, Error> {
        let len = self.index_len() as u64;
        let before = shard_len.checked_sub(len).ok_or_else(|| {
            Error::malformed(
                "orbax",
                format!("a shard of {shard_len} bytes is shorter than its index of {len} bytes"),
            )
        })?;
        Ok(match self.index_location {
            IndexLocation::Start => 0..len,
            IndexLocation::End => before..shard_len,
        })
    }

    /// Parses the index of a shard and returns its inner chunks; those outside the array are left out.
    pub(crate) fn inner_chunks(
        &self,
        shard: &Chunk,
        index: &[u8],
        shard_len: u64,
    ) -> Result<Vec<InnerChunk>, Error> {
        let index = if self.index_has_crc {
            checked(index).map_err(|error| error.about("the index of a shard"))?
        } else {
            index
        };
        let (entries, rest) = index.as_chunks::<ENTRY>();
        if entries.len() != self.grid.count() || !rest.is_empty() {
            return Err(Error::malformed(
                "orbax",
                format!(
                    "the index of a shard has {} bytes, but {} inner chunks require {}",
                    index.len(),
                    self.grid.count(),
                    self.grid.count() * ENTRY
                ),
            ));
        }
        let mut chunks = Vec::new();
        for (block, entry) in self.grid.blocks().zip(entries) {
            let range = range(entry, shard_len)?;
            // The part inside the array; the shard is at full size.
            let dims = block.start.iter().zip(&block.shape).zip(&shard.shape);
            let shape: Option<Vec<usize>> = dims
                .map(|((start, extent), held)| {
                    held.checked_sub(*start).filter(|rest| *rest > 0).map(|rest| rest.min(*extent))
                })
                .collect();
            if let Some(shape) = shape {
                let start =
                    block.start.iter().zip(&shard.start).map(|(inner, outer)| inner + outer).collect();
                chunks.push(InnerChunk { start, shape, range });
            }
        }
        Ok(chunks)
    }
}

fn range(entry: &[u8; ENTRY], shard_len: u64) -> Result<Option<Range<u64>>, Error> {
    let entry = u128::from_le_bytes(*entry);
    let (offset, len) = (entry as u64, (entry >> u64::BITS) as u64);
    if (offset, len) == (u64::MAX, u64::MAX) {
        return Ok(None);
    }
    let end = offset.checked_add(len).filter(|end| *end <= shard_len).ok_or_else(|| {
        Error::malformed(
            "orbax",
            format!(
                "an inner chunk has {len} bytes from byte {offset} on, but its shard has {shard_len} bytes"
            ),
        )
    })?;
    Ok(Some(offset..end))
}
