//! A folder of files that an index names: of safetensors, or of `torch.save`.

use std::collections::HashSet;
use std::path::Path;

use crate::bytes::place;
use crate::error::Error;
use crate::formats::index::Index;
use crate::model::checkpoint::Checkpoint;
use crate::open::by_content;
use crate::open::union::Union;

/// Opens the files that an index names; index and files must agree about every tensor.
pub(super) fn open(dir: &Path, path: &Path) -> Result<Checkpoint, Error> {
    let index = Index::read(path)?;
    let said = |why: String| format!("{}: {why}", path.display());
    let differs = |why: String| Err(Error::mismatch("index", said(why)));
    let mut seen: HashSet<String> = HashSet::new();
    let mut all = Union::default();
    for file in index.files() {
        let file_path = dir.join(file);
        if !place::exists(&file_path)? {
            return Err(Error::refused(
                "index",
                said(format!("it names {file}, which is not in the folder")),
            ));
        }
        let opened = by_content::open(&file_path)?;
        for tensor in opened.tensors() {
            let name = tensor.name();
            match index.file_of(name) {
                // It was taken from the file that the index names.
                Some(first) if seen.contains(name) => {
                    return differs(format!("tensor `{name}` is both in {first} and in {file}"));
                }
                Some(said) if said == file => {}
                Some(said) => return differs(format!("tensor `{name}` is in {file}, not in {said}")),
                None => return differs(format!("tensor `{name}` of {file} is not in the index")),
            }
            seen.insert(name.to_owned());
        }
        all.add(opened);
    }
    if let Some((name, file)) = index.entries().find(|(name, _)| !seen.contains(*name)) {
        return differs(format!("tensor `{name}` is not in {file}"));
    }
    Ok(all.finish())
}
