//! Bytes of a tensor, wherever they live: a stretch of a file, or memory of our own.
//!
//! Files are read by copying, and never mapped: another process may change or truncate one at any moment, which is an error
//! here and would be a signal, or undefined bytes, in a mapping. Nor are they kept open, since there may be more of them than
//! a process may have open. Each reading opens the file and looks whether it still is the one whose header was read, unchanged
//! in length, number and time of change, before and after. Objects at URLs ([`remote`](super::place)) are asked for by ranges, if they still are
//! what they were.

use reshard_layout::internal::counted;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::copies::Stretch;
use super::inflated::Inflated;
use super::place;
#[cfg(feature = "remote")]
use super::remote::{self, Object};
use super::strided::Strided;
use crate::error::Error;

/// A file as it was when it was first looked at.
#[derive(Debug)]
pub(crate) struct Input {
    path: PathBuf,
    place: Place,
    /// Bytes of tensors that have been read at their places.
    read: AtomicU64,
}

/// Where an input is.
#[derive(Debug)]
enum Place {
    /// A file here, as it was.
    File(Identity),
    /// An object at a URL, as it was.
    #[cfg(feature = "remote")]
    Object(Arc<Object>),
}

/// An input that is open.
pub(crate) enum Handle {
    File(File),
    #[cfg(feature = "remote")]
    Object(Arc<Object>),
}

/// What changes when somebody changes a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    len: u64,
    modified: Option<SystemTime>,
    /// Device and number, where there are such.
    place: (u64, u64),
    /// When anything of it was last changed, which no program can set back.
    changed: (i64, i64),
}

/// A range of bytes of an input.
#[derive(Clone)]
pub(crate) enum Bytes {
    /// A range of a file.
    InFile { input: Arc<Input>, start: u64, len: usize },
    /// Bytes made by this program.
    Owned(Arc<Vec<u8>>),
    /// Elements that lie in another order.
    Strided(Box<Strided>),
    /// A range of what a compressed stretch of a file holds.
    Inflated { inflated: Arc<Inflated>, start: usize, len: usize },
}

