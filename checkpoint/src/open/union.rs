//! Several files that are one checkpoint: the union of their entries, with different names.

use std::collections::HashMap;
use std::path::Path;

use crate::error::Error;
use crate::formats::dcp::in_safetensors;
use crate::model::checkpoint::{Checkpoint, Origin};
use crate::model::stored::FreeTexts;
use crate::open::by_content;

/// Opens all of these files of a folder; a tensor in two of them is an error.
pub(super) fn open(dir: &Path, files: &[String]) -> Result<Checkpoint, Error> {
    let mut all = Union::default();
    let mut known: HashMap<String, &str> = HashMap::new();
    for file in files {
        let opened = by_content::open(&dir.join(file))?;
        let names = opened.tensors().iter().map(|tensor| ("tensor", tensor.name()));
        for (what, name) in names.chain(opened.objects().iter().map(|object| ("entry", object.name()))) {
            if let Some(first) = known.insert(name.to_owned(), file) {
                let message = format!(
                    "{}: {what} `{name}` is both in {first} and in {file}; name one file, or write an index",
                    dir.display()
                );
                return Err(Error::mismatch("input", message));
            }
        }
        all.add(opened);
    }
    Ok(all.finish())
}

/// The entries of the files so far.
#[derive(Default)]
pub(super) struct Union {
    tensors: Vec<crate::Tensor>,
    archives: Vec<crate::model::archives::Archive>,
    objects: Vec<crate::Object>,
    free_texts: Option<FreeTexts>,
}

impl Union {
    pub(super) fn add(&mut self, opened: Checkpoint) {
        let Checkpoint { tensors, archives, objects, free_texts, .. } = opened;
        self.tensors.extend(tensors);
        self.archives.extend(archives);
        self.objects.extend(objects);
        // Files of one checkpoint repeat the same texts; if they differ the first one holds.
        if let Some(texts) = free_texts {
            let merged = self.free_texts.get_or_insert_default();
            for (key, text) in in_safetensors::not_about_chunks(texts) {
                merged.entry(key).or_insert(text);
            }
        }
    }

    /// Returns the checkpoint of them, its tensors and objects in the order of their names.
    pub(super) fn finish(self) -> Checkpoint {
        let Self { mut tensors, archives, mut objects, free_texts } = self;
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        let checkpoint = Checkpoint::of_tensors(tensors, Origin::Files, free_texts);
        Checkpoint { archives, objects, ..checkpoint }
    }
}
