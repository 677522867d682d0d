//! Outputs that appear completely or not at all, and leave no other files.
//!
//! ```text
//! .NAME.reshard-HASH-N/lock   held as long as the process lives, by the operating system
//! .NAME.reshard-HASH-N/new    the output until it is whole, then (of a directory) what it replaced
//! ```
//!
//! An output is written inside a hidden folder next to its final path, synced to the disk, and renamed in one
//! step. An old directory is exchanged with the new one in the same step. So the final name always refers to
//! the old or to the complete new output. If the file system cannot exchange two names, the old one is
//! renamed into the hidden folder first; a run that finds it there, with nothing at the final path, restores
//! it.
//!
//! **Leftovers.** A run that fails removes its hidden folder, and so does [`remove_staging`] for a process that
//! receives a termination signal. A killed process leaves the folder, and the next run with the same output
//! removes it: a held lock means a live process, and the lock of a process ends with it. Process ids are not
//! used. A folder belongs to a process once its lock is held. Before that another process may take it for an
//! abandoned one. So the creator checks, with the lock held, that the folder still exists, and otherwise
//! begins another.

mod hidden;
mod targets;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use hidden::{
    LOCK, OLD, absolute, begin_folder, dead, hidden, is_at, parent, remove_dead, remove_folder, remove_one,
};
use targets::{check_directory, check_file};

pub(crate) use hidden::{NEW, staged_in};
pub(crate) use targets::{check, check_outside, is_whole_file};

/// The name of the file that marks the output as one that may be replaced, for participating processes.
const FORCE: &str = "force";

/// The largest number of hidden folders of an output.
const MOST_FOLDERS: u64 = 10_000;

/// The hidden folders of this process, and the parent folders of outputs that it has made.
static BEGUN: Mutex<Vec<Begun>> = Mutex::new(Vec::new());

/// The folders to remove if an output is not completed.
struct Begun {
    hidden: PathBuf,
    /// The folders that had to be made above the output, the innermost first.
    above: Vec<PathBuf>,
    lock: Arc<File>,
    /// `true` if it is retained for a run that resumes it.
    kept: bool,
    /// `true` if other processes participate: then the last one to leave removes it.
    shared: bool,
}

/// An output that has been begun; dropping it removes it, unless it was put in place.
pub(crate) struct Staging {
    kind: Kind,
    number: u64,
    hidden: PathBuf,
    target: PathBuf,
    force: bool,
    /// The lock file, open for the lifetime of this value, and locked if the file system can.
    lock: Arc<File>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    /// A directory in which several processes participate.
    SharedDirectory,
    File,
}

/// Removes the unfinished outputs of this process's jobs; for a process that is about to end.
///
/// An output that is being put in place at this moment is completed first. After that this process writes no
/// more outputs, and its jobs do not return, since errors about removed files would be misleading.
///
/// ```no_run
/// // In a thread that waits for signals:
/// reshard_checkpoint::remove_staging();
/// // .. and then the process ends.
/// ```
#[doc(hidden)]
pub fn remove_staging() {
    let mut begun = begun();
    for one in begun.drain(..) {
        one.remove();
    }
    // The lock is never released, so that no job continues.
    std::mem::forget(begun);
}

/// Returns, unless this process is about to end.
pub(crate) fn unless_abandoned() {
    drop(begun());
}

fn begun() -> MutexGuard<'static, Vec<Begun>> {
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Begun {
    /// Best effort: another error is being reported already, and a failure here is ignored.
    fn remove(&self) {
        if self.kept {
            return;
        }
        if self.shared && self.lock.try_lock().is_err() {
            return;
        }
        remove_folder(&self.hidden);
        for folder in &self.above {
            // A folder that is no longer empty stays, with all folders above it.
            let _ = fs::remove_dir(folder);
        }
    }
}

impl Staging {
    /// Begins an output directory.
    pub(crate) fn directory(target: &Path, force: bool) -> Result<Self, Error> {
        let staging = Self::begin(Kind::Directory, target, force)?;
        fs::create_dir(staging.path()).map_err(|error| Error::io("creating", &staging.path(), &error))?;
        Ok(staging)
    }