/// A range of bytes of which parts are read, in any order.
pub(crate) enum Access<'a> {
    InFile { input: &'a Input, file: Handle, start: u64, len: usize },
    Owned(&'a [u8]),
    Strided { strided: &'a Strided, stored: Box<Access<'a>> },
    Inflated { input: &'a Input, bytes: Arc<Vec<u8>>, start: usize, len: usize },
}

/// A range of bytes that is read from its beginning to its end.
pub(crate) enum Reader<'a> {
    InFile { input: &'a Input, file: Handle, at: u64, left: usize },
    Owned(&'a [u8]),
    Parts { access: Access<'a>, at: usize, len: usize },
}

impl Identity {
    fn of(kind: &fs::Metadata) -> Self {
        #[cfg(unix)]
        let (place, changed) = {
            use std::os::unix::fs::MetadataExt;
            ((kind.dev(), kind.ino()), (kind.ctime(), kind.ctime_nsec()))
        };
        #[cfg(not(unix))]
        let (place, changed) = ((0, 0), (0, 0));
        Self { len: kind.len(), modified: kind.modified().ok(), place, changed }
    }
}

impl Input {
    /// A regular file that can be read.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let missing =
            |error: io::Error| Error::refused("input", format!("{} cannot be read: {error}", path.display()));
        let read = AtomicU64::new(0);
        if place::is_url(path) {
            let place = Place::remote(path).map_err(missing)?;
            return Ok(Self { path: path.to_owned(), place, read });
        }
        // Before it is opened: a pipe may never begin.
        if !fs::metadata(path).map_err(missing)?.is_file() {
            return Err(Error::refused("input", format!("{} is not a regular file", path.display())));
        }
        let kind = File::open(path).and_then(|file| file.metadata()).map_err(missing)?;
        Ok(Self { path: path.to_owned(), place: Place::File(Identity::of(&kind)), read })
    }

    /// Adds where it is and what changes when somebody changes it.
    pub(crate) fn hash_identity(&self, hasher: &mut impl Hasher) {
        match &self.place {
            Place::File(identity) => {
                // As it is found from wherever.
                std::path::absolute(&self.path).ok().hash(hasher);
                identity.hash(hasher);
            }
            #[cfg(feature = "remote")]
            Place::Object(object) => {
                self.path.hash(hasher);
                object.hash_identity(hasher);
            }
        }
    }

    /// How many bytes it had.
    pub(crate) fn len(&self) -> u64 {
        match &self.place {
            Place::File(identity) => identity.len,
            #[cfg(feature = "remote")]
            Place::Object(object) => object.len(),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes of its tensors have been read by an [`Access`].
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Its bytes from `start` to `start + len`, which were in it when it was opened.
    pub(crate) fn read(&self, start: u64, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.reader(start, len)?.read_to(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn open_again(&self) -> Result<Handle, Error> {
        match &self.place {
            Place::File(_) => {
                let file = Handle::File(File::open(&self.path).map_err(|error| self.failed(&error))?);
                self.check(&file)?;
                Ok(file)
            }
            #[cfg(feature = "remote")]
            Place::Object(object) => Ok(Handle::Object(Arc::clone(object))),
        }
    }

    fn reader(&self, start: u64, len: usize) -> Result<Reader<'_>, Error> {
        Ok(Reader::InFile { input: self, file: self.open_again()?, at: start, left: len })
    }

    /// Whether a file still is what it was. Of an object that is asked with every range.
    pub(crate) fn check(&self, file: &Handle) -> Result<(), Error> {
        let (file, identity) = match (file, &self.place) {
            (Handle::File(file), Place::File(identity)) => (file, identity),
            #[cfg(feature = "remote")]
            (Handle::Object(_), _) | (_, Place::Object(_)) => return Ok(()),
        };
        let now = Identity::of(&file.metadata().map_err(|error| self.failed(&error))?);
        if now == *identity {
            return Ok(());
        }
        let how = if now.len == identity.len {
            "it is another file, or was written or renamed since".to_owned()
        } else {
            format!("it had {} and has {}", counted(identity.len, "byte", "bytes"), now.len)
        };
        let message = format!("{} was changed while it was read: {how}", self.path.display());
        Err(Error::failed("input", message))
    }

    pub(crate) fn failed(&self, error: &io::Error) -> Error {
        Error::failed("input", format!("reading {} failed: {error}", self.path.display()))
    }
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::InFile { len, .. } | Self::Inflated { len, .. } => *len,
            Self::Owned(bytes) => bytes.len(),
            Self::Strided(strided) => strided.len(),
        }
    }

    /// Some of them, which are within them.
    pub(crate) fn part(&self, at: usize, count: usize) -> Self {
        match self {
            Self::InFile { input, start, .. } => {
                Self::InFile { input: Arc::clone(input), start: start + at as u64, len: count }
            }
            Self::Inflated { inflated, start, .. } => {
                Self::Inflated { inflated: Arc::clone(inflated), start: start + at, len: count }
            }
            Self::Owned(bytes) => {
                Self::from(bytes.get(at..).and_then(|rest| rest.get(..count)).unwrap_or_default().to_vec())
            }
            Self::Strided(strided) => strided.stored().part(at, count),
        }
    }

    /// Begins to read them, at a byte of them.
    pub(crate) fn reader(&self, at: usize) -> Result<Reader<'_>, Error> {
        match self {
            Self::InFile { input, start, len } => input.reader(*start + at as u64, len.saturating_sub(at)),
            Self::Owned(bytes) => Ok(Reader::Owned(bytes.get(at..).unwrap_or_default())),
            Self::Strided(_) | Self::Inflated { .. } => {
                Ok(Reader::Parts { access: self.access()?, at, len: self.len() })
            }
        }
    }
}

impl Bytes {
    /// Opens them, to read parts of them.
    pub(crate) fn access(&self) -> Result<Access<'_>, Error> {
        match self {
            Self::InFile { input, start, len } => {
                Ok(Access::InFile { input, file: input.open_again()?, start: *start, len: *len })
            }
            Self::Owned(bytes) => Ok(Access::Owned(bytes)),
            Self::Strided(strided) => {
                Ok(Access::Strided { strided, stored: Box::new(strided.stored().access()?) })
            }
            Self::Inflated { inflated, start, len } => {
                let (input, bytes) = (inflated.input(), inflated.bytes()?);
                within(*start, *len, bytes.len())?;
                Ok(Access::Inflated { input, bytes, start: *start, len: *len })
            }
        }
    }

    /// Adds where in their file they are, or themselves.
    pub(crate) fn hash_place(&self, hasher: &mut impl Hasher) {
        match self {
            Self::InFile { start, len, .. } => (0, start, len).hash(hasher),
            Self::Owned(bytes) => (1, bytes).hash(hasher),
            Self::Strided(strided) => strided.hash_place(hasher),
            Self::Inflated { start, len, .. } => (3, start, len).hash(hasher),
        }
    }

    /// The file that they are in, if they are in one.
    pub(crate) fn input(&self) -> Option<&Arc<Input>> {
        self.place().map(|(input, _)| input)
    }

    /// The same, and where in it what they lie in begins.
    pub(crate) fn place(&self) -> Option<(&Arc<Input>, u64)> {
        match self {
            Self::InFile { input, start, .. } => Some((input, *start)),
            Self::Owned(_) => None,
            Self::Strided(strided) => strided.stored().place(),
            Self::Inflated { inflated, .. } => Some((inflated.input(), inflated.start())),
        }
    }
}

impl Access<'_> {
    /// The bytes from `at` on, as many as there is room for; there must be so many.
    pub(crate) fn read_at(&self, at: usize, room: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::InFile { input, file, start, len } => {
                within(at, room.len(), *len)?;
                input.read.fetch_add(room.len() as u64, Ordering::Relaxed);
                match file.read_exact_at(start + at as u64, room) {
                    // It became shorter, which is what the second look says.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                        input.check(file).and(Err(input.failed(&error)))
                    }
                    read => read.map_err(|error| input.failed(&error)),
                }
            }
            Self::Owned(bytes) => {
                within(at, room.len(), bytes.len())?;
                room.copy_from_slice(&bytes[at..at + room.len()]);
                Ok(())
            }
            Self::Strided { strided, stored } => {
                within(at, room.len(), strided.len())?;
                strided.read_at(stored, at, room)
            }
            Self::Inflated { input, bytes, start, len } => {
                within(at, room.len(), *len)?;
                input.read.fetch_add(room.len() as u64, Ordering::Relaxed);
                room.copy_from_slice(&bytes[start + at..start + at + room.len()]);
                Ok(())
            }
        }
    }

    /// Several stretches, in ascending order, each from where it is to where it belongs.
    pub(crate) fn read_stretches(&self, stretches: &[Stretch], room: &mut [u8]) -> Result<(), Error> {
        #[cfg(feature = "remote")]
        if let Self::InFile { input, file: Handle::Object(object), start, len } = self {
            stretches.iter().try_for_each(|at| within(at.from, at.len, *len))?;
            let read = object.read_stretches(*start, stretches, room);
            let came = read.map_err(|error| input.failed(&error))?;
            input.read.fetch_add(came, Ordering::Relaxed);
            return Ok(());
        }
        stretches
            .iter()
            .try_for_each(|Stretch { from, to, len }| self.read_at(*from, &mut room[*to..to + len]))
    }

    /// The file, and where in it the bytes from `at` on are, of which so many are asked for.
    #[cfg(target_os = "linux")]
    pub(crate) fn in_file(&self, at: usize, count: usize) -> Result<Option<(&File, u64)>, Error> {
        match self {
            Self::InFile { file: Handle::File(file), start, len, .. } => {
                within(at, count, *len)?;
                Ok(Some((file, start + at as u64)))
            }
            #[cfg(feature = "remote")]
            Self::InFile { file: Handle::Object(_), .. } => Ok(None),
            Self::Owned(_) | Self::Strided { .. } | Self::Inflated { .. } => Ok(None),
        }
    }

    /// What the elements lie in, if they lie in an order of their own.
    pub(crate) fn stored(&self) -> &Self {
        match self {
            Self::Strided { stored, .. } => stored,
            Self::InFile { .. } | Self::Owned(_) | Self::Inflated { .. } => self,
        }
    }

    /// Looks whether the file still is what it was; until then nothing that was read is known to be right.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.look()
    }

    fn look(&self) -> Result<(), Error> {
        match self {
            Self::InFile { input, file, .. } => input.check(file),
            Self::Owned(_) | Self::Inflated { .. } => Ok(()),
            Self::Strided { stored, .. } => stored.look(),
        }
    }
}

