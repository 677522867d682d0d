//! Bytes of a tensor: a contiguous range of a file, or memory of this process.
//!
//! Files are read by copying and never mapped: another process may change or truncate one at any moment. That
//! is an error here; in a mapping it would be a signal or undefined bytes. Files are not held open either,
//! because a checkpoint may have more files than a process can open. Every read opens the file. Before and
//! after the read it checks that length, inode number and modification time are those of the file whose
//! header was read. Objects at URLs ([`remote`](crate::bytes::place)) are requested by ranges, on condition that
//! they are unchanged.

pub(crate) mod checksum;
pub(crate) mod inflated;
pub(crate) mod packing;
pub(crate) mod peek;
pub(crate) mod pieces;
pub(crate) mod place;
pub(crate) mod read;
#[cfg(feature = "remote")]
pub(crate) mod remote;
pub(crate) mod strided;
pub(crate) mod zip;
pub(crate) mod zstd;

use reshard_layout::internal::counted;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

#[cfg(feature = "remote")]
use crate::bytes::remote::Object;
use crate::error::Error;
use crate::model::copies::Stretch;
use inflated::Inflated;
use strided::Strided;

/// A file, with its identity from the first time it was opened.
#[derive(Debug)]
pub(crate) struct Input {
    path: PathBuf,
    place: Place,
    /// Bytes of tensors that have been read directly from their offsets.
    read: AtomicU64,
}

/// The location of an input.
#[derive(Debug)]
enum Place {
    /// A local file, with its identity when it was opened.
    File(Identity),
    /// An object at a URL, with its identity when it was opened.
    #[cfg(feature = "remote")]
    Object(Arc<Object>),
}

/// An open input.
pub(crate) enum Handle {
    File(File),
    #[cfg(feature = "remote")]
    Object(Arc<Object>),
}

/// The properties that change when another program changes a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    len: u64,
    modified: Option<SystemTime>,
    /// Device and inode number, on systems that have them.
    place: (u64, u64),
    /// The time of the last change of data or metadata, which a program cannot reset.
    changed: (i64, i64),
}

/// A range of bytes of an input.
#[derive(Clone)]
pub(crate) enum Bytes {
    /// A range of a file.
    InFile { input: Arc<Input>, start: u64, len: usize },
    /// Bytes made by this program.
    Owned(Arc<Vec<u8>>),
    /// Elements that are stored in another order.
    Strided(Box<Strided>),
    /// A range of the decompressed bytes of a compressed file range.
    Inflated { inflated: Arc<Inflated>, start: usize, len: usize },
}

/// An open range of bytes, of which parts are read in any order.
pub(crate) enum Access<'a> {
    InFile { input: &'a Input, file: Handle, start: u64, len: usize },
    Owned(&'a [u8]),
    Strided { strided: &'a Strided, stored: Box<Access<'a>> },
    Inflated { input: Option<&'a Input>, bytes: Arc<Vec<u8>>, start: usize, len: usize },
}

/// An open range of bytes that is read sequentially.
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
    /// Opens a readable regular file, or an object at a URL.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let missing =
            |error: io::Error| Error::unreadable(format!("{} cannot be read: {error}", path.display()));
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

    /// Hashes the location and the properties that change when the input changes.
    pub(crate) fn hash_identity(&self, hasher: &mut impl Hasher) {
        match &self.place {
            Place::File(identity) => {
                // Absolute, so that the path is the same from every working directory.
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

    /// Returns the length in bytes when it was opened.
    pub(crate) fn len(&self) -> u64 {
        match &self.place {
            Place::File(identity) => identity.len,
            #[cfg(feature = "remote")]
            Place::Object(object) => object.len(),
        }
    }

    /// Returns the path or URL.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of tensor bytes that an [`Access`] has read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Reads the bytes from `start` to `start + len`, which were in the input when it was opened.
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

    /// Fails if a file has changed. An object at a URL is checked with every range request instead.
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
            format!("it had {} and now has {}", counted(identity.len, "byte", "bytes"), now.len)
        };
        let message = format!("{} was changed while it was read: {how}", self.path.display());
        Err(Error::failed(crate::ErrorKind::Io, "input", message))
    }

    pub(crate) fn failed(&self, error: &io::Error) -> Error {
        Error::failed(
            crate::ErrorKind::Io,
            "input",
            format!("reading {} failed: {error}", self.path.display()),
        )
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

    /// Returns `count` of the bytes from `at` on, which must be within range.
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

    /// Opens the bytes for sequential reading, from byte `at` on.
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
    /// Opens the bytes for reading of parts of them.
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
                let (input, bytes) = (inflated.place().map(|(input, _)| &**input), inflated.bytes()?);
                within(*start, *len, bytes.len())?;
                Ok(Access::Inflated { input, bytes, start: *start, len: *len })
            }
        }
    }

    /// Hashes the location in the file, or the bytes themselves if they are owned.
    pub(crate) fn hash_place(&self, hasher: &mut impl Hasher) {
        match self {
            Self::InFile { start, len, .. } => (0, start, len).hash(hasher),
            Self::Owned(bytes) => (1, bytes).hash(hasher),
            Self::Strided(strided) => strided.hash_place(hasher),
            Self::Inflated { inflated, start, len } => {
                (3, start, len).hash(hasher);
                inflated.hash_place(hasher);
            }
        }
    }

    /// Returns the file that contains the bytes, if there is one.
    pub(crate) fn input(&self) -> Option<&Arc<Input>> {
        self.place().map(|(input, _)| input)
    }

    /// Returns the file and the offset at which the stored bytes begin in it.
    pub(crate) fn place(&self) -> Option<(&Arc<Input>, u64)> {
        match self {
            Self::InFile { input, start, .. } => Some((input, *start)),
            Self::Owned(_) => None,
            Self::Strided(strided) => strided.stored().place(),
            Self::Inflated { inflated, .. } => inflated.place(),
        }
    }
}

