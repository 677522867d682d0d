//! The file of a folder of rank files that holds the entries that are not tensors.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bytes::{Bytes, Input, checksum, place, write_all_at};
use crate::error::{Error, ErrorClass};
use crate::model::objects::{Container, Content, Key, Object, check_sum, check_total};
use crate::shown::Shown;

/// The file next to rank files that holds the entries that are not tensors.
pub(crate) const OBJECTS_NAME: &str = "others.bin";

/// Returns the path of the objects of a folder of rank files.
pub(crate) fn objects_file(dir: &Path) -> PathBuf {
    dir.join(OBJECTS_NAME)
}

/// An object that was written: its location, and its checksum.
pub(crate) struct Placed<'a> {
    pub(crate) object: &'a Object,
    /// The position of the rank whose file it is in.
    pub(crate) place: usize,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) sum: u64,
}

/// Copies an object into a file at byte `offset`; if `checked`, its manifest's checksum must match.
pub(crate) fn copy<'a>(
    object: &'a Object,
    (place, path): (usize, &Path),
    offset: u64,
    checked: bool,
) -> Result<Placed<'a>, Error> {
    let failed = |error| Error::io("writing", path, &error);
    let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
    let sum =
        object.each_piece(&mut |at, piece| write_all_at(&file, offset + at as u64, piece).map_err(failed))?;
    if checked {
        check_sum(object, sum)?;
    }
    Ok(Placed { object, place, offset, len: object.byte_len().unwrap_or(0), sum })
}

/// Writes and syncs `others.bin` of a folder of rank files; writes nothing if no object has bytes.
pub(crate) fn write_file<'a>(
    folder: &Path,
    objects: &'a [Object],
    checked: bool,
) -> Result<Vec<Placed<'a>>, Error> {
    let mut placed: Vec<Placed<'a>> = Vec::new();
    if objects.iter().all(|object| object.archive().is_none()) {
        return Ok(placed);
    }
    let path = objects_file(folder);
    let file = File::create(&path).map_err(|error| Error::io("creating", &path, &error))?;
    let mut end = 0;
    for object in objects.iter().filter(|object| object.archive().is_some()) {
        let one = copy(object, (0, &path), end, checked)?;
        end += one.len;
        placed.push(one);
    }
    file.sync_all().map_err(|error| Error::io("syncing", &path, &error))?;
    Ok(placed)
}

/// An object as `sharding.json` lists it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listed {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<Vec<Key>>,
    offset: u64,
    bytes: u64,
    crc64nvme: String,
}

impl Listed {
    pub(crate) fn of(placed: &Placed<'_>) -> Self {
        let Placed { object, offset, len, sum, .. } = placed;
        Self {
            name: object.name.clone(),
            path: object.path.clone(),
            offset: *offset,
            bytes: *len,
            crc64nvme: checksum::to_text(&[*sum]),
        }
    }

    /// Opens the objects of a folder of rank files; those without bytes are [`Container::Missing`].
    pub(crate) fn open(dir: &Path, listed: &[Self]) -> Result<Vec<Object>, Error> {
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        let path = objects_file(dir);
        let input = match Input::open(&path) {
            Ok(input) => Some(Arc::new(input)),
            Err(error) if error.class() == ErrorClass::Refused && !place::exists(&path)? => None,
            Err(error) => return Err(error),
        };
        let within = |one: &Self| {
            let end = one.offset.checked_add(one.bytes);
            input.as_ref().filter(|input| end.is_some_and(|end| end <= input.len()))
        };
        if let Some(input) = &input {
            check_total(input, listed.iter().filter(|one| within(one).is_some()).map(|one| one.bytes))?;
        }
        let mut objects = Vec::with_capacity(listed.len());
        let mut names = HashSet::with_capacity(listed.len());
        for one in listed {
            let bad = |why: &str| {
                let about = format!("{}: `{}`", path.display(), one.name.shown());
                Error::malformed("manifest", why).about(about)
            };
            if !names.insert(&one.name[..]) {
                return Err(bad("it is listed twice"));
            }
            let sum = match checksum::of_text(&one.crc64nvme).as_deref() {
                Some([sum]) => *sum,
                Some(_) | None => {
                    return Err(bad("its checksum is not 16 hexadecimal digits (0 to 9, a to f)"));
                }
            };
            let (name, path) = (one.name.clone(), one.path.clone());
            objects.push(match within(one) {
                None => Object { path, ..Object::part_of(name, Container::Missing) },
                Some(input) => {
                    let (input, start, len) = (Arc::clone(input), one.offset, one.bytes as usize);
                    let content = Content::Archive(Bytes::InFile { input, start, len });
                    Object { name, path, content, sum: Some(sum) }
                }
            });
        }
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }
}
