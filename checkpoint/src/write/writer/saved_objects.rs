//! Objects that processes save next to the rank files: a reported success means that it will be committed.
//!
//! ```text
//! objects/HASH.begun     the name of an object, once a process begins to save it
//! objects/HASH.bin       its bytes
//! objects/HASH.json      its name, path and checksum: the object is saved once this file exists
//! taken/..               the folder `objects`, once a process commits
//! ```
//!
//! The process that commits renames the folder, and then reads the objects listed in it. A process that saves
//! an object lists it, and then checks that the object exists at the original path. If it does, the folder
//! had not been renamed, so the object will be read. If it does not, the object may have been listed in the
//! renamed folder, because the operating system resolves the folder only once. It may be read or not, and the
//! save is reported as failed.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bytes::checksum::{self, checksum};
use crate::bytes::read::read_text;
use crate::bytes::{Bytes, Input};
use crate::error::Error;
use crate::model::objects::{Content, Key, Object};

/// The extensions of the files of an object.
const BEGUN: &str = "begun";
const BYTES: &str = "bin";
const MEANWHILE: &str = "part";
const LISTED: &str = "json";

/// The folder of the objects: while they are saved, and after the commit has begun.
pub(super) struct SavedObjects {
    open: PathBuf,
    taken: PathBuf,
}

/// The outcome of an attempt to save an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Saved,
    /// Another one of this name has been begun.
    Twice,
    /// Another process has committed.
    Closed,
}

/// The metadata of an object.
#[derive(Serialize, Deserialize)]
struct About {
    name: String,
    path: Option<Vec<Key>>,
    crc64nvme: String,
}

impl SavedObjects {
    /// Returns the objects of a hidden folder.
    pub(super) fn of(hidden: &Path) -> Self {
        Self { open: hidden.join("objects"), taken: hidden.join("taken") }
    }

    /// Creates their folder.
    pub(super) fn begin(&self) -> Result<(), Error> {
        fs::create_dir(&self.open).map_err(|error| Error::io("creating", &self.open, &error))
    }

    /// Saves an object; a failure leaves no trace.
    pub(super) fn save(&self, name: &str, path: Option<&[Key]>, bytes: &[u8]) -> Result<Outcome, Error> {
        let about = About {
            name: name.to_owned(),
            path: path.map(<[Key]>::to_vec),
            crc64nvme: checksum::to_text(&[checksum(bytes)]),
        };
        let text = serde_json::to_string(&about)
            .map_err(|error| Error::internal(format!("a name cannot be written as JSON: {error}")))?;
        let stem = self.open.join(format!("{:016x}", checksum(name.as_bytes())));
        let begun = stem.with_extension(BEGUN);
        let saved = match File::create_new(&begun) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Outcome::Twice),
            Err(error) => Err(error),
            Ok(mut file) => {
                file.write_all(name.as_bytes()).and_then(|()| write(&stem, &text, bytes)).inspect_err(|_| {
                    // The name marker goes last: after that the object may be saved again.
                    for extension in [BYTES, MEANWHILE, BEGUN] {
                        let _ = fs::remove_file(stem.with_extension(extension));
                    }
                })
            }
        };
        match saved {
            Ok(()) if stem.with_extension(LISTED).exists() => Ok(Outcome::Saved),
            Ok(()) => Ok(Outcome::Closed),
            Err(error) if error.kind() == ErrorKind::NotFound && !self.open.exists() => Ok(Outcome::Closed),
            Err(error) => Err(Error::io("writing", &stem.with_extension(BYTES), &error)),
        }
    }

    /// Returns the sorted names of objects that were begun and are not saved.
    pub(super) fn unfinished(&self) -> Result<Vec<String>, Error> {
        let files = match fs::read_dir(&self.open) {
            // A commit has begun.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(|error| Error::io("reading", &self.open, &error))?,
        };
        let mut names = Vec::new();
        for file in files {
            let path = file.map_err(|error| Error::io("reading", &self.open, &error))?.path();
            if ends_in(&path, BEGUN) && !path.with_extension(LISTED).exists() {
                // It may have been removed since.
                names.extend(read_text(&path));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns all saved objects in the order of their names, and prevents further ones.
    pub(super) fn close(&self) -> Result<Vec<Object>, Error> {
        let failed = |error| Error::io("reading", &self.taken, &error);
        fs::rename(&self.open, &self.taken).map_err(failed)?;
        let mut objects = Vec::new();
        for file in fs::read_dir(&self.taken).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            if ends_in(&path, LISTED) {
                objects.push(listed(&path)?);
            }
        }
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }
}

/// Writes an object, which is listed when it is complete.
fn write(stem: &Path, text: &str, bytes: &[u8]) -> io::Result<()> {
    fs::write(stem.with_extension(BYTES), bytes)?;
    let meanwhile = stem.with_extension(MEANWHILE);
    fs::write(&meanwhile, text)?;
    fs::rename(&meanwhile, stem.with_extension(LISTED))
}

/// Reads the object that a file lists.
fn listed(path: &Path) -> Result<Object, Error> {
    let text = read_text(path).map_err(|error| Error::io("reading", path, &error))?;
    let about: Option<About> = serde_json::from_slice(text.as_bytes()).ok();
    let sums = about.as_ref().and_then(|about| checksum::of_text(&about.crc64nvme));
    let (Some(About { name, path: keys, .. }), Some([sum])) = (about, sums.as_deref()) else {
        let message = format!("{} does not describe an object", path.display());
        return Err(Error::failed(crate::ErrorKind::Io, "io", message));
    };
    let input = Arc::new(Input::open(&path.with_extension(BYTES))?);
    let len = input.len() as usize;
    let content = Content::Archive(Bytes::InFile { input, start: 0, len });
    Ok(Object { name, path: keys, content, sum: Some(*sum) })
}

fn ends_in(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{BEGUN, BYTES, Outcome, SavedObjects, checksum};

    /// A failed save leaves no files that prevent a later one, and begun objects are known by name.
    #[test]
    fn an_object_that_failed_may_be_saved_anew() {
        let folder = tempfile::tempdir().unwrap();
        let objects = SavedObjects::of(folder.path());
        objects.begin().unwrap();
        let stem = objects.open.join(format!("{:016x}", checksum(b"step")));
        // A folder at the path of the bytes makes the save fail.
        fs::create_dir(stem.with_extension(BYTES)).unwrap();
        assert_eq!(objects.save("step", None, b"7").unwrap_err().code(), "io");
        fs::remove_dir(stem.with_extension(BYTES)).unwrap();
        assert_eq!(fs::read_dir(&objects.open).unwrap().count(), 0);
        assert_eq!(objects.save("step", None, b"7").unwrap(), Outcome::Saved);
        assert_eq!(objects.save("step", None, b"8").unwrap(), Outcome::Twice);
        // An object whose process died.
        fs::write(objects.open.join("0.begun"), "epoch").unwrap();
        assert_eq!(objects.unfinished().unwrap(), ["epoch"]);
        assert!(stem.with_extension(BEGUN).exists());
        let taken = objects.close().unwrap();
        assert_eq!(taken.iter().map(|one| &one.name[..]).collect::<Vec<_>>(), ["step"]);
        assert_eq!(objects.save("lr", None, b"9").unwrap(), Outcome::Closed);
        assert!(objects.unfinished().unwrap().is_empty());
    }
}
