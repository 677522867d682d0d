//! Outputs that appear whole or not at all.
//!
//! Everything is written under a hidden name beside the final one, synced to the disk, and renamed in one step. A run
//! that fails removes what it began; a process that is killed leaves only a hidden name that no reader takes for a
//! result. With `--force` the old directory is renamed away first and put back if the new one cannot take its place,
//! so that at every moment the final name is either absent or a complete directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// An output that has been begun; dropping it removes it, unless it was put in place.
pub(crate) struct Staging {
    kind: Kind,
    staged: PathBuf,
    target: PathBuf,
    force: bool,
    done: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
}

/// Whether the outputs may be begun: absent, or to be replaced by the user's own wish, and apart from each other.
pub(crate) fn check(dir: Option<&Path>, file: Option<&Path>, force: bool) -> Result<(), Error> {
    dir.map_or(Ok(()), |dir| check_directory(dir, force))?;
    file.map_or(Ok(()), |file| check_file(file, force))?;
    match (dir, file) {
        (Some(dir), Some(file)) => check_apart(dir, file),
        (Some(_) | None, _) => Ok(()),
    }
}

/// Whether `dir` may become the output: absent, empty, or to be replaced by the user's own wish.
fn check_directory(dir: &Path, force: bool) -> Result<(), Error> {
    let refused = |why: String| Err(Error::refused("output", format!("--out {} {why}", dir.display())));
    let Ok(kind) = fs::symlink_metadata(dir) else { return Ok(()) };
    if !kind.is_dir() {
        return refused("is there and is not a directory".to_owned());
    }
    let mut entries = fs::read_dir(dir).map_err(|error| Error::io("reading", dir, &error))?.peekable();
    if entries.peek().is_none() {
        return Ok(());
    }
    if !force {
        return refused("is not empty; --force replaces it".to_owned());
    }
    // A run never writes folders: a directory that holds some is something else, and too much to lose.
    for entry in entries {
        let entry = entry.map_err(|error| Error::io("reading", dir, &error))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let folder = entry.file_name();
            return refused(format!(
                "holds the folder {}, so it is no earlier output",
                folder.to_string_lossy()
            ));
        }
    }
    Ok(())
}

/// Whether `file` may become the output: absent, or to be replaced by the user's own wish.
fn check_file(file: &Path, force: bool) -> Result<(), Error> {
    let refused = |why: &str| Err(Error::refused("output", format!("--gather {} {why}", file.display())));
    if file.file_name().is_none() {
        return refused("does not name a file");
    }
    match fs::symlink_metadata(file) {
        Ok(kind) if kind.is_dir() => refused("is a directory"),
        Ok(_) if !force => refused("is there already; --force replaces it"),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The two outputs appear one after the other, so one must not be inside the other.
fn check_apart(dir: &Path, file: &Path) -> Result<(), Error> {
    let (dir, file) = (absolute(dir)?, absolute(file)?);
    if file.starts_with(&dir) {
        let message =
            format!("--gather {} is inside --out {}; put it elsewhere", file.display(), dir.display());
        return Err(Error::refused("output", message));
    }
    Ok(())
}

impl Staging {
    /// Begins an output directory.
    pub(crate) fn directory(target: &Path, force: bool) -> Result<Self, Error> {
        let staging = Self::begin(Kind::Directory, target, force)?;
        fs::create_dir(&staging.staged).map_err(|error| Error::io("creating", &staging.staged, &error))?;
        Ok(staging)
    }

    /// Begins an output file; the caller creates it at `path()`.
    pub(crate) fn file(target: &Path, force: bool) -> Result<Self, Error> {
        Self::begin(Kind::File, target, force)
    }

    /// Where to write meanwhile.
    pub(crate) fn path(&self) -> &Path {
        &self.staged
    }

    /// Where it will be.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Renames what was staged into place. Files inside must have been synced by whoever wrote them.
    pub(crate) fn put_in_place(mut self) -> Result<(), Error> {
        if self.kind == Kind::Directory {
            sync_directory(&self.staged)?;
            check_directory(&self.target, self.force)?;
        } else {
            check_file(&self.target, self.force)?;
        }
        let old = sibling(&self.target, "old", std::process::id());
        let replaces = self.kind == Kind::Directory && self.target.exists();
        let place = |from: &Path, to: &Path| {
            fs::rename(from, to).map_err(|error| Error::io("renaming to", to, &error))
        };
        if replaces {
            place(&self.target, &old)?;
        }
        if let Err(error) = place(&self.staged, &self.target) {
            if replaces {
                place(&old, &self.target)?;
            }
            return Err(error);
        }
        self.done = true;
        sync_directory(parent(&self.target))?;
        if replaces {
            fs::remove_dir_all(&old).map_err(|error| Error::io("removing", &old, &error))?;
        }
        Ok(())
    }

    fn begin(kind: Kind, target: &Path, force: bool) -> Result<Self, Error> {
        let target = absolute(target)?;
        let above = parent(&target);
        fs::create_dir_all(above).map_err(|error| Error::io("creating", above, &error))?;
        Ok(Self { kind, staged: sibling(&target, "new", std::process::id()), target, force, done: false })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.done {
            // Best effort: the error that brought us here is the one worth reporting.
            let _ = match self.kind {
                Kind::Directory => fs::remove_dir_all(&self.staged),
                Kind::File => fs::remove_file(&self.staged),
            };
        }
    }
}

/// `out`, `./out/` and `../x/out` as a path whose last component is a name.
fn absolute(target: &Path) -> Result<PathBuf, Error> {
    let path = std::path::absolute(target).map_err(|error| Error::io("resolving", target, &error))?;
    if path.file_name().is_none() {
        return Err(Error::refused("output", format!("{} does not name an output", target.display())));
    }
    // Drops a trailing slash.
    Ok(path.components().collect())
}

fn parent(target: &Path) -> &Path {
    target.parent().unwrap_or(Path::new("/"))
}

/// Where the process of this number writes an output meanwhile.
pub(crate) fn staged_by(target: &Path, process: u32) -> Result<PathBuf, Error> {
    Ok(sibling(&absolute(target)?, "new", process))
}

/// A hidden name beside the target, of one process alone.
fn sibling(target: &Path, role: &str, process: u32) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.reshard-{role}-{process}"))
}

/// Makes renames and new names in a directory survive a power cut.
fn sync_directory(dir: &Path) -> Result<(), Error> {
    let sync = || -> io::Result<()> { File::open(dir)?.sync_all() };
    sync().map_err(|error| Error::io("syncing", dir, &error))
}
