//! Checks of `--force`: it may replace the output of an earlier run, and nothing else.
//!
//! A run writes one safetensors file, or a directory of one of four kinds, each recognized by a file that
//! only that kind has. Anything else must not be lost: then a reason is returned, which completes the message
//! `--out DIR ..`.
//!
//! ```text
//! .metadata                       and .distcp files             its save_id names the writer
//! model.safetensors.index.json    and the files of an index     it names the writer
//! shard-..                        and nothing else              the header of each names the writer
//! sharding.json                   and rank files                it is a manifest of a run
//! ```

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::bytes::read::read;
use crate::error::Error;
use crate::formats::dcp::{self, METADATA_NAME, in_safetensors, written};
use crate::formats::header;
use crate::formats::index::{self, INDEX_NAME, Index};
use crate::formats::manifest::{self, MANIFEST_NAME};
use crate::formats::objects_file::OBJECTS_NAME;

/// The fields of a manifest that identify its writer, in any version.
#[derive(Deserialize)]
struct Signature {
    format: String,
    world: usize,
}

/// The kinds of directories that a run can write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    RankFiles,
    Dcp,
    DcpSafetensors,
    Safetensors,
}

impl Kind {
    /// Returns the file that identifies this kind, and a predicate for its other files.
    fn parts(self) -> (Option<&'static str>, fn(&str) -> bool) {
        match self {
            Self::RankFiles => {
                (Some(MANIFEST_NAME), |name| manifest::is_rank_file_name(name) || name == OBJECTS_NAME)
            }
            Self::Dcp => (Some(METADATA_NAME), written::is_file_name),
            Self::DcpSafetensors => (None, in_safetensors::is_file_name),
            Self::Safetensors => (Some(INDEX_NAME), index::is_file_name),
        }
    }

    fn of(names: &[String]) -> Self {
        let has = |kind: &Self| {
            let (telling, is_part) = kind.parts();
            names.iter().any(|name| telling.map_or_else(|| is_part(name), |telling| name == telling))
        };
        let kinds = [Self::Dcp, Self::Safetensors, Self::DcpSafetensors];
        kinds.into_iter().find(has).unwrap_or(Self::RankFiles)
    }
}

/// Returns the reason why a directory is not the output of a run; `None` if it is.
pub(crate) fn directory(dir: &Path) -> Result<Option<String>, Error> {
    let failed = |error| Error::io("reading", dir, &error);
    let (mut names, mut irregular) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            return Ok(Some(format!("holds the folder {name}")));
        }
        if kind.is_file() { &mut names } else { &mut irregular }.push(name);
    }
    let kind = Kind::of(&names);
    let (telling, is_part) = kind.parts();
    let others = names.iter().filter(|name| telling != Some(&name[..]) && !is_part(name));
    // The smallest name, so that the message does not depend on the file system. A link to a manifest is
    // accepted.
    let links = irregular.iter().filter(|name| telling != Some(&name[..]));
    if let Some(name) = others.chain(links).min() {
        return Ok(Some(format!("holds {name}")));
    }
    let ours = match kind {
        Kind::Dcp => dcp::writer(&dir.join(METADATA_NAME)).is_some_and(|writer| writer == written::WRITER),
        Kind::Safetensors => Index::read(&dir.join(INDEX_NAME)).is_ok_and(|index| index.is_ours()),
        Kind::DcpSafetensors => names.iter().all(|name| in_safetensors::is_ours(&dir.join(name))),
        Kind::RankFiles => return Ok(rank_files(dir)),
    };
    let what = telling.map_or_else(|| "chunks".to_owned(), |telling| format!("a {telling}"));
    Ok((!ours).then(|| format!("holds {what} of another program")))
}

/// Returns the reason why a directory is not one of rank files; `None` if it is.
fn rank_files(dir: &Path) -> Option<String> {
    if fs::symlink_metadata(dir.join(MANIFEST_NAME)).is_err() {
        return Some(format!("holds no {MANIFEST_NAME}"));
    }
    let signature = read(&dir.join(MANIFEST_NAME)).ok();
    let signature = signature.and_then(|text| serde_json::from_slice::<Signature>(&text).ok());
    match signature {
        Some(signature) if signature.format == manifest::FORMAT && signature.world > 0 => None,
        Some(_) | None => Some(format!("holds a {MANIFEST_NAME} that is not the manifest of a run")),
    }
}

/// Returns the reason why a file is not the output of a run; `None` if it is.
pub(crate) fn file(file: &Path) -> Option<String> {
    match fs::symlink_metadata(file) {
        Ok(kind) if kind.is_symlink() => Some("is a symbolic link".to_owned()),
        Ok(kind) if kind.is_file() && header::open(file).is_ok() => None,
        Ok(_) | Err(_) => Some("is not a safetensors file".to_owned()),
    }
}
