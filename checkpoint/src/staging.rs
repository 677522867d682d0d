//! Outputs that appear whole or not at all, and of which nothing else stays.
//!
//! ```text
//! .NAME.reshard-HASH-N/lock   held as long as the process lives, by the operating system
//! .NAME.reshard-HASH-N/new    the output until it is whole, then (of a directory) what it replaced
//! ```
//!
//! An output is written inside a hidden folder beside its final place, synced to the disk, and renamed in one step; an old
//! directory changes places with the new one in that same step, so that the final name is at every moment what it was or
//! the complete new output. Where the file system cannot exchange two names, the old one is renamed into the hidden folder
//! first, and a run that finds it there without anything in its place puts it back.
//!
//! **What stays.** A run that fails removes its hidden folder, and so does [`abandon`] for a process that is told to end. One
//! that is killed leaves the folder, and the next run into the same place removes it: whoever holds the lock lives, and the
//! lock of a process ends with it. Numbers of processes say nothing here. A folder is somebody's from the moment its lock is
//! held; between making the folder and holding the lock it may be taken for a dead one's, so whoever makes one looks, with
//! the lock in hand, whether it is still there, and else begins another.

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

/// Says to others who take part that an output that is there is replaced.
const FORCE: &str = "force";

/// More hidden folders than this no output has.
const MOST_FOLDERS: u64 = 10_000;

/// The hidden folders of this process, and the folders above outputs that it has made.
static BEGUN: Mutex<Vec<Begun>> = Mutex::new(Vec::new());

/// What is to be removed if an output does not come about.
struct Begun {
    hidden: PathBuf,
    /// Folders that had to be made above the output, the innermost first.
    above: Vec<PathBuf>,
    lock: Arc<File>,
    /// Whether it stays, for a run that goes on with it.
    kept: bool,
    /// Whether others take part: then whoever is the last to leave removes it.
    shared: bool,
}

/// An output that has been begun; dropping it removes it, unless it was put in place.
pub(crate) struct Staging {
    kind: Kind,
    number: u64,
    hidden: PathBuf,
    target: PathBuf,
    force: bool,
    /// Open as long as this lives, and locked if the file system can.
    lock: Arc<File>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    /// A directory in which several processes take part.
    SharedDirectory,
    File,
}

/// Removes what the jobs of this process have begun and not put in place, for a process that is about to end.
///
/// Whatever is put in place at this moment is put in place first. From then on nothing of this process is written, and its
/// jobs do not return: what they would say, of files that are gone, is no news.
///
/// ```no_run
/// // In a thread that waits for signals:
/// reshard_checkpoint::abandon();
/// // .. and then the process ends.
/// ```
pub fn remove_staging() {
    let mut begun = begun();
    for one in begun.drain(..) {
        one.remove();
    }
    // Nobody gets it any more.
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
    /// Best effort: there is something else to be said, and to nobody if this fails.
    fn remove(&self) {
        if self.kept {
            return;
        }
        if self.shared && self.lock.try_lock().is_err() {
            return;
        }
        remove_folder(&self.hidden);
        for folder in &self.above {
            // Whatever else is in it by now stays, with all that is above.
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

    /// Begins an output directory in which other processes take part.
    pub(crate) fn shared(target: &Path, force: bool) -> Result<Self, Error> {
        let staging = Self::begin(Kind::SharedDirectory, target, force)?;
        fs::create_dir(staging.path()).map_err(|error| Error::io("creating", &staging.path(), &error))?;
        Ok(staging)
    }

    /// Takes part in the output directory that another process has begun, in the hidden folder of this number; None if it has ended.
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
        // Whoever began has looked at what is there.
        let force = fs::metadata(hidden.join(FORCE)).is_ok();
        Ok(Some(Self { kind: Kind::SharedDirectory, number, hidden, target, force, lock }))
    }

    /// Takes over the output that a run has begun that was killed, if `wanted` says of its hidden folder that it is to be. Folders
    /// of others that were killed are removed.
    pub(crate) fn resumed_directory(
        target: &Path,
        force: bool,
        wanted: impl Fn(&Path) -> bool,
    ) -> Result<Option<Self>, Error> {
        Self::resumed(Kind::Directory, target, force, wanted)
    }

    /// The same, of an output file.
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

    /// Whether it stays if this run ends before it is put in place.
    pub(crate) fn keep(&self, kept: bool) {
        if let Some(one) = begun().iter_mut().find(|one| Arc::ptr_eq(&one.lock, &self.lock)) {
            one.kept = kept;
        }
    }

    /// The hidden folder.
    pub(crate) fn hidden(&self) -> &Path {
        &self.hidden
    }

    /// Begins an output file; the caller creates it at `path()`.
    pub(crate) fn file(target: &Path, force: bool) -> Result<Self, Error> {
        Self::begin(Kind::File, target, force)
    }

    /// Where to write meanwhile.
    pub(crate) fn path(&self) -> PathBuf {
        self.hidden.join(NEW)
    }

    /// Which of the hidden folders of its target it has: with [`staged_in`], how other processes find it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Where it will be.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Renames what was staged into place. Files inside must have been synced by whoever wrote them.
    ///
    /// Where that fails it stays as it was, if it was to be kept; once it is in place nothing is kept.
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
            // Another run may have been first since it was looked at. A directory that holds something is not renamed over.
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
                "another run has written {} meanwhile; --force replaces what a run wrote",
                self.target.display()
            );
            Error::refused("output", message)
        })?;
        if let Some(one) = begun.iter_mut().find(|one| Arc::ptr_eq(&one.lock, &self.lock)) {
            // They are needed now.
            one.above.clear();
            one.kept = false;
        }
        drop(begun);
        // What runs left that were killed is of no use any more.
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
        let message = format!("{MOST_FOLDERS} other runs write {} at this moment", target.display());
        Err(in_vain(&above, Error::failed("io", message)))
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

/// Lets two directories change places; by way of a third name where the file system knows no better.
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
        // The first error is the one worth reporting.
        let _ = fs::rename(old, target);
    })
}

/// Gives a file its name, unless there is a file of that name; where the file system has no links it is looked at before.
///
/// Its old name goes with the hidden folder.
fn link(new: &Path, target: &Path) -> io::Result<()> {
    match fs::hard_link(new, target) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        Err(_) => fs::rename(new, target),
    }
}

/// Makes renames and new names in a directory survive a power cut.
fn sync_directory(dir: &Path) -> Result<(), Error> {
    let sync = || -> io::Result<()> { File::open(dir)?.sync_all() };
    sync().map_err(|error| Error::io("syncing", dir, &error))
}
