//! Names that the files of an output reserve; they are rejected before anything is written.
//!
//! ```text
//! safetensors       a tensor `__metadata__`      the header has its free texts there
//!                   a free text `DCP_..`         the header has the chunk offsets there
//! dcp               a path within another one    a dict would be a value and hold values
//! ```
//!
//! No tensor name becomes a file name, so any other text is allowed.

use crate::error::Error;
use crate::formats::dcp::in_safetensors::ABOUT_CHUNKS;
use crate::job::carried::Target;
use crate::job::decision::Move;
use crate::model::checkpoint::Checkpoint;
use crate::model::objects::{Key, Object};
use crate::shown::Shown;

/// The key of the free texts in the header of a safetensors file.
const TEXTS: &str = "__metadata__";

/// Rejects names of a checkpoint that an output cannot hold.
pub(crate) fn check(
    checkpoint: &Checkpoint,
    moves: &[Move<'_>],
    objects: &[Object],
    target: Target,
) -> Result<(), Error> {
    match target {
        Target::Dcp { .. } => check_paths(moves, objects)?,
        Target::Nowhere | Target::RankFiles | Target::DcpSafetensors | Target::Safetensors => {}
    }
    if !target.holds_texts() {
        return Ok(());
    }
    moves.iter().try_for_each(|tensor| check_tensor(&tensor.tensor.name))?;
    let texts = checkpoint.free_texts.iter().flatten();
    texts.map(|(key, _)| key).try_for_each(|key| check_text(key))
}

/// Rejects a tensor name that a safetensors file cannot hold.
pub(crate) fn check_tensor(name: &str) -> Result<(), Error> {
    if name != TEXTS {
        return Ok(());
    }
    let message = format!(
        "safetensors files store their free texts under this name; rename it (`--rename 's/^{TEXTS}$/metadata/'`), or use `--format dcp`"
    );
    Err(Error::refused("name", message).about_tensor(name))
}

/// Rejects a free-text key by which readers would take a file for a part of a distributed checkpoint.
pub(crate) fn check_text(key: &str) -> Result<(), Error> {
    if !ABOUT_CHUNKS.contains(&key) {
        return Ok(());
    }
    let message = format!(
        "the free text `{key}` is reserved for chunk offsets in safetensors files; choose another name"
    );
    Err(Error::refused("name", message))
}

/// Rejects a path that equals or is a prefix of another: PyTorch nests loaded values by path.
fn check_paths(moves: &[Move<'_>], objects: &[Object]) -> Result<(), Error> {
    let tensors = moves.iter().map(|tensor| (&tensor.tensor.name, tensor.tensor.path.as_deref()));
    let objects = objects.iter().filter(|object| object.archive().is_some());
    let all = tensors.chain(objects.map(|object| (&object.name, object.path())));
    let mut paths: Vec<(Vec<Key>, &str)> = all
        .map(|(name, path)| (path.map_or_else(|| vec![Key::Text(name.clone())], <[Key]>::to_vec), &name[..]))
        .collect();
    paths.sort();
    // In sorted order, paths with a common prefix follow it directly.
    match paths.windows(2).find(|pair| pair[1].0.starts_with(&pair[0].0)) {
        None => Ok(()),
        Some(pair) => {
            let [outer, inner] = [pair[0].1, pair[1].1].map(Shown::shown);
            let message =
                format!("`{inner}` would be nested inside `{outer}`, which is a value; rename one of them");
            Err(Error::refused("name", message))
        }
    }
}
