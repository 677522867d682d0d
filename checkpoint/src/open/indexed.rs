//! A folder of safetensors files that an index names.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bytes::place;
use crate::error::Error;
use crate::formats::dcp::in_safetensors;
use crate::formats::header;
use crate::formats::index::Index;
use crate::model::checkpoint::{Checkpoint, Origin, Tensor};
use crate::model::stored::{FreeTexts, Stored};

/// Opens the files that an index names; index and files must agree about every tensor.
pub(crate) fn open(dir: &Path, path: &Path) -> Result<Checkpoint, Error> {
    let index = Index::read(path)?;
    let said = |why: String| format!("{}: {why}", path.display());
    let differs = |why: String| Err(Error::mismatch("index", said(why)));
    let mut tensors: BTreeMap<String, Stored> = BTreeMap::new();
    let mut free_texts: Option<FreeTexts> = None;
    for file in index.files() {
        let file_path = dir.join(file);
        if !place::exists(&file_path)? {
            return Err(Error::refused(
                "index",
                said(format!("it names {file}, which is not in the folder")),
            ));
        }
        let opened = header::open(&file_path)?;
        for (name, stored) in opened.tensors {
            match index.file_of(&name) {
                // It was taken from the file that the index names.
                Some(first) if tensors.contains_key(&name) => {
                    return differs(format!("tensor `{name}` is both in {first} and in {file}"));
                }
                Some(said) if said == file => {}
                Some(said) => return differs(format!("tensor `{name}` is in {file}, not in {said}")),
                None => return differs(format!("tensor `{name}` of {file} is not in the index")),
            }
            tensors.insert(name, stored);
        }
        // Files of one checkpoint repeat the same texts; if they differ the first one holds.
        if let Some(texts) = opened.free_texts {
            let merged = free_texts.get_or_insert_default();
            for (key, text) in in_safetensors::not_about_chunks(texts) {
                merged.entry(key).or_insert(text);
            }
        }
    }
    if let Some((name, file)) = index.entries().find(|(name, _)| !tensors.contains_key(*name)) {
        return differs(format!("tensor `{name}` is not in {file}"));
    }
    let tensors = tensors.into_iter().map(|(name, stored)| Tensor::whole(name, stored)).collect();
    Ok(Checkpoint::of_tensors(tensors, Origin::Files, free_texts))
}
