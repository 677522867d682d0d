//! The formats of files: each is read to a checkpoint, or written from one.

pub(crate) mod dcp;
mod dtensor;
pub(crate) mod embedded;
pub(crate) mod fsdp;
pub(crate) mod header;
pub(crate) mod held;
pub(crate) mod index;
pub(crate) mod manifest;
pub(crate) mod numpy;
pub(crate) mod objects_file;
pub(crate) mod orbax;
pub(crate) mod pickle;
pub(crate) mod rank_files;
pub(crate) mod torch_save;
pub(crate) mod unique;
