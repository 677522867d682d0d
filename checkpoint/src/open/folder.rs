//! Detects the format of a folder from the names of its files.

use std::path::{Path, PathBuf};

use crate::bytes::place;
use crate::error::Error;
use crate::formats::dcp::{self, METADATA_NAME, in_safetensors};
use crate::formats::fsdp;
use crate::formats::header;
use crate::formats::index::{INDEX_NAME, TORCH_INDEX_NAME};
use crate::formats::manifest::MANIFEST_NAME;
use crate::formats::orbax;
use crate::formats::rank_files;
use crate::model::checkpoint::Checkpoint;
use crate::open::{by_content, indexed, llama, union};

/// The most names without an extension that are looked into.
const MOST_ITEMS: usize = 64;

/// Opens the folder of a checkpoint of any format.
pub(super) fn open(dir: &Path) -> Result<Checkpoint, Error> {
    let manifest = dir.join(MANIFEST_NAME);
    if place::exists(&manifest)? {
        return rank_files::open(dir, &manifest, &[]);
    }
    let metadata = dir.join(METADATA_NAME);
    if place::exists(&metadata)? {
        return dcp::open(dir, &metadata);
    }
    if place::exists(&dir.join(orbax::METADATA_NAME))? {
        return orbax::open(dir);
    }
    for index in [INDEX_NAME, TORCH_INDEX_NAME] {
        let index = dir.join(index);
        if place::exists(&index)? {
            return indexed::open(dir, &index);
        }
    }
    let Some(mut names) = place::names(dir).map_err(|error| Error::io("reading", dir, &error))? else {
        return Err(refused(
            dir,
            &format!(
                "has no {MANIFEST_NAME}, {METADATA_NAME} or {INDEX_NAME}, and its server cannot list other files; name a file"
            ),
        ));
    };
    names.retain(|name| !name.starts_with('.'));
    names.sort_unstable();
    names.dedup();
    let ranks = fsdp::rank_files(&names);
    if !ranks.is_empty() {
        return fsdp::open(dir, &ranks);
    }
    if let Some(ranks) = llama::ranks(dir, &names)? {
        return llama::open(dir, ranks);
    }
    let safetensors = ending_in(&names, &["safetensors"]);
    if let Some(rank_file) = safetensors.iter().find(|name| name.starts_with("rank-")) {
        return Err(refused(dir, &format!("holds {rank_file} but not the manifest {MANIFEST_NAME}")));
    }
    if let Some(first) = safetensors.first() {
        if in_safetensors::has_chunks(&header::open(&dir.join(first))?) {
            return in_safetensors::open(dir, &safetensors);
        }
        return union::open(dir, &safetensors);
    }
    let parts: Vec<String> = names.iter().filter(|name| is_part(name)).cloned().collect();
    if !parts.is_empty() {
        return union::open(dir, &parts);
    }
    if let Some(step) = step(dir, &names)? {
        return orbax::open(&step);
    }
    if let Some(found) = foreign(&names) {
        return Err(Error::unsupported("input", format!("the directory {} {found}", dir.display())));
    }
    let torch = ending_in(&names, &["bin", "pt", "pth"]);
    match &torch[..] {
        [only] => by_content::open(&dir.join(only)),
        [first, .., last] => {
            let count = torch.len();
            Err(refused(
                dir,
                &format!("holds {count} files of torch.save, {first} to {last}; name one of them"),
            ))
        }
        [] if place::exists(&dir.join(format!("__0{METADATA_NAME}")))? => Err(refused(
            dir,
            &format!(
                "holds the metadata of single ranks (__0{METADATA_NAME}), but no common {METADATA_NAME}"
            ),
        )),
        [] => Err(refused(
            dir,
            &format!(
                "holds no .safetensors, .bin, .pt or .pth file, no {INDEX_NAME}, no {MANIFEST_NAME} and no {METADATA_NAME}"
            ),
        )),
    }
}

/// Returns `true` for the files of a model that others than its trainer read: `pytorch_model.bin`, or parts of it.
fn is_part(name: &str) -> bool {
    name.strip_prefix("pytorch_model").is_some_and(|rest| {
        rest == ".bin" || rest.strip_suffix(".bin").is_some_and(|numbers| numbers.starts_with('-'))
    })
}

/// Returns the one folder of a step that holds arrays of Orbax: managers of checkpoints write them below the step.
fn step(dir: &Path, names: &[String]) -> Result<Option<PathBuf>, Error> {
    let mut items = Vec::new();
    for name in names.iter().filter(|name| Path::new(name).extension().is_none()).take(MOST_ITEMS) {
        if place::exists(&dir.join(name).join(orbax::METADATA_NAME))? {
            items.push(name);
        }
    }
    match &items[..] {
        [] => Ok(None),
        [only] => Ok(Some(dir.join(only))),
        [first, .., last] => {
            let count = items.len();
            Err(refused(
                dir,
                &format!("holds {count} checkpoints of Orbax, {first} to {last}; name one of them"),
            ))
        }
    }
}

/// Returns the names with one of these extensions.
fn ending_in(names: &[String], extensions: &[&str]) -> Vec<String> {
    let is_one = |name: &&String| extensions.iter().any(|extension| has_extension(name, extension));
    names.iter().filter(is_one).cloned().collect()
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}

/// Returns what completes the message `the directory DIR ..` for a format that another program converts.
fn foreign(names: &[String]) -> Option<String> {
    let has = |is: &dyn Fn(&str) -> bool| names.iter().find(|name| is(name));
    if let Some(name) =
        has(&|name| name.starts_with("zero_pp_rank_") || name.starts_with("bf16_zero_pp_rank_"))
    {
        return Some(format!(
            "holds {name}: a checkpoint of DeepSpeed ZeRO, whose states are flat parts; run the zero_to_fp32.py that DeepSpeed left next to it, and give its output"
        ));
    }
    if let Some(name) = has(&|name| has_extension(name, "engine")) {
        return Some(format!(
            "holds {name}: an engine of TensorRT, which is compiled code; give the checkpoint that it was built from"
        ));
    }
    if let Some(name) = has(&|name| has_extension(name, "gguf")) {
        return Some(format!(
            "holds {name}: a GGUF file, whose tensors are quantised; give the checkpoint that it was converted from"
        ));
    }
    if let Some(name) = has(&|name| name.starts_with("mp_rank_")) {
        return Some(format!(
            "holds {name}: a checkpoint of Megatron-LM, whose files do not describe their parts; describe them with `--source FILE`, or save it with --ckpt-format torch_dist"
        ));
    }
    None
}

fn refused(dir: &Path, why: &str) -> Error {
    Error::refused("input", format!("the directory {} {why}", dir.display()))
}
