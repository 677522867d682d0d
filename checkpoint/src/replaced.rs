//! What `--force` may replace: what a run wrote, and nothing else.
//!
//! A run writes a directory of `sharding.json` and the rank files of its mesh, or of `.metadata` and `.distcp` files, or one safetensors file. Whatever is not
//! recognised as one of these is something else, and too much to lose: then there is a reason, which ends the sentence
//! `--out DIR ..`.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::dcp::{self, METADATA_NAME, written};
use super::header;
use super::manifest::{self, MANIFEST_NAME};
use crate::error::Error;
use crate::read::read;

/// As much of a manifest as says whose it is, in whatever version.
#[derive(Deserialize)]
struct Signature {
    format: String,
    world: usize,
}

/// Why a directory is no output of a run; None if it is one.
pub(crate) fn directory(dir: &Path) -> Result<Option<String>, Error> {
    let failed = |error| Error::io("reading", dir, &error);
    let mut other = None;
    let mut has_manifest = false;
    let metadata = dir.join(METADATA_NAME);
    let is_dcp = fs::symlink_metadata(&metadata).is_ok();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            return Ok(Some(format!("holds the folder {name}")));
        }
        if is_dcp && kind.is_file() && (name == METADATA_NAME || written::is_file_name(&name)) {
            continue;
        }
        if !is_dcp && name == MANIFEST_NAME {
            has_manifest = true;
        } else if is_dcp || !kind.is_file() || !manifest::is_rank_file_name(&name) {
            // Which one is named does not depend on the order of the file system.
            other = other.filter(|first| *first < name).or(Some(name));
        }
    }
    if let Some(name) = other {
        return Ok(Some(format!("holds {name}")));
    }
    if is_dcp {
        let ours = dcp::writer(&metadata).is_some_and(|writer| writer == written::WRITER);
        return Ok((!ours).then(|| format!("holds a {METADATA_NAME} of another program")));
    }
    if !has_manifest {
        return Ok(Some(format!("holds no {MANIFEST_NAME}")));
    }
    let signature = read(&dir.join(MANIFEST_NAME)).ok();
    let signature = signature.and_then(|text| serde_json::from_slice::<Signature>(&text).ok());
    Ok(match signature {
        Some(signature) if signature.format == manifest::FORMAT && signature.world > 0 => None,
        Some(_) | None => Some(format!("holds a {MANIFEST_NAME} that is no manifest of a run")),
    })
}

/// Why a file is no output of a run; None if it is one.
pub(crate) fn file(file: &Path) -> Option<String> {
    match fs::symlink_metadata(file) {
        Ok(kind) if kind.is_symlink() => Some("is a symbolic link".to_owned()),
        Ok(kind) if kind.is_file() && header::open(file).is_ok() => None,
        Ok(_) | Err(_) => Some("is no safetensors file".to_owned()),
    }
}
