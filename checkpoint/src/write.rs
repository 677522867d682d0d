//! Writing: outputs are staged, filled, synced and committed by renaming.

pub(crate) mod outputs;
pub(crate) mod reserved;
pub(crate) mod shard_files;
pub(crate) mod staging;
pub(crate) mod writer;
