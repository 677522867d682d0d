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

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::replaced;
use crate::error::Error;

/// The file in a hidden folder whose lock says that somebody lives.
const LOCK: &str = "lock";

/// What is being written in a hidden folder.
pub(crate) const NEW: &str = "new";

/// What is replaced, where two names cannot be exchanged.
const OLD: &str = "old";

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
pub fn abandon() {
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

/// Removes a hidden folder, into which other processes of the job may still be writing.
fn remove_folder(hidden: &Path) {
    for _ in 0..100 {
        match fs::remove_dir_all(hidden) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                thread::sleep(Duration::from_millis(20));
            }
            Ok(()) | Err(_) => return,
        }
    }
}

/// Whether an output of this name is one file of whole tensors, and not a directory; names of formats that are only read are refused.
pub(crate) fn is_whole_file(out: &Path) -> Result<bool, Error> {
    let suffix = out.extension().map(|suffix| suffix.to_string_lossy().to_lowercase());
    match suffix.as_deref() {
        Some("safetensors") => Ok(true),
        Some(read @ ("pt" | "pth" | "npy" | "npz" | "distcp")) => {
            let message = format!(
                "--out {} would be a file .{read}, which is only read: a name that ends in .safetensors is a file of whole tensors, any other a directory",
                out.display()
            );
            Err(Error::refused("output", message))
        }
        Some(_) | None => Ok(false),
    }
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

/// Whether `dir` may become the output: absent, empty, or an earlier output that the user wants replaced.
fn check_directory(dir: &Path, force: bool) -> Result<(), Error> {
    let refused = |why: String| Err(Error::refused("output", format!("--out {} {why}", dir.display())));
    let Ok(kind) = fs::symlink_metadata(dir) else { return check_above("--out", dir) };
    if !kind.is_dir() {
        return refused("is there and is not a directory".to_owned());
    }
    if fs::read_dir(dir).map_err(|error| Error::io("reading", dir, &error))?.next().is_none() {
        return Ok(());
    }
    if !force {
        return refused("is not empty; --force replaces what an earlier run wrote".to_owned());
    }
    match replaced::directory(dir)? {
        None => Ok(()),
        Some(why) => {
            refused(format!("{why}, and --force replaces only what a run wrote: choose another name"))
        }
    }
}

/// Whether `file` may become the output: absent, or an earlier output that the user wants replaced.
fn check_file(file: &Path, force: bool) -> Result<(), Error> {
    let refused = |why: &str| Err(Error::refused("output", format!("--gather {} {why}", file.display())));
    if file.file_name().is_none() {
        return refused("does not name a file");
    }
    let slash = |c: u8| std::path::is_separator(c.into());
    if file.as_os_str().as_encoded_bytes().last().copied().is_some_and(slash) {
        return refused("ends in a slash, so it does not name a file");
    }
    match fs::symlink_metadata(file) {
        Ok(_) if file.is_dir() => refused("is a directory"),
        Ok(_) if !force => refused("is there already; --force replaces what an earlier run wrote"),
        Ok(_) => match replaced::file(file) {
            None => Ok(()),
            Some(why) => {
                refused(&format!("{why}, and --force replaces only what a run wrote: choose another name"))
            }
        },
        Err(_) => check_above("--gather", file),
    }
}

/// Whether there can be folders above an output that is not there.
fn check_above(flag: &str, target: &Path) -> Result<(), Error> {
    let target = absolute(target)?;
    let there = target.ancestors().skip(1).find(|above| above.exists());
    match there {
        Some(above) if !above.is_dir() => {
            let message =
                format!("{flag} {} is below {}, which is not a directory", target.display(), above.display());
            Err(Error::refused("output", message))
        }
        Some(_) | None => Ok(()),
    }
}

/// The two outputs appear one after the other, so neither may be inside the other.
fn check_apart(dir: &Path, file: &Path) -> Result<(), Error> {
    let (real_dir, real_file) = (real(dir)?, real(file)?);
    let refused = |how: &str| {
        let message =
            format!("--gather {} is {how} --out {}: put it elsewhere", file.display(), dir.display());
        Err(Error::refused("output", message))
    };
    if real_file == real_dir {
        return refused("the same place as");
    }
    if real_file.starts_with(&real_dir) {
        return refused("inside");
    }
    if real_dir.starts_with(&real_file) {
        return refused("a folder above");
    }
    Ok(())
}

/// The path without the links among the folders above it that are there.
fn real(target: &Path) -> Result<PathBuf, Error> {
    let target = absolute(target)?;
    for above in target.ancestors().skip(1) {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), target.strip_prefix(above)) {
            return Ok(real.join(rest));
        }
    }
    Ok(target)
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
    pub(crate) fn put_in_place(self) -> Result<(), Error> {
        let new = self.path();
        if self.kind == Kind::File {
            check_file(&self.target, self.force)?;
        } else {
            sync_directory(&new)?;
            check_directory(&self.target, self.force)?;
        }
        let mut begun = begun();
        let placed = match (self.kind, fs::symlink_metadata(&self.target)) {
            (Kind::Directory | Kind::SharedDirectory, Ok(_)) => {
                exchange(&new, &self.target, &self.hidden.join(OLD))
            }
            (Kind::Directory | Kind::SharedDirectory | Kind::File, _) => fs::rename(&new, &self.target),
        };
        placed.map_err(|error| Error::io("renaming to", &self.target, &error))?;
        if let Some(one) = begun.iter_mut().find(|one| Arc::ptr_eq(&one.lock, &self.lock)) {
            // They are needed now.
            one.above.clear();
            one.kept = false;
        }
        drop(begun);
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

/// Makes a hidden folder and holds its lock; None if it is somebody else's.
fn begin_folder(hidden: &Path, kind: Kind) -> io::Result<Option<File>> {
    match fs::create_dir(hidden) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        other => other?,
    }
    let path = hidden.join(LOCK);
    let lock = match OpenOptions::new().write(true).create(true).truncate(false).open(&path) {
        // Taken for a dead one's, and gone.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let locked = if kind == Kind::SharedDirectory { lock.try_lock_shared() } else { lock.try_lock() };
    match locked {
        Err(TryLockError::WouldBlock) => Ok(None),
        // A file system without locks: then nobody takes it for a dead one's either.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(is_at(&lock, &path).then_some(lock)),
    }
}

/// Whether a file is still the one at this path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |(a, b): (fs::Metadata, fs::Metadata)| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(same)
}

