//! Entries of a checkpoint that are not tensors: hyperparameters, steps, random states. They are copied byte for byte, never run.
//!
//! ```text
//! .metadata    a name with one stretch of a .distcp file, an archive of torch.save   -->  the same bytes at another offset
//! others.bin   the same archives one after the other, listed in sharding.json        -->  the same
//! .pt, .npz    a part of one pickle, which has no bytes that could be copied          -->  named in the report
//! ```
//!
//! What becomes of them in an output is said by [`Others`](super::carried::Others).

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reshard_layout::internal::counted;
use serde::{Deserialize, Serialize};

use super::bytes::{self, Bytes, Input, write_all_at};
use super::checkpoint::Checkpoint;
use super::checksum::{Sum, checksum, crc32};
use super::error::{Error, ErrorKind};
use super::integrity::{PIECE, Problem, path};
use super::place;
use crate::shown::Shown;

/// The file next to rank files that holds what is not a tensor.
pub(crate) const OBJECTS_NAME: &str = "others.bin";

/// One step of a path into nested dicts and lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Key {
    /// A key of a dict.
    Text(String),
    /// An index of a list.
    Index(u64),
}

/// An entry that is not a tensor.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, Key, Writer};
/// use reshard_sharding::{Mesh, Sharding};
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("step_1000");
/// let mesh: Mesh = "dp=2".parse()?;
/// let rows = Sharding::parse(&mesh, &[4], "S(0)")?;
/// let writer = Writer::begin(&out, &mesh, [("w", "U8", &rows)], false)?;
/// let path = [Key::Text("optim".into()), Key::Text("lr".into())];
/// writer.save_object("optim.lr", Some(&path), b"what torch.save wrote")?;
/// mesh.ranks().try_for_each(|rank| writer.save(rank, [("w", &[0_u8; 2][..])]))?;
/// writer.commit()?;
/// let saved = Checkpoint::open(Some(&out))?;
/// assert_eq!((saved.objects()[0].name(), saved.objects()[0].path()), ("optim.lr", Some(&path[..])));
/// assert_eq!(saved.object("optim.lr")?, b"what torch.save wrote");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Object {
    pub(crate) name: String,
    pub(crate) path: Option<Vec<Key>>,
    pub(crate) content: Content,
    /// The checksum of its bytes, where a manifest has it.
    pub(crate) sum: Option<u64>,
}

/// Takes a piece of bytes, and where it begins in them.
type Take<'a> = dyn FnMut(usize, &[u8]) -> Result<(), Error> + 'a;

/// Where an object is.
#[derive(Clone)]
pub(crate) enum Content {
    /// Bytes of its own.
    Archive(Bytes),
    /// A part of something that is read as a whole or not at all.
    PartOf(Container),
}

/// What an object without bytes of its own is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    TorchSave,
    Numpy,
    /// The same as `TorchSave`, below a key of a dict that is neither a text nor an integer.
    NamelessKey,
    /// A file of objects beside `.metadata`.
    BesideDcp,
    /// `others.bin`, which is not there, or ends before its bytes do.
    Missing,
    /// The same, where what is left of a checkpoint is taken.
    GivenUp,
}

impl Container {
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::TorchSave => {
                "it is a part of a file of torch.save, of which only tensors are read: torch.distributed.checkpoint.save keeps it"
            }
            Self::Numpy => {
                "it is an array of objects or texts in an .npz file, of which only numbers are read"
            }
            Self::NamelessKey => {
                "it is in a file of torch.save below a key that is neither a text nor an integer, so nothing in it has a name: save it under a text"
            }
            Self::BesideDcp => {
                "it is a file of torch.save beside .metadata, as Megatron-Core has it, which is not read: copy it beside the output"
            }
            Self::Missing | Self::GivenUp => {
                "its bytes were in others.bin, which is missing or ends before them"
            }
        }
    }
}

impl Object {
    /// Its name: the keys of its path with dots between them.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is in nested dicts and lists; `None` where only its name is known.
    pub fn path(&self) -> Option<&[Key]> {
        self.path.as_deref()
    }

    /// The number of its bytes; `None` of a part of a `.pt` or `.npz` file, which has none of its own.
    pub fn byte_len(&self) -> Option<u64> {
        self.archive().map(|bytes| bytes.len() as u64)
    }

    /// Its bytes, where it has bytes of its own.
    pub(crate) fn archive(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Archive(bytes) => Some(bytes),
            Content::PartOf(_) => None,
        }
    }

    /// Returns `true` if its bytes are lost: `others.bin` is missing, or ends before them.
    pub fn is_lost(&self) -> bool {
        matches!(self.content, Content::PartOf(Container::Missing | Container::GivenUp))
    }

    /// One that is only named.
    pub(crate) fn part_of(name: String, container: Container) -> Self {
        Self { name, path: None, content: Content::PartOf(container), sum: None }
    }

    /// Its bytes, a piece at a time; returns their checksum.
    pub(crate) fn each_piece(&self, take: &mut Take<'_>) -> Result<u64, Error> {
        let Some(bytes) = self.archive() else { return Err(self.has_no_bytes()) };
        let about = |error: Error| error.about(format_args!("`{}`", self.name.shown()));
        let (access, sum, mut piece) = (bytes.access()?, Sum::default(), Vec::new());
        for at in (0..bytes.len()).step_by(PIECE) {
            let len = PIECE.min(bytes.len() - at);
            bytes::resize(&mut piece, len)?;
            access.read_at(at, &mut piece).map_err(about)?;
            sum.add(checksum(&piece), bytes.len() - at - len);
            take(at, &piece)?;
        }
        access.finish().map_err(about)?;
        Ok(sum.get())
    }

    fn has_no_bytes(&self) -> Error {
        let why = match &self.content {
            Content::Archive(_) => "it has bytes",
            Content::PartOf(container) => container.why(),
        };
        Error::refused("object", why).about(format_args!("`{}`", self.name.shown()))
    }

    /// The rank position whose file holds it: any rule will do that needs nothing but its name.
    pub(crate) fn holder(&self, ranks: usize) -> usize {
        crc32(self.name.as_bytes()) as usize % ranks.max(1)
    }

    /// Adds all that decides what is written of it.
    pub(crate) fn hash_identity(&self, hasher: &mut impl Hasher) {
        (&self.name, &self.path, self.sum).hash(hasher);
        if let Some(bytes) = self.archive() {
            bytes.hash_place(hasher);
            if let Some(input) = bytes.input() {
                input.hash_identity(hasher);
            }
        }
    }
}