impl Access<'_> {
    /// Fills `room` with the bytes from `at` on; fails if there are fewer.
    pub(crate) fn read_at(&self, at: usize, room: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::InFile { input, file, start, len } => {
                within(at, room.len(), *len)?;
                input.read.fetch_add(room.len() as u64, Ordering::Relaxed);
                match file.read_exact_at(start + at as u64, room) {
                    // The file became shorter; the second check reports that.
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
                if let Some(input) = input {
                    input.read.fetch_add(room.len() as u64, Ordering::Relaxed);
                }
                room.copy_from_slice(&bytes[start + at..start + at + room.len()]);
                Ok(())
            }
        }
    }

    /// Reads several ranges, in ascending order, each into its target offset.
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

    /// Returns the file and the offset in it of `count` bytes from `at` on.
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

    /// Returns the access to the stored bytes, if the elements are in a custom order.
    pub(crate) fn stored(&self) -> &Self {
        match self {
            Self::Strided { stored, .. } => stored,
            Self::InFile { .. } | Self::Owned(_) | Self::Inflated { .. } => self,
        }
    }

    /// Checks that the file is unchanged; until then no byte that was read is known to be right.
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
    Err(Error::internal(format!(
        "requested {count} at offset {at}, but there are only {len}",
        count = counted(count, "byte", "bytes")
    )))
}

impl Handle {
    /// Fills `room` with the bytes from `at` on.
    pub(crate) fn read_exact_at(&self, at: u64, room: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => read_exact_at(file, at, room),
            #[cfg(feature = "remote")]
            Self::Object(object) => object.read_exact_at(at, room),
        }
    }
}

impl Place {
    /// Finds an object at a URL.
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
    /// Fills `room` with the next bytes; fails if there are fewer.
    pub(crate) fn fill(&mut self, room: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::InFile { input, file, at, left } => {
                *left = left.saturating_sub(room.len());
                let begin = std::mem::replace(at, *at + room.len() as u64);
                match file.read_exact_at(begin, room) {
                    // The file became shorter; the second check reports that.
                    Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(input.failed(&error)),
                    read => input.check(file).and_then(|()| read.map_err(|error| input.failed(&error))),
                }
            }
            Self::Owned(bytes) => {
                let Some((now, later)) = bytes.split_at_checked(room.len()) else {
                    return Err(Error::internal("requested bytes past the end"));
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

    /// Appends all remaining bytes.
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

/// Reserves space for `more` bytes, or returns an error if there is no memory.
pub(crate) fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<(), Error> {
    bytes.try_reserve_exact(more).map_err(|_| {
        Error::failed(
            crate::ErrorKind::MemoryLimit,
            "memory",
            format!("out of memory: cannot allocate {more}", more = counted(more, "byte", "bytes")),
        )
    })
}

/// Resizes the vector to `len` bytes; its contents are then unspecified.
pub(crate) fn resize(bytes: &mut Vec<u8>, len: usize) -> Result<(), Error> {
    if bytes.capacity() < len {
        // No old byte needs to be copied.
        *bytes = Vec::new();
        reserve(bytes, len)?;
    }
    bytes.resize(len, 0);
    Ok(())
}
