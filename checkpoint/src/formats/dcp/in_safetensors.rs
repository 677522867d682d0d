//! The layout of PyTorch's `HuggingFaceStorageWriter`: safetensors files, each with a chunk of some tensors.
//!
//! The free text `DCP_SHARDING_INFO` of a file holds the offsets of its chunks:
//! `{"NAME": {"saved_offsets": [0, 4]}, ..}`. No file stores the global shape; it is the extent of all
//! chunks.

use std::collections::BTreeMap;
use std::path::Path;

use reshard_layout::internal::counted;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::bytes::place;
use crate::error::Error;
use crate::formats::dcp::written::WRITER;
use crate::formats::header::{self, Opened};
use crate::formats::index::INDEX_NAME;
use crate::formats::unique;
use crate::model::checkpoint::{Checkpoint, Origin};
use crate::model::parts::of_chunks;
use crate::model::stored::{FreeTexts, Stored};

/// The free text that holds the offsets of chunks.
const INFO: &str = "DCP_SHARDING_INFO";

/// The free text with the version of that format, and the version that is written.
const VERSION: (&str, &str) = ("DCP_VERSION", "1.0");

/// The free text that names the writer, which PyTorch does not require.
const BY: &str = "DCP_WRITER";

/// Free texts that describe chunks, and have no use without them.
pub(crate) const ABOUT_CHUNKS: [&str; 3] = [INFO, VERSION.0, BY];

/// Removes the free texts that describe chunks, once they have been interpreted.
pub(crate) fn not_about_chunks(mut texts: FreeTexts) -> FreeTexts {
    texts.retain(|key, _| !ABOUT_CHUNKS.contains(&&key[..]));
    texts
}

/// The start of a chunk in its tensor.
#[derive(Deserialize, Serialize)]
struct Saved {
    saved_offsets: Vec<usize>,
}

/// The chunk offsets of a file to be written.
#[derive(Default)]
pub(crate) struct Offsets(BTreeMap<String, Saved>);

impl Offsets {
    pub(crate) fn insert(&mut self, tensor: &str, start: &[usize]) {
        self.0.insert(tensor.to_owned(), Saved { saved_offsets: start.to_vec() });
    }

    /// Returns the free texts of the file, merged with those of the input.
    pub(crate) fn texts(&self, of_input: Option<&FreeTexts>) -> FreeTexts {
        let mut texts = of_input.cloned().unwrap_or_default();
        // Names and numbers can always be written as JSON.
        let info = serde_json::to_string(&self.0).unwrap_or_default();
        for (key, text) in [(INFO, &info[..]), VERSION, (BY, WRITER), ("format", "pt")] {
            texts.insert(key.to_owned(), text.to_owned());
        }
        texts
    }
}

/// Returns the name of a rank's file: `number` counts from 0, `most` is the largest file count of any rank.
pub(crate) fn file_name(rank: usize, number: usize, most: usize) -> String {
    format!("shard-{:05}-model-{:05}-of-{most:05}.safetensors", rank + 1, number + 1)
}

/// Returns `true` if a file could have this name.
pub(crate) fn is_file_name(name: &str) -> bool {
    let numbers = || {
        let (shard, rest) = name.strip_prefix("shard-")?.split_once("-model-")?;
        let (number, most) = rest.strip_suffix(".safetensors")?.split_once("-of-")?;
        let from_one = |digits: &str| digits.parse::<usize>().ok()?.checked_sub(1);
        Some((from_one(shard)?, from_one(number)?, most.parse().ok()?))
    };
    numbers().is_some_and(|(rank, number, most)| number < most && file_name(rank, number, most) == name)
}

/// Returns `true` if an earlier run wrote the file.
pub(crate) fn is_ours(path: &Path) -> bool {
    let texts = header::open(path).ok().and_then(|file| file.free_texts);
    texts.is_some_and(|texts| texts.get(BY).is_some_and(|by| by == WRITER))
}

