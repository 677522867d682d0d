//! Opening of a checkpoint: the format is detected, and its headers are read.
//!
//! ```text
//! nothing                          -> the embedded block          whole tensors
//! FILE.safetensors                 -> one file                    whole tensors
//! an archive of torch.save or npz  -> itself                      whole tensors
//! a file of NumPy                  -> itself                      one whole tensor
//! a directory of an earlier run    -> rank files and manifest     one shard per rank, and the sharding
//! a folder with `.metadata`        -> PyTorch's DCP files         chunks of tensors
//! a folder with `_METADATA`        -> arrays of Orbax             chunks of tensors
//! a folder with an index           -> the files it names          whole tensors
//! a folder of files of ranks       -> the DTensors in them        chunks of tensors, with replicas
//! a folder of files of Llama       -> its ranks                   chunks of tensors, with replicas
//! a folder of files with offsets   -> the same in safetensors     chunks of tensors
//! a folder of other files          -> the union of them           whole tensors
//! a folder, and a [`SourceSpec`]   -> the files that it names     chunks of tensors, with replicas
//! ```

mod by_content;
mod by_source;
mod folder;
mod indexed;
mod llama;
pub(crate) mod source;
mod union;

use std::path::Path;

use crate::bytes::place::{self, Kind};
use crate::error::Error;
use crate::formats::dcp::{self, METADATA_NAME};
use crate::formats::embedded;
use crate::formats::index::{INDEX_NAME, TORCH_INDEX_NAME};
use crate::model::checkpoint::Checkpoint;

impl Checkpoint {
    /// Opens the checkpoint at `path`, or makes the embedded checkpoint.
    pub fn open(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(embedded::checkpoint()) };
        let kind = place::kind(path).map_err(|error| {
            Error::unreadable(format!("the input {} cannot be read: {error}", place::shown(path)))
        })?;
        let of_folder = |folder: &Path, opened: Result<Self, Error>| {
            opened.map(|opened| Self { folders: vec![folder.to_owned()], ..opened })
        };
        if kind == Kind::Directory {
            return of_folder(path, folder::open(path));
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        if path.file_name().is_some_and(|name| name == INDEX_NAME || name == TORCH_INDEX_NAME) {
            return of_folder(parent, indexed::open(parent, path));
        }
        if path.file_name().is_some_and(|name| name == METADATA_NAME) {
            return of_folder(parent, dcp::open(parent, path));
        }
        by_content::open(path)
    }
}