fn within(at: usize, count: usize, len: usize) -> Result<(), Error> {
    if at.checked_add(count).is_some_and(|end| end <= len) {
        return Ok(());
    }
    Err(Error::failed(
        "internal",
        format!(
            "{count} at {at} were asked for, and there are {len}",
            count = counted(count, "byte", "bytes")
        ),
    ))
}

impl Handle {
    /// The bytes from `at` on, as many as there is room for.
    pub(crate) fn read_exact_at(&self, at: u64, room: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => read_exact_at(file, at, room),
            #[cfg(feature = "remote")]
            Self::Object(object) => object.read_exact_at(at, room),
        }
    }
}

impl Place {
    /// An object at a URL.
    fn remote(url: &Path) -> io::Result<Self> {
        #[cfg(feature = "remote")]
        {
            let object = remote::find(url)?.ok_or_else(|| io::Error::other("there is no such object"))?;
            Ok(Self::Object(Arc::new(object)))
        }
        #[cfg(not(feature = "remote"))]
        {
            let _ = url;
            Err(place::not_built())
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, at: u64, room: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, room, at)
}

#[cfg(not(unix))]
fn read_exact_at(mut file: &File, at: u64, room: &mut [u8]) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(room)
}

#[cfg(unix)]
pub(crate) fn write_all_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(not(unix))]
pub(crate) fn write_all_at(mut file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

impl Reader<'_> {
    /// The next bytes, as many as there is room for; there must be so many.
    pub(crate) fn fill(&mut self, room: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::InFile { input, file, at, left } => {
                *left = left.saturating_sub(room.len());
                let begin = std::mem::replace(at, *at + room.len() as u64);
                match file.read_exact_at(begin, room) {
                    // It became shorter, which is what the second look says.
                    Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(input.failed(&error)),
                    read => input.check(file).and_then(|()| read.map_err(|error| input.failed(&error))),
                }
            }
            Self::Owned(bytes) => {
                let Some((now, later)) = bytes.split_at_checked(room.len()) else {
                    return Err(Error::failed("internal", "bytes were asked for that are not there"));
                };
                room.copy_from_slice(now);
                *bytes = later;
                Ok(())
            }
            Self::Parts { access, at, .. } => {
                access.read_at(*at, room)?;
                *at += room.len();
                access.look()
            }
        }
    }

    /// All bytes that are left, appended.
    pub(crate) fn read_to(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            Self::InFile { left, .. } => {
                let (before, left) = (bytes.len(), *left);
                reserve(bytes, left)?;
                bytes.resize(before + left, 0);
                self.fill(&mut bytes[before..])?;
            }
            Self::Owned(left) => {
                reserve(bytes, left.len())?;
                bytes.extend_from_slice(left);
                *left = &[];
            }
            Self::Parts { at, len, .. } => {
                let (before, left) = (bytes.len(), *len - *at);
                reserve(bytes, left)?;
                bytes.resize(before + left, 0);
                self.fill(&mut bytes[before..])?;
            }
        }
        Ok(())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(Arc::new(bytes))
    }
}

/// Makes room for so many more bytes, or says that there is none.
pub(crate) fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<(), Error> {
    bytes.try_reserve_exact(more).map_err(|_| {
        Error::failed(
            "memory",
            format!("there is no memory for {more} of it", more = counted(more, "byte", "bytes")),
        )
    })
}

/// Makes it so long; what is in it then means nothing.
pub(crate) fn resize(bytes: &mut Vec<u8>, len: usize) -> Result<(), Error> {
    if bytes.capacity() < len {
        // Nothing of it is to be copied.
        *bytes = Vec::new();
        reserve(bytes, len)?;
    }
    bytes.resize(len, 0);
    Ok(())
}
