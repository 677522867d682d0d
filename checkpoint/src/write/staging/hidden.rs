//! Hidden folders next to an output: names, locks, and leftovers of ended processes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::error::Error;
use crate::write::staging::Kind;

/// The lock file in a hidden folder, which is locked while its process lives.
pub(super) const LOCK: &str = "lock";

/// The name of the output being written in a hidden folder.
pub(crate) const NEW: &str = "new";

/// The name of the replaced output, if two names cannot be exchanged.
pub(super) const OLD: &str = "old";

/// Makes a hidden folder and holds its lock; `None` if it belongs to another process.
pub(super) fn begin_folder(hidden: &Path, kind: Kind) -> io::Result<Option<File>> {
    match fs::create_dir(hidden) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        other => other?,
    }
    let path = hidden.join(LOCK);
    let lock = match OpenOptions::new().write(true).create(true).truncate(false).open(&path) {
        // Another process took it for an abandoned folder and removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let locked = if kind == Kind::SharedDirectory { lock.try_lock_shared() } else { lock.try_lock() };
    match locked {
        Err(TryLockError::WouldBlock) => Ok(None),
        // A file system without locks: then no process takes it for an abandoned folder either.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(is_at(&lock, &path).then_some(lock)),
    }
}

/// Returns `true` if a file is still the one at this path.
#[cfg(unix)]
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |(a, b): (fs::Metadata, fs::Metadata)| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(same)
}

#[cfg(not(unix))]
pub(super) fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// Removes the hidden folders of this target whose processes have ended; best effort.
pub(super) fn remove_dead(target: &Path) {
    for (_, hidden, _lock) in dead(target) {
        remove_one(target, &hidden);
    }
}

/// Returns the hidden folders whose processes have ended, with their numbers and locks, which it holds.
pub(super) fn dead(target: &Path) -> impl Iterator<Item = (u64, PathBuf, File)> {
    let prefix = hidden_prefix(target);
    let entries = fs::read_dir(parent(target)).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let number = entry.file_name().to_str()?.strip_prefix(&prefix)?.parse::<u64>().ok()?;
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            return None;
        }
        let hidden = entry.path();
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).open(hidden.join(LOCK)).ok()?;
        lock.try_lock().ok()?;
        Some((number, hidden, lock))
    })
}

/// Removes a hidden folder whose lock is held.
pub(super) fn remove_one(target: &Path, hidden: &Path) {
    let old = hidden.join(OLD);
    if old.exists() && fs::symlink_metadata(target).is_err() {
        // The process ended between the two renames.
        let _ = fs::rename(old, target);
    }
    remove_folder(hidden);
}

/// Removes a hidden folder, into which other processes of the job may still be writing.
pub(super) fn remove_folder(hidden: &Path) {
    for _ in 0..100 {
        match fs::remove_dir_all(hidden) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                thread::sleep(Duration::from_millis(20));
            }
            Ok(()) | Err(_) => return,
        }
    }
}

/// Returns `out`, `./out/` and `../x/out` as an absolute path whose last component is a name.
pub(super) fn absolute(target: &Path) -> Result<PathBuf, Error> {
    let path = std::path::absolute(target).map_err(|error| Error::io("resolving", target, &error))?;
    if path.file_name().is_none() {
        return Err(Error::refused("output", format!("{} does not name an output", target.display())));
    }
    // Drops a trailing slash.
    Ok(path.components().collect())
}

pub(super) fn parent(target: &Path) -> &Path {
    target.parent().unwrap_or(Path::new("/"))
}

/// Returns the path of the unfinished output of this target, by the number of its hidden folder.
pub(crate) fn staged_in(target: &Path, number: u64) -> Result<PathBuf, Error> {
    Ok(hidden(&absolute(target)?, number).join(NEW))
}

/// Returns the path of a hidden folder next to the target.
pub(super) fn hidden(target: &Path, number: u64) -> PathBuf {
    target.with_file_name(format!("{}{number}", hidden_prefix(target)))
}

/// Returns the prefix of the target's hidden folders: some of its name, and a hash of all of it.
///
/// A file system that accepts the name, of 255 bytes at most, accepts these too.
fn hidden_prefix(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default();
    // FNV-1a, which is stable across versions.
    let hash = name.as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let name = name.to_string_lossy();
    let name = &name[..name.floor_char_boundary(64)];
    format!(".{name}.reshard-{hash:016x}-")
}
