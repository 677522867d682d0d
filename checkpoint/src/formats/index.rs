//! The index of a checkpoint in several files, which maps tensors to file names.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bytes::place;
use crate::bytes::read::read;
use crate::error::Error;
use crate::formats::unique;
use crate::shown::Shown;

/// The name of the index inside a folder of safetensors files.
pub(crate) const INDEX_NAME: &str = "model.safetensors.index.json";

/// The name of the index inside a folder of files of `torch.save`; it has the same form.
pub(crate) const TORCH_INDEX_NAME: &str = "pytorch_model.bin.index.json";

/// The map from tensors to the files of the folder.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Index {
    #[serde(default)]
    metadata: About,
    #[serde(deserialize_with = "unique::map")]
    weight_map: BTreeMap<String, String>,
}

/// The metadata of an index; any content is accepted, and only the writer is used.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(from = "serde_json::Value")]
struct About {
    total_size: u64,
    written_by: String,
}

impl From<serde_json::Value> for About {
    fn from(value: serde_json::Value) -> Self {
        let total_size = value["total_size"].as_u64().unwrap_or_default();
        Self { total_size, written_by: value["written_by"].as_str().unwrap_or_default().to_owned() }
    }
}

/// The writer's name, by which `--force` recognizes the output of a run.
const WRITER: &str = "reshard";

/// Returns the name of a file of whole tensors; `number` counts from 0, `count` is the total.
pub(crate) fn file_name(number: usize, count: usize) -> String {
    format!("model-{:05}-of-{count:05}.safetensors", number + 1)
}

/// Returns `true` if a file could have this name.
pub(crate) fn is_file_name(name: &str) -> bool {
    let numbers = || {
        let (number, count) =
            name.strip_prefix("model-")?.strip_suffix(".safetensors")?.split_once("-of-")?;
        Some((number.parse::<usize>().ok()?.checked_sub(1)?, count.parse().ok()?))
    };
    numbers().is_some_and(|(number, count)| number < count && file_name(number, count) == name)
}

impl Index {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = read(path).map_err(|error| {
            Error::unreadable_as("index", format!("{} cannot be read: {error}", path.display()))
        })?;
        let index: Self = serde_json::from_slice(&text).map_err(|error| {
            Error::malformed("index", format!("{} is not an index: {error}", path.display()))
        })?;
        for (tensor, file) in &index.weight_map {
            stays_inside(tensor, file).map_err(|error| error.about(path.display()))?;
        }
        Ok(index)
    }

    /// Returns the index of files to be written: the bytes of all tensors, and the file of each.
    pub(crate) fn new(total_size: u64, weight_map: BTreeMap<String, String>) -> Self {
        Self { metadata: About { total_size, written_by: WRITER.to_owned() }, weight_map }
    }

    /// Returns `true` if an earlier run wrote it.
    pub(crate) fn is_ours(&self) -> bool {
        self.metadata.written_by == WRITER
    }

    /// Returns the files that the index names, each once.
    pub(crate) fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = self.weight_map.values().map(String::as_str).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Returns the file that should hold `tensor`.
    pub(crate) fn file_of(&self, tensor: &str) -> Option<&str> {
        self.weight_map.get(tensor).map(String::as_str)
    }

    /// Returns every tensor with its file.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.weight_map.iter().map(|(tensor, file)| (&tensor[..], &file[..]))
    }
}

fn stays_inside(tensor: &str, file: &str) -> Result<(), Error> {
    if place::is_inside(file) {
        return Ok(());
    }
    let (tensor, file) = (tensor.shown(), file.shown());
    let message = format!("tensor `{tensor}` refers to `{file}`, which is not a file of this folder");
    Err(Error::malformed("index", message))
}
