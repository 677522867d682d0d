//! Opening of a checkpoint: the format is detected, and its headers are read.
//!
//! ```text
//! nothing                          -> the embedded block          whole tensors
//! FILE.safetensors                 -> one file                    whole tensors
//! a folder with an index           -> the files it names          whole tensors
//! a folder with one such file      -> that file                   whole tensors
//! a folder with `.metadata`        -> PyTorch's DCP files         chunks of tensors
//! a folder of files with offsets   -> the same in safetensors     chunks of tensors
//! an archive of torch.save or npz  -> itself                      whole tensors
//! a file of NumPy                  -> itself                      one whole tensor
//! a directory of an earlier run    -> rank files and manifest     one shard per rank, and the sharding
//! ```

mod by_content;

use std::path::Path;

use crate::bytes::place::{self, Kind};
use crate::error::Error;
use crate::formats::dcp::{self, METADATA_NAME, in_safetensors};
use crate::formats::header::{self, Opened};
use crate::formats::index::INDEX_NAME;
use crate::formats::manifest::MANIFEST_NAME;
use crate::formats::{embedded, indexed, rank_files};
use crate::model::checkpoint::{Checkpoint, Origin, Tensor};

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
            return of_folder(path, directory(path));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        if path.file_name().is_some_and(|name| name == INDEX_NAME) {
            return of_folder(folder, indexed::open(folder, path));
        }
        if path.file_name().is_some_and(|name| name == METADATA_NAME) {
            return of_folder(folder, dcp::open(folder, path));
        }
        by_content::open(path)
    }
}

/// Opens the folder of a checkpoint of any format.
fn directory(dir: &Path) -> Result<Checkpoint, Error> {
    let manifest = dir.join(MANIFEST_NAME);
    if place::exists(&manifest)? {
        return rank_files::open(dir, &manifest, &[]);
    }
    let metadata = dir.join(METADATA_NAME);
    if place::exists(&metadata)? {
        return dcp::open(dir, &metadata);
    }
    let index = dir.join(INDEX_NAME);
    if place::exists(&index)? {
        return indexed::open(dir, &index);
    }
    let refused = |why: &str| Err(Error::refused("input", format!("the directory {} {why}", dir.display())));
    let Some(files) = place::safetensors_files(dir)? else {
        return refused(&format!(
            "has no {MANIFEST_NAME}, {METADATA_NAME} or {INDEX_NAME}, and its server cannot list other files; name a file"
        ));
    };
    if let Some(rank_file) = files.iter().find(|name| name.starts_with("rank-")) {
        return refused(&format!("holds {rank_file} but not the manifest {MANIFEST_NAME}"));
    }
    let mut names = files.iter();
    let first = names.next().map(|first| header::open(&dir.join(first))).transpose()?;
    match (first, names.next()) {
        (Some(first), _) if in_safetensors::has_chunks(&first) => in_safetensors::open(dir, &files),
        (Some(only), None) => Ok(whole(only)),
        (Some(_), Some(_)) => refused(&format!("holds several .safetensors files and no {INDEX_NAME}")),
        (None, _) if place::exists(&dir.join(format!("__0{METADATA_NAME}")))? => refused(&format!(
            "holds the metadata of single ranks (__0{METADATA_NAME}), but no common {METADATA_NAME}"
        )),
        (None, _) => refused(&format!(
            "holds no .safetensors file, no {INDEX_NAME}, no {MANIFEST_NAME} and no {METADATA_NAME}"
        )),
    }
}

/// Returns the tensors of one safetensors file.
fn whole(file: Opened) -> Checkpoint {
    let tensors = file.tensors.into_iter().map(|(name, stored)| Tensor::whole(name, stored)).collect();
    Checkpoint::of_tensors(tensors, Origin::Files, file.free_texts.map(in_safetensors::not_about_chunks))
}