/// A tensor whose chunks are being collected.
struct Collected {
    dtype: Dtype,
    shape: Vec<usize>,
    chunks: Vec<(Vec<usize>, Vec<usize>, Bytes)>,
}

/// Returns `true` if a file stores chunk offsets.
pub(crate) fn has_chunks(file: &Opened) -> bool {
    file.free_texts.as_ref().is_some_and(|texts| texts.contains_key(INFO))
}

/// Returns `true` if a file is complete alone: chunks start at 0, and no other file of its folder has more.
pub(crate) fn is_alone(file: &Opened, path: &Path) -> Result<bool, Error> {
    let at_first = |saved: &Saved| saved.saved_offsets.iter().all(|offset| *offset == 0);
    if !offsets(file, path)?.values().all(at_first) {
        return Ok(false);
    }
    let Some(dir) = path.parent() else { return Ok(true) };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    // Without a listing, the name alone has to show that it is one of several.
    let alone = |names: Option<Vec<String>>| {
        let several = path.file_name().and_then(|name| name.to_str()).is_some_and(is_file_name);
        names.map_or(!several, |names| names.len() < 2)
    };
    Ok(place::exists(&dir.join(INDEX_NAME))? || alone(place::safetensors_files(dir)?))
}

/// Opens the files of a folder.
pub(crate) fn open(dir: &Path, files: &[String]) -> Result<Checkpoint, Error> {
    let mut tensors: BTreeMap<String, Collected> = BTreeMap::new();
    let mut free_texts: Option<FreeTexts> = None;
    for file in files {
        let path = dir.join(file);
        let opened = header::open(&path)?;
        let mut offsets = offsets(&opened, &path)?;
        for (name, Stored { dtype, shape, bytes }) in opened.tensors {
            let about = |error: Error| error.about_tensor(&name).about(path.display());
            let start = offsets.remove(&name).map(|saved| saved.saved_offsets);
            let start = start.unwrap_or_else(|| vec![0; shape.len()]);
            let ends: Option<Vec<usize>> =
                start.iter().zip(&shape).map(|(start, len)| start.checked_add(*len)).collect();
            let ends = ends.filter(|ends| ends.len() == shape.len() && start.len() == shape.len());
            let ends = ends.ok_or_else(|| {
                about(Error::malformed("dcp", format!("a chunk of {shape:?} cannot be at {start:?}")))
            })?;
            let whole = tensors.entry(name.clone()).or_insert_with(|| Collected {
                dtype,
                shape: vec![0; shape.len()],
                chunks: Vec::new(),
            });
            if whole.dtype != dtype || whole.shape.len() != shape.len() {
                let why = format!(
                    "it is {dtype} with {}, but {} with {} in another file",
                    counted(shape.len(), "dim", "dims"),
                    whole.dtype,
                    whole.shape.len()
                );
                return Err(about(Error::mismatch("dcp", why)));
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
    let free_texts = free_texts.map(not_about_chunks);
    let mut all = Vec::with_capacity(tensors.len());
    for (name, Collected { dtype, shape, chunks }) in tensors {
        let chunks = chunks.iter().map(|(start, len, bytes)| (&start[..], &len[..], bytes.clone())).collect();
        let made = of_chunks(&name, dtype, &shape, chunks);
        all.push(made.map_err(|error| error.about_tensor(&name).about(dir.display()))?);
    }
    Ok(Checkpoint::of_tensors(all, Origin::Files, free_texts))
}

/// Returns the chunk offsets of a file; empty if it stores none.
fn offsets(file: &Opened, path: &Path) -> Result<BTreeMap<String, Saved>, Error> {
    let Some(text) = file.free_texts.as_ref().and_then(|texts| texts.get(INFO)) else {
        return Ok(BTreeMap::new());
    };
    unique::map(&mut serde_json::Deserializer::from_str(text)).map_err(|error| {
        Error::malformed(
            "dcp",
            format!("{}: cannot parse the chunk offsets in its {INFO}: {error}", path.display()),
        )
    })
}
