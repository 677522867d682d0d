//! The layout of PyTorch's `HuggingFaceStorageWriter`: safetensors files, each with a chunk of some tensors.
//!
//! Where a chunk begins stands in the free texts of its file, `DCP_SHARDING_INFO`: `{"NAME": {"saved_offsets": [0, 4]}, ..}`. No file
//! says what the whole is; it is as large as the chunks reach.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::Dtype;
use serde::Deserialize;

use super::of_chunks;
use crate::bytes::Bytes;
use crate::checkpoint::{Checkpoint, Origin, safetensors_files};
use crate::error::Error;
use crate::header::{self, Opened, Stored};
use crate::index::INDEX_NAME;

/// The free text that says where chunks begin.
const INFO: &str = "DCP_SHARDING_INFO";

/// Free texts that are about chunks, and mean nothing without them.
const ABOUT_CHUNKS: [&str; 2] = [INFO, "DCP_VERSION"];

/// Where a chunk begins in its tensor.
#[derive(Deserialize)]
struct Saved {
    saved_offsets: Vec<usize>,
}

/// A tensor of which chunks are being collected.
struct Collected {
    dtype: Dtype,
    shape: Vec<usize>,
    chunks: Vec<(Vec<usize>, Vec<usize>, Bytes)>,
}

/// Whether a file says where chunks begin.
pub(crate) fn has_chunks(file: &Opened) -> bool {
    file.free_texts.as_ref().is_some_and(|texts| texts.contains_key(INFO))
}

/// Whether a file is all that there is: its chunks begin at the first elements, and no other file of its folder has more of them.
pub(crate) fn is_alone(file: &Opened, path: &Path) -> Result<bool, Error> {
    let at_first = |saved: &Saved| saved.saved_offsets.iter().all(|offset| *offset == 0);
    if !offsets(file, path)?.values().all(at_first) {
        return Ok(false);
    }
    let Some(dir) = path.parent() else { return Ok(true) };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    Ok(dir.join(INDEX_NAME).exists() || safetensors_files(dir)?.len() < 2)
}

/// Opens the files of a folder.
pub(crate) fn open(dir: &Path, files: &BTreeSet<String>) -> Result<Checkpoint, Error> {
    let mut tensors: BTreeMap<String, Collected> = BTreeMap::new();
    let mut free_texts: Option<header::FreeTexts> = None;
    for file in files {
        let path = dir.join(file);
        let opened = header::open(&path)?;
        let mut offsets = offsets(&opened, &path)?;
        for (name, Stored { dtype, shape, bytes }) in opened.tensors {
            let refused = |why: String| Error::refused("dcp", why).about_tensor(&name).about(path.display());
            let start = offsets.remove(&name).map(|saved| saved.saved_offsets);
            let start = start.unwrap_or_else(|| vec![0; shape.len()]);
            let ends: Option<Vec<usize>> =
                start.iter().zip(&shape).map(|(start, len)| start.checked_add(*len)).collect();
            let ends = ends.filter(|ends| ends.len() == shape.len() && start.len() == shape.len());
            let ends = ends.ok_or_else(|| refused(format!("a chunk of {shape:?} cannot be at {start:?}")))?;
            let whole = tensors.entry(name.clone()).or_insert_with(|| Collected {
                dtype,
                shape: vec![0; shape.len()],
                chunks: Vec::new(),
            });
            if whole.dtype != dtype || whole.shape.len() != shape.len() {
                return Err(refused(format!(
                    "it is {dtype} of {} dims, and in another file {} of {}",
                    shape.len(),
                    whole.dtype,
                    whole.shape.len()
                )));
            }
            for (extent, end) in whole.shape.iter_mut().zip(ends) {
                *extent = end.max(*extent);
            }
            if !shape.contains(&0) && !whole.chunks.iter().any(|(at, len, _)| (at, len) == (&start, &shape)) {
                whole.chunks.push((start, shape, bytes));
            }
        }
        if free_texts.is_none() {
            free_texts = opened.free_texts;
        }
    }
    if let Some(texts) = &mut free_texts {
        texts.retain(|key, _| !ABOUT_CHUNKS.contains(&&key[..]));
    }
    let mut all = Vec::with_capacity(tensors.len());
    for (name, Collected { dtype, shape, chunks }) in tensors {
        let chunks = chunks.iter().map(|(start, len, bytes)| (&start[..], &len[..], bytes.clone())).collect();
        let made = of_chunks(&name, dtype, &shape, chunks);
        all.push(made.map_err(|error| error.about_tensor(&name).about(dir.display()))?);
    }
    Ok(Checkpoint { tensors: all, free_texts, origin: Origin::Files, sums: None, others: Vec::new() })
}

/// Where the chunks of a file begin; of a file that does not say it nothing.
fn offsets(file: &Opened, path: &Path) -> Result<BTreeMap<String, Saved>, Error> {
    let Some(text) = file.free_texts.as_ref().and_then(|texts| texts.get(INFO)) else {
        return Ok(BTreeMap::new());
    };
    serde_json::from_str(text).map_err(|error| {
        Error::refused(
            "dcp",
            format!("{}: its {INFO} does not say where chunks begin: {error}", path.display()),
        )
    })
}
