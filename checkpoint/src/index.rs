//! The index of a checkpoint in several files: `model.safetensors.index.json`, which maps tensor names to file names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use serde::Deserialize;

use crate::error::Error;
use crate::read::read;

/// The name of the index inside a folder.
pub(crate) const INDEX_NAME: &str = "model.safetensors.index.json";

/// Which file of the folder holds which tensor. What else the file says (total size, ...) is not ours.
#[derive(Debug, Deserialize)]
pub(crate) struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = read(path).map_err(|error| {
            Error::refused("index", format!("{} cannot be read: {error}", path.display()))
        })?;
        let index: Self = serde_json::from_slice(&text).map_err(|error| {
            Error::refused("index", format!("{} is not an index: {error}", path.display()))
        })?;
        for (tensor, file) in &index.weight_map {
            stays_inside(tensor, file).map_err(|error| error.about(path.display()))?;
        }
        Ok(index)
    }

    /// The files that the index names, each once.
    pub(crate) fn files(&self) -> BTreeSet<&str> {
        self.weight_map.values().map(String::as_str).collect()
    }

    /// The file that is to hold `tensor`.
    pub(crate) fn file_of(&self, tensor: &str) -> Option<&str> {
        self.weight_map.get(tensor).map(String::as_str)
    }

    /// Every tensor with its file.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.weight_map.iter().map(|(tensor, file)| (&tensor[..], &file[..]))
    }
}

/// A checkpoint from somewhere else must not make us read files outside its folder.
fn stays_inside(tensor: &str, file: &str) -> Result<(), Error> {
    let plain =
        !file.is_empty() && Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
    if plain {
        return Ok(());
    }
    let message = format!("tensor `{tensor}` is said to be in `{file}`, which is not a file of this folder");
    Err(Error::refused("index", message))
}