#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// Removes the hidden folders of this target whose processes have ended, as far as that works.
fn remove_dead(target: &Path) {
    for (_, hidden, _lock) in dead(target) {
        remove_one(target, &hidden);
    }
}

/// The hidden folders of this target whose processes have ended, each with its number and its lock, which is held now.
fn dead(target: &Path) -> impl Iterator<Item = (u64, PathBuf, File)> {
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
fn remove_one(target: &Path, hidden: &Path) {
    let old = hidden.join(OLD);
    if old.exists() && fs::symlink_metadata(target).is_err() {
        // It ended between two renames.
        let _ = fs::rename(old, target);
    }
    remove_folder(hidden);
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

/// Where the output of this target is written meanwhile, by the number of its hidden folder.
pub(crate) fn staged_in(target: &Path, number: u64) -> Result<PathBuf, Error> {
    Ok(hidden(&absolute(target)?, number).join(NEW))
}

/// A hidden folder beside the target.
fn hidden(target: &Path, number: u64) -> PathBuf {
    target.with_file_name(format!("{}{number}", hidden_prefix(target)))
}

/// What the names of the target's hidden folders begin with: some of its name for people, and a hash of all of it. A file
/// system that takes the name, of 255 bytes at most, takes these too.
fn hidden_prefix(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default();
    // FNV-1a, which stays what it is.
    let hash = name.as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let name = name.to_string_lossy();
    let name = &name[..name.floor_char_boundary(64)];
    format!(".{name}.reshard-{hash:016x}-")
}

/// Makes renames and new names in a directory survive a power cut.
fn sync_directory(dir: &Path) -> Result<(), Error> {
    let sync = || -> io::Result<()> { File::open(dir)?.sync_all() };
    sync().map_err(|error| Error::io("syncing", dir, &error))
}
