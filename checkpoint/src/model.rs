//! A checkpoint in memory: tensors, entries that are not tensors, and the locations of their bytes.

pub(crate) mod archives;
pub(crate) mod boxes;
pub(crate) mod by_part;
pub(crate) mod checkpoint;
pub(crate) mod copies;
pub(crate) mod objects;
pub(crate) mod once;
pub(crate) mod parts;
pub(crate) mod placed;
pub(crate) mod runs;
pub(crate) mod slab;
pub(crate) mod stored;
mod tiling;
pub(crate) mod units;