impl Checkpoint {
    /// The entries that are not tensors, in the order of their names.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// The bytes of an entry that is not a tensor: what `torch.save` wrote. They are copied, never run.
    ///
    /// Returns an error where there is no such entry, or where it is a part of a `.pt` or `.npz` file.
    pub fn object(&self, name: &str) -> Result<Vec<u8>, Error> {
        let object = self.objects.iter().find(|object| object.name == name);
        let object = object.ok_or_else(|| {
            let count = counted(self.objects.len(), "entry that is no tensor", "entries that are no tensors");
            let message = format!("there is no object `{}` among the {count} of the input", name.shown());
            Error::refused("no_such_object", message)
        })?;
        let mut all = Vec::new();
        bytes::reserve(&mut all, object.archive().map_or(0, Bytes::len))?;
        let found = object.each_piece(&mut |_, piece| {
            all.extend_from_slice(piece);
            Ok(())
        })?;
        check_sum(object, found)?;
        Ok(all)
    }

    /// What is wrong with objects whose checksums are known.
    pub(crate) fn check_objects(&self) -> Result<Vec<Problem>, Error> {
        let mut problems = Vec::new();
        for object in &self.objects {
            if object.is_lost() {
                problems.push(Problem {
                    file: self
                        .folders
                        .first()
                        .map_or_else(String::new, |dir| objects_file(dir).display().to_string()),
                    tensor: None,
                    object: Some(object.name.clone()),
                    what: "its bytes are missing".to_owned(),
                });
            }
            let (Some(said), Some(bytes)) = (object.sum, object.archive()) else { continue };
            let found = object.each_piece(&mut |_, _| Ok(()))?;
            if found != said {
                problems.push(Problem {
                    file: path(bytes),
                    tensor: None,
                    object: Some(object.name.clone()),
                    what: format!("its checksum is {found:016x}, and {said:016x} is what was written"),
                });
            }
        }
        Ok(problems)
    }
}

/// Where the objects of a folder of rank files are.
fn objects_file(dir: &Path) -> PathBuf {
    dir.join(OBJECTS_NAME)
}

/// Refuses objects of one file that have more bytes than it has: copies of them would be larger, without a bound.
pub(crate) fn check_total(file: &Input, lens: impl Iterator<Item = u64>) -> Result<(), Error> {
    let total = lens.fold(0, u64::saturating_add);
    if total <= file.len() {
        return Ok(());
    }
    let message = format!(
        "{} has {}, and the entries in it that are no tensors have {total}: some have bytes in common",
        file.path().display(),
        counted(file.len(), "byte", "bytes")
    );
    Err(Error::refused("objects", message))
}

fn check_sum(object: &Object, found: u64) -> Result<(), Error> {
    match object.sum.filter(|said| *said != found) {
        None => Ok(()),
        Some(said) => {
            let message = format!(
                "`{}`: its bytes have the checksum {found:016x}, and the manifest says {said:016x}; --no-verify takes it as it is",
                object.name.shown()
            );
            Err(Error::refused("checksum", message))
        }
    }
}

/// An object that was written: where, and its checksum.
pub(crate) struct Placed<'a> {
    pub(crate) object: &'a Object,
    /// The position of the rank whose file it is in.
    pub(crate) place: usize,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) sum: u64,
}

/// Copies an object into a file, from byte `offset` on. With `checked` it must have the checksum that its manifest says.
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

/// Writes and syncs `others.bin` of a folder of rank files; nothing where no object has bytes.
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
            crc64nvme: super::checksum::to_text(&[*sum]),
        }
    }

    /// The objects of a folder of rank files. Those whose bytes are not there are [`Container::Missing`].
    pub(crate) fn open(dir: &Path, listed: &[Self]) -> Result<Vec<Object>, Error> {
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        let path = objects_file(dir);
        let input = match Input::open(&path) {
            Ok(input) => Some(Arc::new(input)),
            Err(error) if error.class() == ErrorKind::Refused && !place::exists(&path)? => None,
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
                Error::refused("manifest", why).about(about)
            };
            if !names.insert(&one.name[..]) {
                return Err(bad("it is listed twice"));
            }
            let sum = match super::checksum::of_text(&one.crc64nvme).as_deref() {
                Some([sum]) => *sum,
                Some(_) | None => {
                    return Err(bad("its checksum is not 16 of the digits 0 to 9 and a to f"));
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