    /// Begins an output directory in which other processes participate.
    pub(crate) fn shared(target: &Path, force: bool) -> Result<Self, Error> {
        let staging = Self::begin(Kind::SharedDirectory, target, force)?;
        fs::create_dir(staging.path()).map_err(|error| Error::io("creating", &staging.path(), &error))?;
        Ok(staging)
    }

    /// Joins the output directory that another process has begun, by the number of its hidden folder.
    ///
    /// Returns `None` if that process has ended.
    pub(crate) fn joined(target: &Path, number: u64) -> Result<Option<Self>, Error> {
        let target = absolute(target)?;
        let hidden = hidden(&target, number);
        let path = hidden.join(LOCK);
        let lock = match OpenOptions::new().write(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| Error::io("opening", &path, &error))?,
        };
        let mut begun = begun();
        if matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)) || !is_at(&lock, &path) {
            return Ok(None);
        }
        let lock = Arc::new(lock);
        begun.push(Begun {
            hidden: hidden.clone(),
            above: Vec::new(),
            lock: Arc::clone(&lock),
            kept: false,
            shared: true,
        });
        // The process that began the output has checked the existing one.
        let force = fs::metadata(hidden.join(FORCE)).is_ok();
        Ok(Some(Self { kind: Kind::SharedDirectory, number, hidden, target, force, lock }))
    }

    /// Takes over the output of a killed run, if `wanted` accepts its hidden folder.
    ///
    /// Folders of other killed runs are removed.
    pub(crate) fn resumed_directory(
        target: &Path,
        force: bool,
        wanted: impl Fn(&Path) -> bool,
    ) -> Result<Option<Self>, Error> {
        Self::resumed(Kind::Directory, target, force, wanted)
    }

    /// Takes over an output file of a killed run, as [`Self::resumed_directory`] does.
    pub(crate) fn resumed_file(
        target: &Path,
        force: bool,
        wanted: impl Fn(&Path) -> bool,
    ) -> Result<Option<Self>, Error> {
        Self::resumed(Kind::File, target, force, wanted)
    }

    fn resumed(
        kind: Kind,
        target: &Path,
        force: bool,
        wanted: impl Fn(&Path) -> bool,
    ) -> Result<Option<Self>, Error> {
        let target = absolute(target)?;
        let mut begun = begun();
        let mut taken = None;
        for (number, hidden, lock) in dead(&target) {
            if taken.is_some() || !wanted(&hidden) || !hidden.join(NEW).exists() {
                remove_one(&target, &hidden);
                continue;
            }
            let lock = Arc::new(lock);
            let of_this = Begun {
                hidden: hidden.clone(),
                above: Vec::new(),
                lock: Arc::clone(&lock),
                kept: true,
                shared: false,
            };
            begun.push(of_this);
            taken = Some(Self { kind, number, hidden, target: target.clone(), force, lock });
        }
        Ok(taken)
    }

    /// Sets if the output is retained when this run ends before it is put in place.
    pub(crate) fn keep(&self, kept: bool) {
        if let Some(one) = begun().iter_mut().find(|one| Arc::ptr_eq(&one.lock, &self.lock)) {
            one.kept = kept;
        }
    }

    /// Returns the hidden folder.
    pub(crate) fn hidden(&self) -> &Path {
        &self.hidden
    }

    /// Begins an output file; the caller creates it at `path()`.
    pub(crate) fn file(target: &Path, force: bool) -> Result<Self, Error> {
        Self::begin(Kind::File, target, force)
    }

    /// Returns the path to write to until the output is put in place.
    pub(crate) fn path(&self) -> PathBuf {
        self.hidden.join(NEW)
    }

    /// Returns the number of its hidden folder; with [`staged_in`], other processes find it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the final path.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Renames the staged output to its final path; the caller must have synced the files inside.
    ///
    /// If that fails it stays as it was, if it was to be retained; once it is in place nothing is retained.
    pub(crate) fn put_in_place(&self) -> Result<(), Error> {
        let new = self.path();
        if self.kind == Kind::File {
            check_file(&self.target, self.force)?;
        } else {
            sync_directory(&new)?;
            check_directory(&self.target, self.force)?;
        }
        let mut begun = begun();
        let placed = match (self.kind, self.force, fs::symlink_metadata(&self.target)) {
            (Kind::Directory | Kind::SharedDirectory, true, Ok(_)) => {
                exchange(&new, &self.target, &self.hidden.join(OLD))
            }
            // Another run may have been first since the check. A directory that is not empty is never renamed
            // over.
            (Kind::Directory | Kind::SharedDirectory, _, _) | (Kind::File, true, _) => {
                fs::rename(&new, &self.target)
            }
            (Kind::File, false, _) => link(&new, &self.target),
        };
        placed.map_err(|error| {
            let is_there = matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists);
            if self.force || !is_there {
                return Error::io("renaming to", &self.target, &error);
            }
            let message = format!(
                "another run wrote {} in the meantime; pass `--force` to replace the output of a run",
                self.target.display()
            );
            Error::refused("output", message)
        })?;
        if let Some(one) = begun.iter_mut().find(|one| Arc::ptr_eq(&one.lock, &self.lock)) {
            // The folders above are needed now.
            one.above.clear();
            one.kept = false;
        }
        drop(begun);
        // The leftovers of killed runs are no longer needed.
        remove_dead(&self.target);
        sync_directory(parent(&self.target))
    }

    fn begin(kind: Kind, target: &Path, force: bool) -> Result<Self, Error> {
        let target = absolute(target)?;
        let failed = |path: &Path, error: &io::Error| Error::io("creating", path, error);
        let mut begun = begun();
        let mut above = Vec::new();
        for folder in target.ancestors().skip(1).take_while(|folder| !folder.exists()) {
            above.push(folder.to_owned());
        }
        let in_vain = |above: &[PathBuf], error: Error| {
            for folder in above {
                let _ = fs::remove_dir(folder);
            }
            error
        };
        fs::create_dir_all(parent(&target))
            .map_err(|error| in_vain(&above, failed(parent(&target), &error)))?;
        remove_dead(&target);
        for number in 0..MOST_FOLDERS {
            let hidden = hidden(&target, number);
            match begin_folder(&hidden, kind) {
                Ok(Some(lock)) => {
                    let lock = Arc::new(lock);
                    let shared = kind == Kind::SharedDirectory;
                    begun.push(Begun {
                        hidden: hidden.clone(),
                        above,
                        lock: Arc::clone(&lock),
                        kept: false,
                        shared,
                    });
                    if shared && force {
                        let path = hidden.join(FORCE);
                        File::create(&path).map_err(|error| failed(&path, &error))?;
                    }
                    return Ok(Self { kind, number, hidden, target, force, lock });
                }
                Ok(None) => {}
                Err(error) => return Err(in_vain(&above, failed(&hidden, &error))),
            }
        }
        let message = format!("{MOST_FOLDERS} other runs are writing {}", target.display());
        Err(in_vain(&above, Error::failed(crate::ErrorKind::Io, "io", message)))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let mut begun = begun();
        if let Some(at) = begun.iter().position(|one| Arc::ptr_eq(&one.lock, &self.lock)) {
            begun.swap_remove(at).remove();
        }
    }
}

/// Exchanges two directories; through a third name if the file system cannot exchange names.
fn exchange(new: &Path, target: &Path, old: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        if renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE).is_ok() {
            return Ok(());
        }
    }
    fs::rename(target, old)?;
    fs::rename(new, target).inspect_err(|_| {
        // Report the first error; this one is less important.
        let _ = fs::rename(old, target);
    })
}

/// Gives a file its final name, unless a file of that name exists.
///
/// A file system without links relies on the earlier check. The old name is removed with the hidden folder.
fn link(new: &Path, target: &Path) -> io::Result<()> {
    match fs::hard_link(new, target) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        Err(_) => fs::rename(new, target),
    }
}

/// Makes renames and new names in a directory survive a power failure.
fn sync_directory(dir: &Path) -> Result<(), Error> {
    let sync = || -> io::Result<()> { File::open(dir)?.sync_all() };
    sync().map_err(|error| Error::io("syncing", dir, &error))
}
